"""tools/monitoring: dashboard and alerts name metrics that exist, and work with a real Prometheus and Apache Kafka."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind
from tools.monitoring.__main__ import EXPECTED, main
from tools.monitoring.files import DASHBOARD, DOCUMENTS, RULES, alerts, filled, panels
from tools.monitoring.prometheus import PrometheusMissingError, ensure_prometheus, promtool

PANELS, ALERTS = panels(), alerts()
SUFFIXES = {Kind.COUNTER: ("_total",), Kind.GAUGE: ("",), Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}
SERIES = {
    f"{metric.name}{suffix}"
    for metric in (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER)
    for suffix in SUFFIXES[metric.kind]
}


@pytest.fixture
def prometheus() -> None:
    """Have Prometheus here, or skip the test and say why."""
    try:
        ensure_prometheus()
    except PrometheusMissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI needs Prometheus: {missing}")
        pytest.skip(f"no Prometheus: {missing}")


@pytest.mark.timeout(240)
def test_a_real_prometheus_sees_an_outage(
    prometheus: None, apache_kafka: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--pace", "0.5"]) == 0
    said = capfd.readouterr().out
    queries = sum(len(each) for _, each in PANELS)
    assert f"{queries} queries of {len(PANELS)} panels returned data; {len(ALERTS)} rules" in said
    assert all(name in said for name in EXPECTED)


def test_promtool_refuses_wrong_rules(prometheus: None, tmp_path: Path) -> None:
    (tmp_path / "wrong.yml").write_text(RULES.read_text().replace("shmaccum_sender_up ==", "shmaccum_sender_up =", 1))
    with pytest.raises(ValueError, match="promtool check rules"):
        promtool("check", "rules", str(tmp_path / "wrong.yml"))


SERIES_OF = yaml.safe_load(Path(__file__).with_name("alerts.yml").read_text())


def rule_test(series: dict[str, str], expr: str, value: float | None) -> dict[str, object]:
    """Return a test of promtool's: after half an hour, the value of an expression."""
    labelled = {
        name
        if name.startswith("up")
        else name.replace("{", '{slab="s",')
        if "{" in name
        else f'{name}{{slab="s"}}': values
        for name, values in series.items()
    }
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in labelled.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "30m", "exp_samples": samples}],
    }


def test_each_alert_fires_and_none_at_rest(prometheus: None, tmp_path: Path) -> None:
    assert SERIES_OF["fires"].keys() == {alert["alert"].removeprefix("Shmaccum") for alert in ALERTS}
    tests = [rule_test(SERIES_OF["rests"], "count(ALERTS)", None)]
    for alert in ALERTS:
        fires = f'count(ALERTS{{alertname="{alert["alert"]}",alertstate="firing"}})'
        tests.append(rule_test(SERIES_OF["fires"][alert["alert"].removeprefix("Shmaccum")], fires, 1))
    file = tmp_path / "test.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def test_panels_and_alerts_use_metrics_that_exist() -> None:
    """A real Prometheus has data for every panel, but series of tests for alerts."""
    runbook = (DOCUMENTS / "alerts.md").read_text()
    for alert in ALERTS:
        assert set(re.findall(r"shmaccum_\w+", alert["expr"])) <= SERIES
        assert alert["severity"] in ("page", "ticket")
        assert alert["runbook"] == f"docs/monitoring/alerts.md#{alert['alert'].lower()}"
        assert all(alert[text] for text in ("summary", "means", "look_at", "do"))
        assert alert["expr"] in runbook
    for expr in (expr for _, queries in PANELS for expr in queries):
        assert set(re.findall(r"shmaccum_\w+", expr)) <= SERIES
        assert "$" not in filled(expr, "4s")


def test_the_dashboard_fits_grafanas_grid() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(PANELS)
    assert all(place["x"] + place["w"] <= 24 for place in places)
