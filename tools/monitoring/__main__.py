"""Shows that dashboard and alerts work: a real Prometheus scrapes a real slab, while a broker dies and comes back.

Every query of the dashboard must return data, every rule must be evaluated without an error, and some alerts must fire.
``--write`` draws what Prometheus has stored, for the documents.
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
from tools.monitoring import pictures
from tools.monitoring.files import DOCUMENTS, RULES, alerts, filled, panels
from tools.monitoring.pictures import Curve, Plot
from tools.monitoring.prometheus import PrometheusMissingError, ensure_prometheus, promtool
from tools.monitoring.scene import Scene, scene

_INTERVAL: Final = "4s"
"""Of rates: four scrapes, as Grafana chooses."""
EXPECTED: Final = ("ShmaccumBrokerUnreachable", "ShmaccumSenderStopped", "ShmaccumRecordsFailed")
"""Alerts that this trouble must raise."""


def check(played: Scene) -> tuple[list[Plot], dict[str, dict[str, list[float]]]]:
    """Return the data of every panel, and the times of every alert.

    Raises:
        ValueError: a query has no data, a rule failed, or an expected alert did not fire.
    """
    plots = []
    for panel in panels():
        curves = []
        for legend, expr in panel.queries.items():
            found = played.prometheus.series(filled(expr, _INTERVAL), played.begin, played.end)
            if not found:
                raise ValueError(f"the query of panel {panel.title!r} returns no data: {expr}")
            curves += [Curve(pictures.legend(legend, labels), points) for labels, points in found]
        plots.append(Plot(panel.title, panel.unit, curves))
    loaded = [rule for group in played.prometheus.get("rules")["groups"] for rule in group["rules"]]
    wrong = [(rule["name"], rule.get("lastError")) for rule in loaded if rule["health"] != "ok"]
    if wrong or len(loaded) != len(alerts()):
        raise ValueError(f"{len(loaded)} rules of {len(alerts())} are loaded, these fail: {wrong}")
    times: dict[str, dict[str, list[float]]] = {alert["alert"]: {} for alert in alerts()}
    for labels, points in played.prometheus.series("ALERTS", played.begin, played.end):
        times[labels["alertname"]].setdefault(labels["alertstate"], []).extend(at for at, _ in points)
    silent = [name for name in EXPECTED if "firing" not in times[name]]
    if silent:
        raise ValueError(f"these alerts did not fire: {silent}")
    return plots, times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.monitoring", description=__doc__.partition("\n")[0])
    parser.add_argument("--pace", type=float, default=1.0, help="multiplies the time of the phases; 1 takes a minute")
    parser.add_argument("--write", action="store_true", help="draw the pictures of docs/monitoring")
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
            plots, times = check(played)
    if args.write:
        span = (played.begin, played.end)
        (DOCUMENTS / "dashboard.svg").write_text(pictures.panels(plots, *span, played.events))
        (DOCUMENTS / "alerts.svg").write_text(pictures.alerts(times, *span, played.events))
        for name, screen in played.screens.items():
            (DOCUMENTS / f"{name}.svg").write_text(screen)
    queries = sum(len(panel.queries) for panel in panels())
    fired = [name for name, states in times.items() if "firing" in states]
    print(f"{queries} queries of {len(panels())} panels returned data; {len(times)} rules, fired: {', '.join(fired)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
