"""Shows that dashboard and alerts work: a real Prometheus scrapes a real slab, while a broker dies and comes back.

Every query of the dashboard must return data, every rule must be evaluated without an error, and some alerts must fire.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.kafka import KafkaMissingError, ensure_kafka
from tools.monitoring.files import RULES, alerts, filled, panels
from tools.monitoring.prometheus import PrometheusMissingError, ensure_prometheus, promtool
from tools.monitoring.scene import Scene, scene

_INTERVAL: Final = "4s"
"""Of rates: four scrapes, as Grafana chooses."""
EXPECTED: Final = ("ShmaccumBrokerUnreachable", "ShmaccumSenderStopped", "ShmaccumRecordsFailed")
"""Alerts that this trouble must raise."""


def check(played: Scene) -> list[str]:
    """Return the alerts that fired.

    Raises:
        ValueError: a query has no data, a rule failed, or an expected alert did not fire.
    """
    for title, queries in panels():
        for expr in queries:
            if not played.prometheus.series(filled(expr, _INTERVAL), played.begin, played.end):
                raise ValueError(f"the query of panel {title!r} returns no data: {expr}")
    loaded = [rule for group in played.prometheus.get("rules")["groups"] for rule in group["rules"]]
    wrong = [(rule["name"], rule.get("lastError")) for rule in loaded if rule["health"] != "ok"]
    if wrong or len(loaded) != len(alerts()):
        raise ValueError(f"{len(loaded)} rules of {len(alerts())} are loaded, these fail: {wrong}")
    states = played.prometheus.series('ALERTS{alertstate="firing"}', played.begin, played.end)
    fired = sorted({labels["alertname"] for labels, _ in states})
    if silent := set(EXPECTED) - set(fired):
        raise ValueError(f"these alerts did not fire: {silent}")
    return fired


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.monitoring", description=__doc__.partition("\n")[0])
    parser.add_argument("--pace", type=float, default=1.0, help="multiplies the time of the phases; 1 takes a minute")
    args = parser.parse_args(arguments)
    try:
        ensure_kafka()
        ensure_prometheus()
    except (KafkaMissingError, PrometheusMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    promtool("check", "rules", str(RULES))
    with tempfile.TemporaryDirectory(prefix="shmaccum-monitoring-") as scratch:
        file = Path(scratch, "rules.yml")
        # They fire after a second instead of minutes; nothing else differs.
        file.write_text(re.sub(r"for: [1-9]\d*[sm]\n", "for: 1s\n", RULES.read_text()))
        with scene(Path(scratch), file, args.pace) as played:
            with urllib.request.urlopen(played.exporter, timeout=30) as answer:
                promtool("check", "metrics", given=answer.read())
            fired = check(played)
    queries = sum(len(queries) for _, queries in panels())
    print(
        f"{queries} queries of {len(panels())} panels returned data; {len(alerts())} rules, fired: {', '.join(fired)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
