"""A cluster of brokers on loopback, in one directory."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tools.kafka.jars import ensure_jars, jar_directory
from tools.kafka.node import CHECKPOINT, Node
from tools.kafka.settings import broker_settings, format_arguments, security_protocol
from tools.kafka.tls import Certificates

if TYPE_CHECKING:
    from tools.kafka.admin import Admin


def ensure_kafka() -> None:
    ensure_jars(_train)


class KafkaCluster:
    """Brokers 1 to ``nodes`` in KRaft mode, each its own controller; ``with KafkaCluster(...) as cluster`` starts it.

    Attributes:
        nodes: the brokers, by id; each can be killed, paused and restarted alone.
        security_protocol: what clients must speak, by Kafka's name for it.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 1,
        *,
        sasl: bool = False,
        certificates: Certificates | None = None,
        overrides: Mapping[str, object] | None = None,
        features: Mapping[str, int] | None = None,
        jvm_options: Sequence[str] | None = None,
        detached: bool = False,
    ) -> None:
        """Choose ports; nothing runs before `start`.

        Args:
            directory: of the brokers' data; created if it is missing.
            nodes: how many.
            sasl: clients must authenticate as one of `settings.USERS`, and access-control lists count.
            certificates: clients must speak TLS; the brokers are ``certificates.broker``.
            overrides: broker settings that win over ours, for every node.
            features: finalized levels of features, such as ``transaction.version``, other than the newest.
            jvm_options: of the brokers, such as `jvm.FOR_LOAD`; if None, those with which they start fastest.
            detached: the brokers outlive this process; else they die with it, whatever its end.
        """
        self.nodes = {id: Node(id, directory / f"node-{id}", jvm_options, detached) for id in range(1, nodes + 1)}
        self.security_protocol = security_protocol(sasl, certificates is not None)
        self._sasl = sasl
        self._certificates = certificates
        self._overrides = overrides or {}
        self._features = features or {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{node.advertised_port}" for node in self.nodes.values())

    @property
    def internal_servers(self) -> str:
        """``bootstrap.servers`` of the listeners that are always open and past every proxy, in PLAINTEXT."""
        return ",".join(f"127.0.0.1:{node.internal_port}" for node in self.nodes.values())

    @cached_property
    def admin(self) -> Admin:
        """The cluster's administration, past all security and proxies."""
        from tools.kafka.admin import Admin  # needs clients, which the command line does without

        return Admin(self.internal_servers)

    def start(self) -> None:
        """Format the brokers' directories, start them all, and wait until all serve."""
        for node in self.nodes.values():
            node.configure(broker_settings(node, self.nodes, self._sasl, self._certificates, self._overrides))
        try:
            self._format()
            for node in self.nodes.values():
                node.begin_start()
            for node in self.nodes.values():
                node.wait_started()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all brokers, and wait until they are gone; their data is not needed any more."""
        for node in self.nodes.values():
            node.kill()

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _format(self) -> None:
        """Format the brokers' directories: the first time by Kafka's tool, which is a JVM of its own, then like that.

        What the tool makes depends on its arguments, and not on the brokers' settings.
        """
        arguments = format_arguments(self._sasl, self._features)
        kept = jar_directory() / f"bootstrap-{zlib.crc32(' '.join(arguments).encode()):08x}.checkpoint"
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix="format-") as scratch:
                model = Node(1, Path(scratch), jvm_options=None, detached=False)
                model.configure(broker_settings(model, {1: model}, self._sasl, None, {}))
                model.format(arguments)
                (model.data / CHECKPOINT).rename(kept)
        for node in self.nodes.values():
            node.format_like(kept)


def _train(archive: Path) -> None:
    """Run a broker such that the JVM leaves an archive of its classes."""
    with tempfile.TemporaryDirectory(prefix="shmaccum-kafka-") as scratch:
        cluster = KafkaCluster(Path(scratch), sasl=True, jvm_options=(f"-XX:ArchiveClassesAtExit={archive}",))
        cluster.start()
        cluster.nodes[1].stop()  # in order: the archive is written at the end
