"""Metrics: read from Postgres, stable names, counters that only grow; dashboards and alerts name what there is."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.db import connection
from django.test import RequestFactory

from sagas import Overlap, Refused
from sagas.embedded import Embedded
from sagas.events import Entry, Kind
from sagas.exporter import Collector, serve, text
from sagas.metric_list import METRICS
from sagas.retention import Old, prune
from sagas.schedules import firing, table
from sagas.settings import Settings
from sagas.states import State, Status
from sagas.tally import FIRST, SAVE_EVERY, Tally
from sagas_django.metrics import _collectors, metrics_view
from sagas_django.store import DjangoStore
from sagas_outbox.queries import query
from tests.benchmarks.filling import fill_finished
from tests.docs.reading import blocks
from tests.shop.sagas import Asked, Charge, Externals, Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.schedules import Raises, declared
from tests.support.stories import begin, begin_many, drain, expire_leases

pytestmark = pytest.mark.usefixtures("shop")

DOCS = Path(__file__).parents[2] / "docs"
LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Measures anew each time it is asked."""
    found = Collector(DjangoStore("default"))
    yield found
    found.close()


def scrape(collector: Collector) -> dict[tuple[str, str], float]:
    """Metrics by name and labels, as Prometheus reads them."""
    collector._fresh_until = 0.0
    return {(name, labels): float(value) for name, labels, value in LINE.findall(text(collector).decode())}


def sql(statement: str) -> None:
    """One statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_what_happened_is_counted(collector: Collector, world: World) -> None:
    """Starts, ends by how, failures, retries, compensations, unknown outcomes, repairs: each where it happened."""
    world.plan("book", OSError("once"), saga="undone")
    world.plan("charge", Refused("no"), saga="undone")
    begin(Trip, "undone")
    begin(Trip, "done")
    begin(Reviewed, "signalled")
    drain()
    Reviewed.review.send(Review(ok=True), key="signalled", actor="ann", reason="looked at")
    drain()
    world.plan("charge", OSError("lost"), Refused("no"), saga="parked")
    begin(Charge, "parked")
    drain()
    begin(Externals, "new")
    found = scrape(collector)

    def value(name: str, labels: str) -> float:
        return found[f"sagas_{name}", labels]

    assert value("started_total", 'name="test.trip"') == 2
    assert value("started_total", 'name="test.externals"') == 1  # though nothing is recorded of it yet
    assert value("ended_total", 'name="test.trip",status="completed"') == 1
    assert value("ended_total", 'name="test.trip",status="compensated"') == 1
    assert value("compensating_total", 'name="test.trip"') == 1
    assert value("steps_done_total", 'name="test.trip",step="book"') == 2
    assert value("step_failures_total", 'name="test.trip",step="book"') == 1
    assert value("step_retries_total", 'name="test.trip",step="book"') == 1
    assert value("undos_done_total", 'name="test.trip",step="book"') == 1
    assert value("unknown_outcomes_total", 'name="test.charge",step="charge"') >= 1
    assert value("parked_total", 'name="test.charge"') == 1
    assert value("parked_now", 'name="test.charge"') == 1
    assert value("manual_repairs_total", 'name="test.reviewed"') == 1
    assert value("open", 'name="test.externals",status="running"') == 1
    assert value("queue_due", 'queue="default"') == 1
    assert value("step_seconds_count", 'direction="do",name="test.trip",step="charge"') == 2
    assert value("step_seconds_bucket", 'direction="do",le="+Inf",name="test.trip",step="charge"') == 2
    assert value("step_seconds_sum", 'direction="do",name="test.trip",step="charge"') > 0


def test_counters_begin_at_zero(collector: Collector) -> None:
    """The first late answer of a step is an increase, which an alert sees."""
    found = scrape(collector)
    assert found["sagas_late_answers_total", 'name="test.trip",step="book"'] == 0
    assert found["sagas_started_total", 'name="test.trip"'] == 0
    assert found["sagas_ended_total", 'name="test.trip",status="compensated"'] == 0


def test_messages_are_measured(collector: Collector) -> None:
    """By destination: those that wait, for how long, and those that were given up; not those that are sent."""
    sql("insert into sagas_message (message_id, destination, state, payload, due_at, finished_at)"
        " select gen_random_uuid(), 'shop.pay', state, '{}', now() - interval '90 s',"
        " case when state <> 'waiting' then now() end from unnest('{waiting,dead,sent}'::text[]) state")  # fmt: skip
    try:
        found = scrape(collector)
    finally:
        sql("delete from sagas_message")
    assert found["sagas_messages_waiting", 'destination="shop.pay"'] == 1
    assert found["sagas_messages_dead", 'destination="shop.pay"'] == 1
    assert 90 <= found["sagas_messages_oldest_seconds", 'destination="shop.pay"'] < 120


def test_claims_and_dedupe_are_counted(collector: Collector, world: World) -> None:
    """Work taken over from a worker that died, and answers that the dedupe table had."""
    saga = begin(Asked, "expired")
    sql(f"update sagas_outbox set deliveries = 1, holder = 'worker:gone', first_begun_at = clock_timestamp()"
        f" where saga_id = '{saga.id}'")  # fmt: skip
    sql(f"insert into sagas_dedupe (key, saga_id, state, response) values"
        f" ('{saga.id}:charge:do:0', '{saga.id}', 'done', '\"paid\"')")  # fmt: skip
    expire_leases()
    drain()
    found = scrape(collector)
    assert found["sagas_claim_expiries_total", 'name="test.asked",step="charge"'] == 1
    assert found["sagas_dedupe_hits_total", 'name="test.asked",step="charge"'] == 1


def test_a_schedule_that_nobody_looks_at_is_late(collector: Collector) -> None:
    """By how much says a gauge of its own; a paused one is not late."""
    assert scrape(collector)["sagas_scheduler_lag_seconds", ""] == 0
    with declared(cron="0 6 1 1 *"):
        call_command("sagas", "declare-schedules", skip_checks=True)
    sql("update sagas_schedule set next_at = now() - interval '90 seconds', look_at = now() - interval '90 seconds'")
    assert 90 <= scrape(collector)["sagas_scheduler_lag_seconds", ""] < 3600
    sql("update sagas_schedule set paused = true")
    assert scrape(collector)["sagas_scheduler_lag_seconds", ""] == 0


def test_a_schedule_that_fails_is_late(collector: Collector, world: World) -> None:
    """Though a relay looks at it again and again; one that waits for its last run is not, nor when that has ended."""
    an_hour_ago = "update sagas_schedule set next_at = now() - interval '1 hour', look_at = now()"
    fails = Raises()
    with closing(DjangoStore("default").connect()) as wire, declared(input=fails, overlap=Overlap.QUEUE) as schedule:
        table.declare(wire, schedule)
        sql(an_hour_ago)
        fails.error = LookupError("no such table")
        firing.fire_due(wire, Settings(wake=False), [schedule])
        assert 3600 <= scrape(collector)["sagas_scheduler_lag_seconds", ""] < 3700
        fails.error = None
        firing.run_now(wire, Settings(wake=False), schedule.name, reason="needed")
        sql(an_hour_ago)
        firing.fire_due(wire, Settings(wake=False), [schedule])
        assert scrape(collector)["sagas_scheduler_lag_seconds", ""] == 0
        drain()
        assert scrape(collector)["sagas_scheduler_lag_seconds", ""] < 60


def test_counters_only_grow_whatever_is_pruned(collector: Collector, world: World) -> None:
    """What has ended and was removed still counts."""
    begin_many(Externals, [f"m-{number}" for number in range(5)])
    drain()
    before = scrape(collector)
    sql("update sagas_saga set finished_at = finished_at - interval '1 year'")
    with DjangoStore("default").connect() as raw:
        assert sum(prune(raw, Old(age=3600.0, archive=False))) == 5
    begin(Externals, "one more")
    drain()
    after = scrape(collector)
    name = "sagas_ended_total", 'name="test.externals",status="completed"'
    assert before[name] == 5 and after[name] == 6
    counters = [key for key in before if key[0].endswith(("_total", "_count", "_sum", "_bucket"))]
    assert counters and all(after[key] >= before[key] for key in counters)


def test_workers_write_what_they_count_while_they_run(collector: Collector, world: World) -> None:
    """A worker that goes on and on is not waited for: what it has counted is there about a second later."""
    import threading

    worker = Embedded(DjangoStore("default"), concurrency=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        begin(Externals, "running")
        until, found = time.monotonic() + 30 * SAVE_EVERY, 0.0
        while not found and time.monotonic() < until:
            found = scrape(collector).get(("sagas_ended_total", 'name="test.externals",status="completed"'), 0.0)
            thread.join(0.1)
        assert found == 1
    finally:
        worker.stop()
        thread.join(20)


def test_what_cannot_be_written_now_is_written_later() -> None:
    """A counter that somebody has locked costs the worker a moment, and nothing is lost."""
    tally = Tally()
    tally.add("n", "s", "w", 2)
    tally.body(("n", "s", "do"), 0.5)
    with DjangoStore("default").connect() as raw, DjangoStore("default").connect() as other:
        with other.transaction():
            other.execute("lock table sagas_tally in exclusive mode")
            tally.save(raw)
        tally.add("n", "s", "w")
        tally.save(raw)
        found = raw.execute("select what, count, seconds from sagas_tally order by what").fetchall()
    assert found == [("body:do", 1, 0.5), ("up_to:do:1", 1, 0.0), ("w", 3, 0.0)]


def test_a_row_that_is_only_put_off_starts_nothing() -> None:
    """A decision without entries is no first entry: its saga is counted as started when one is recorded."""
    tally = Tally()
    tally.recorded([("n", State(Status.RUNNING, 0), ())])
    assert tally._counts == {}
    tally.recorded([("n", State(Status.RUNNING, 0), (Entry(1, Kind.STEP_DONE, "s", 1),))])
    assert dict(tally._counts) == {("n", "s", "step_done"): 1, ("n", "", FIRST): 1}


def test_a_counter_never_goes_down_between_two_scrapes(collector: Collector) -> None:
    """A saga whose first entry is recorded is counted a moment later by its worker; it does not vanish meanwhile."""
    begin(Trip, "a")
    name = "sagas_started_total", 'name="test.trip"'
    assert scrape(collector)[name] == 1
    sql("update sagas_saga set seq = 1")
    assert scrape(collector)[name] == 1


def test_counters_go_back_with_the_database(collector: Collector, world: World) -> None:
    """After a restore none stands still until it has caught up: Prometheus takes a lower one for a new beginning."""
    begin(Trip, "a")
    drain()
    sql("create temporary table before as table sagas_tally")
    begin(Trip, "b")
    drain()
    started = "sagas_started_total", 'name="test.trip"'
    ended = "sagas_ended_total", 'name="test.trip",status="completed"'
    assert (scrape(collector)[started], scrape(collector)[ended]) == (2, 2)
    sql("delete from sagas_tally; insert into sagas_tally table before; drop table before")
    assert (scrape(collector)[started], scrape(collector)[ended]) == (1, 1)
    begin(Trip, "c")
    drain()
    assert (scrape(collector)[started], scrape(collector)[ended]) == (2, 2)


def test_prometheus_is_answered(world: World) -> None:
    """Over HTTP, each metric of the list with its type; a measurement is used again while it is fresh."""
    begin(Trip, "a")
    drain()
    port, stop = serve(DjangoStore("default"), port=0, address="127.0.0.1")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            page = answer.read().decode()
    finally:
        stop()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    for metric in METRICS:
        assert types[metric.shown] == metric.kind, metric.name


def test_a_view_answers_too() -> None:
    """Projects may let their web processes be scraped."""
    begin(Trip, "a")
    answer = metrics_view(RequestFactory().get("/metrics"))
    try:
        assert answer.status_code == 200 and 'sagas_started_total{name="test.trip"} 1.0' in answer.content.decode()
    finally:
        _collectors.pop("default").close()


def test_a_scrape_reads_no_finished_saga() -> None:
    """What it costs grows with what is open, not with what has ever been: nothing scans sagas or logs whole."""
    begin_many(Trip, "abc")
    with closing(DjangoStore("default").connect()) as store:
        fill_finished(store, Externals, 20_000)
        row = store.execute(
            "explain (analyze, buffers, format json) " + query("sagas.store", "measure_open")
        ).fetchone()
    assert row is not None
    found = row[0][0]["Plan"]
    assert "sagas_saga_open" in json.dumps(found) and "Seq Scan" not in json.dumps(found)
    assert found["Shared Hit Blocks"] + found["Shared Read Blocks"] < 50, found


def test_the_page_lists_every_metric() -> None:
    """docs/metrics.md has each metric with its type, labels and meaning, and no other."""
    rows = re.findall(
        r"^\| `(sagas_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE
    )
    assert {(name, kind, labels.replace("`", "")) for name, kind, labels, _ in rows} == {
        (metric.shown, metric.kind, ", ".join(metric.labels)) for metric in METRICS
    }


def test_the_endpoint_of_the_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/metrics.md puts into a FastAPI application answers as the process does."""
    runtime = SimpleNamespace(store=DjangoStore("default"))
    monkeypatch.setitem(sys.modules, "shop.db", SimpleNamespace(sagas=runtime))
    (code,) = [block.text for block in blocks(DOCS / "metrics.md") if "APIRouter" in block.text]
    names: dict[str, Any] = {}
    exec(compile(code, "metrics.md", "exec", dont_inherit=True), names)
    begin(Trip, "a")
    with closing(names["collector"]):
        answer = names["metrics"]()
    assert ("sagas_started_total", 'name="test.trip"', "1.0") in LINE.findall(answer.body.decode())
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [route.path for route in names["router"].routes] == ["/internal/metrics"]


def named(expressions: list[str]) -> set[str]:
    """The metrics that queries name."""
    return {name for each in expressions for name in re.findall(r"\bsagas_\w+", each)}


def existing() -> set[str]:
    """Every name that a query may use."""
    found = {metric.shown for metric in METRICS}
    return found | {f"{each}_{part}" for each in found for part in ("bucket", "sum", "count")}


def test_dashboard_names_only_metrics_that_exist() -> None:
    """The Grafana dashboard can be read, and shows each panel something."""
    board: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(targets) >= 10 and all(named([each]) for each in targets)
    assert named(targets) <= existing()


def test_alerts_name_only_metrics_that_exist() -> None:
    """The alert rules can be read; each has a summary that says what to do."""
    groups = yaml.safe_load((DOCS / "prometheus-alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 6
    for rule in rules:
        assert named([rule["expr"]]) and named([rule["expr"]]) <= existing()
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_stats_and_top(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers on the command line; `top` says them again and again, with rates."""
    begin(Trip, "a")
    drain()
    begin(Reviewed, "b")
    call_command("sagas", "stats")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "attention 0 stuck, 0 parked, 0 paused"
    assert any(re.match(r"test\.trip +- +0 +1 +1 completed$", line) for line in lines), lines
    assert any(re.match(r"default +1 +0 +0 +0 +0 ", line) for line in lines), lines
    call_command("sagas", "stats", "--json")
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["sagas_ended_total"] == [{"name": "test.trip", "status": "completed", "value": 1}]
    call_command("sagas", "top", "--interval", "0.1", "--count", "2")
    assert "0.0 started" in capsys.readouterr().out
    call_command("sagas", "top", "--interval", "0.1", "--count", "2", "--json")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["rates"] == {} and second["rates"]["started"] == 0
