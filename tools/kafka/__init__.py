"""A real Apache Kafka on this machine, for tests.

By hand: ``python3 -m tools.kafka start [--nodes 1|3] [--sasl] [--tls] | stop``.

From a test (the fixtures of ``tests/support/brokers.py`` give most of them a running cluster)::

    ensure_kafka()                                     # or KafkaMissingError, with the reason
    with KafkaCluster(tmp_path, nodes=3) as cluster:   # about 1.5 s for one node, 4 s for three
        cluster.bootstrap_servers                      # "127.0.0.1:21293,..." as clients see it
        cluster.admin.create_topic("flights", partitions=3, settings={"max.message.bytes": 2000})
        cluster.admin.leaders("flights")               # {0: 2, 1: 3, 2: 1}
        cluster.admin.move_leader("flights", 0, to=1)
        cluster.admin.grow_topic / delete_topic
        cluster.admin.deny("alice", "flights")         # allow; with sasl=True
        cluster.admin.throttle(10_000)                 # a quota, in bytes a second
        node = cluster.nodes[2]
        node.kill(); node.start()                      # SIGKILL; the same port and data
        node.stop()                                    # in order, its leaders handed over
        node.pause(); node.resume()                    # SIGSTOP, SIGCONT
        dump_batches(node.data, "flights", 0)          # list[DumpedBatch], by Kafka's own tool; dump_text for records

``KafkaCluster(path, sasl=True)`` has the users ``settings.USERS`` by PLAIN, SCRAM-SHA-256 and -512, takes any unsecured
OAUTHBEARER token, and minds access rules. ``KafkaCluster(path, certificates=make_certificates(path / "tls"))`` speaks
TLS and takes clients with and without a certificate. ``overrides`` are broker settings that win over ours, such as
``{"listener.name.client.ssl.client.auth": "required"}``, or for brokers with an expired certificate
``{"listener.name.client.ssl.keystore.location": certificates.expired.pem}``. For a proxy in front of a broker, set
``cluster.nodes[1].advertised_port`` before `KafkaCluster.start`. ``cluster.internal_servers`` go past all of that.

Brokers die with the process that started them, whatever its end; only the command line's outlive it.
"""

from __future__ import annotations

from tools.kafka.cluster import KafkaCluster as KafkaCluster
from tools.kafka.cluster import ensure_kafka as ensure_kafka
from tools.kafka.dump import dump_batches as dump_batches
from tools.kafka.dump import dump_text as dump_text
from tools.kafka.dump import segments as segments
from tools.kafka.errors import KafkaMissingError as KafkaMissingError
from tools.kafka.errors import KafkaToolError as KafkaToolError
from tools.kafka.tls import Certificates as Certificates
from tools.kafka.tls import make_certificates as make_certificates
