"""tools/monitoring: dashboard and alerts name metrics that exist, and work with a real Prometheus and Apache Kafka."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

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


FIRES = {
    "SenderMissing": {"shmaccum_sender_up": "0x99", 'shmaccum_oldest_record_age_seconds{topic="t"}': "11+5x99"},
    "SenderStopped": {"shmaccum_sender_stopped": "1x99"},
    "BrokerUnreachable": {'shmaccum_lasting_errors{error="NetworkError"}': "1x99"},
    "RecordsOld": {'shmaccum_oldest_record_age_seconds{topic="t"}': "31x99"},
    "RecordsFailed": {'shmaccum_records_failed_total{topic="t"}': "0+1x99"},
    "SendsRefused": {'shmaccum_sends_refused_total{topic="t",reason="topic"}': "0+1x99"},
    "RecordsLost": {"shmaccum_records_lost_total": "0+1x99"},
    "MemoryNearlyFull": {"shmaccum_buffer_available_bytes": "9x99", "shmaccum_buffer_total_bytes": "100x99"},
    "ProducersWait": {"shmaccum_memory_wait_seconds_sum": "0+40x99"},
    "BufferExhausted": {"shmaccum_buffer_exhausted_total": "0+1x99"},
    "Retries": {
        'shmaccum_batches_retried_total{topic="t"}': "0+6x99",
        'shmaccum_batches_sent_total{topic="t"}': "0+100x99",
    },
    "BrokerSlow": {
        'shmaccum_request_latency_seconds_bucket{broker="1",le="1.048576"}': "0+90x99",
        'shmaccum_request_latency_seconds_bucket{broker="1",le="2.097152"}': "0+100x99",
        'shmaccum_request_latency_seconds_bucket{broker="1",le="+Inf"}': "0+100x99",
    },
    "Throttled": {'shmaccum_broker_throttle_seconds_total{broker="1"}': "0+10x99"},
    "NoLeader": {'shmaccum_partitions_without_leader{topic="t"}': "1x99"},
    "SenderRestarts": {"shmaccum_sender_starts_total": "0+1x99"},
    "ProcessesKilled": {"shmaccum_lock_takeovers_total": "0+1x99"},
    "TableNearlyFull": {
        'shmaccum_table_entries{table="topics"}': "95x99",
        'shmaccum_table_limit{table="topics"}': "100x99",
    },
    "SlabUnreadable": {'shmaccum_unreadable_slabs{error="SlabDamagedError"}': "1x99"},
    "ExporterDown": {'up{job="shmaccum"}': "0x99"},
}
"""For each alert, series by minutes that raise it within half an hour."""
RESTS = {
    "shmaccum_sender_up": "0x99",  # without records
    "shmaccum_sender_stopped": "0x99",
    'shmaccum_lasting_errors{error="NetworkError"}': "0x99",
    'shmaccum_oldest_record_age_seconds{topic="t"}': "0x99",
    'shmaccum_records_failed_total{topic="t"}': "7x99",
    "shmaccum_buffer_available_bytes": "90x99",
    "shmaccum_buffer_total_bytes": "100x99",
    'shmaccum_batches_retried_total{topic="t"}': "0+1x99",
    'shmaccum_batches_sent_total{topic="t"}': "0+100x99",
    "shmaccum_sender_starts_total": "4x99",
    'shmaccum_unreadable_slabs{error="SlabPermissionError"}': "1x99",
    'up{job="shmaccum"}': "1x99",
}


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
    assert FIRES.keys() == {alert["alert"].removeprefix("Shmaccum") for alert in ALERTS}
    tests = [rule_test(RESTS, "count(ALERTS)", None)]
    for alert in ALERTS:
        fires = f'count(ALERTS{{alertname="{alert["alert"]}",alertstate="firing"}})'
        tests.append(rule_test(FIRES[alert["alert"].removeprefix("Shmaccum")], fires, 1))
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
