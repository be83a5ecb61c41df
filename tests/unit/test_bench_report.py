"""The benchmark report: what it makes of measurements, and when it says no."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.benchmarks.comparisons import COMPARISONS
from tests.benchmarks.report import (
    Bound,
    Comparison,
    Measurement,
    Round,
    Verdict,
    as_json,
    compare,
    exit_status,
    table,
)

FASTER = Comparison(key="fast", what="work : theirs", ours="us", peer="them", bound=Bound.AT_LEAST, floor=10)
CHEAPER = Comparison(key="cheap", what="cost", ours="us", peer="them", bound=Bound.AT_MOST, floor=1.8)


def measured(ours: float | None, peer: float | None) -> Round:
    """One round in which each side did so much a second."""
    rates = {"us": ours, "them": peer}
    return {name: Measurement(name=name, count=100, seconds=100 / rate) for name, rate in rates.items() if rate}


def test_ratio_is_the_median_of_the_rounds() -> None:
    """A round in which the machine was slow for one side does not decide."""
    outcome = compare(FASTER, [measured(120, 10), measured(110, 10), measured(20, 10)], {})
    assert outcome.ratio == pytest.approx(11)
    assert outcome.ours == pytest.approx(110)
    assert outcome.peer == pytest.approx(10)
    assert outcome.verdict is Verdict.OK
    assert exit_status([outcome]) == 0


def test_ratios_pair_the_sides_of_one_round() -> None:
    """A machine that is ten times slower in one round gives the same ratio in that round."""
    outcome = compare(FASTER, [measured(120, 10), measured(12, 1)], {})
    assert list(outcome.ratios) == pytest.approx([12, 12])


def test_our_starts_count_where_the_peers_do() -> None:
    """DBOS takes work by starting it, within its clock; ours is stopped at a backlog that was started before."""
    rounds = [measured(100, 10)]
    rounds[0] = {**rounds[0], "us": replace(rounds[0]["us"], notes={"start_seconds": 3.0})}  # 1 s of work after them
    outcome = compare(FASTER.with_starts(), rounds, {})
    assert outcome.ours == pytest.approx(25) and outcome.ratio == pytest.approx(2.5)
    assert outcome.comparison.key == "fast-starts" and outcome.comparison.what == "work, with our starts : theirs"
    assert compare(FASTER, rounds, {}).ratio == pytest.approx(10), "and the row beside it stays what it was"
    theirs = [one for one in COMPARISONS if one.peer.startswith("dbos.") and one.bound is Bound.AT_LEAST]
    counted, alone = ({(one.ours, one.peer) for one in theirs if one.starts is it} for it in (True, False))
    assert counted == alone and len(alone) == 9, "each rate of theirs has both rows"


def test_rate_below_its_floor_is_missed_and_named() -> None:
    """The exit status says no, and the text says which floor and by how much."""
    outcomes = [compare(FASTER, [measured(99, 10)], {}), compare(CHEAPER, [measured(10, 10)], {})]
    assert [one.verdict for one in outcomes] == [Verdict.MISSED, Verdict.OK]
    assert exit_status(outcomes) == 1
    assert "MISSED fast: 9.90x, wanted at least 10x" in table(outcomes)


@pytest.mark.parametrize(("ours", "verdict"), [(100, Verdict.OK), (50, Verdict.MISSED)])
def test_upper_bound_compares_times(ours: float, verdict: Verdict) -> None:
    """Half as many transactions a second is twice the time: more than 1.8."""
    outcome = compare(CHEAPER, [measured(ours, 100)], {})
    assert outcome.ratio == pytest.approx(100 / ours)
    assert outcome.verdict is verdict


@pytest.mark.parametrize("rounds", [[], [measured(10, None)], [measured(10, 1), measured(None, 1)]])
def test_missing_side_is_not_run(rounds: list[Round]) -> None:
    """A figure that one round lacks is never made up from the others: not run, with the reason."""
    outcome = compare(FASTER, rounds, {"them": "no such package", "us": "exit status 1"})
    assert outcome.verdict is Verdict.NOT_RUN
    assert outcome.ratio is None
    assert exit_status([outcome, compare(FASTER, [measured(1, 10)], {})]) == 2, "unknown outweighs missed"
    assert "NOT RUN fast: " in table([outcome])
    assert outcome.problem.endswith(("no such package", "exit status 1"))


def test_nothing_compared_is_no_success() -> None:
    """An empty run must not look like a passed one."""
    assert exit_status([]) == 2


def test_line_survives_the_pipe() -> None:
    """What a script prints is what the command reads, notes included."""
    sent = Measurement(name="us", count=3, seconds=1.5, notes={"celery": "5.7.0"})
    got = Measurement.from_line(sent.line())
    assert got == sent
    assert json.loads(sent.line())["per_second"] == 2


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"name": "us", "count": 3}',
        '{"name": "us", "count": 0, "seconds": 1}',
        '{"name": "us", "count": 3, "seconds": 0}',
        '{"name": "us", "count": 3, "seconds": NaN}',
        '{"name": "us", "count": null, "seconds": 1}',
    ],
)
def test_line_that_is_no_measurement_is_refused(line: str) -> None:
    """Nothing done, no time or no number: an error, never a ratio."""
    with pytest.raises(ValueError):  # noqa: PT011  # json's own error is one too
        Measurement.from_line(line)


def test_json_holds_every_measurement() -> None:
    """The file has the ratios by key and each single figure behind them, and can be written as JSON."""
    rounds = [measured(100, 10), measured(200, 10)]
    data = json.loads(json.dumps(as_json([compare(FASTER, rounds, {})], rounds, {"python": "3.11"})))
    assert data["ratios"]["fast"]["ratios"] == pytest.approx([10, 20])
    assert data["ratios"]["fast"]["verdict"] == "ok"
    assert [len(one) for one in data["rounds"]] == [2, 2]
    assert data["about"] == {"python": "3.11"}
