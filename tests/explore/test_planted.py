"""The explorer finds bugs of many kinds, says where, and says nothing about the same sagas mended."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from sagas import Saga
from sagas.engine import SagaRun
from sagas.testing import Exploration, explore
from tests.explore import planted
from tests.explore.bank import world
from tests.explore.right import ORDER

pytestmark = pytest.mark.django_db


class Pair(NamedTuple):
    """A bug, the saga without it, and what the shortest story has to say."""

    bug: type[Saga[Any]]
    mended: type[Saga[Any]]
    words: tuple[str, ...]


PAIRS = [
    Pair(planted.FeeForgotten, planted.FeeReturned, ("refund('ch_1') ran", "paid back 10.00 of 12.50")),
    Pair(planted.UndoneTwice, planted.UndoneOnce, ("refund('ch_1') ran", "-10.00 was kept")),
    Pair(planted.KeyIgnored, planted.KeySent, ("charge ran and returned 'ch_2'",)),
    Pair(planted.Denied, planted.Admitted, ("find_charge was asked and said NOT_DONE",)),
    Pair(planted.UnknownUnheard, planted.UnknownVoided, ("refund(UNKNOWN) raised AttributeError", "parked")),
    Pair(planted.UnknownIgnored, planted.UnknownVoided, ("refund(UNKNOWN) ran", "10.00 was kept")),
    Pair(planted.Remembered, planted.KeySent, ("what the worker had in its memory is gone: last_payment",)),
    Pair(planted.Cached, planted.KeySent, ("what the worker had in its memory is gone: payments",)),
    Pair(
        planted.RefusedAfter,
        planted.KeySent,
        ("which happened; its answer was lost", "charge refused: the"),
    ),
    Pair(planted.Reserved, planted.ReservedOwn, ("release(", "somebody else")),
    Pair(planted.OrderMatters, planted.OrderFree, ("release(", "raised NoResult")),
    Pair(planted.TakenAway, planted.OrderFree, ("refund('ch_1') ran", "10.00 was kept")),
    Pair(planted.NotSoLocal, planted.KeySent, ("what it wrote was rolled back", "charge ran and returned 'ch_2'")),
    Pair(
        planted.HalfDone,
        planted.WhollyDone,
        ("called Bank.charge(), which happened", "0 parcels"),
    ),
    Pair(planted.BorrowedResult, planted.SideBySide, ("reserve raised NoResult",)),
    Pair(planted.OnlyTogether, planted.SideBySide, ("reserve refused", "refund(UNKNOWN) ran", "10.00 was kept")),
]


def in_order(run: SagaRun) -> None:
    """Everything or nothing, and somebody else's reservation is where it was."""
    done = run.status == "completed"
    kept = world.bank.kept
    assert "somebody else" in world.reserved, "the reservation of somebody else is gone"
    assert len(world.shipped) == done, f"{len(world.shipped)} parcels"
    if not done:
        assert kept == 0, f"{kept} was kept"
        assert len(world.reserved) == 1, "goods are still put aside"
        return
    assert len(world.bank.payments) <= 1, f"{kept} was taken"
    if run.name.startswith("explore.half"):
        assert world.mails, "nobody was told"


def explored(saga: type[Saga[Any]], *, stop_after: int | None = None) -> Exploration:
    """All stories of a saga, or those up to the n-th that fails."""
    return explore(saga, ORDER, invariant=in_order, reset=world.reset, raises=False, stop_after=stop_after)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.bug.__name__)
def test_a_bug_is_found(pair: Pair) -> None:
    """In a story that names what went wrong and where."""
    found = explored(pair.bug, stop_after=1)
    assert found.failures, found
    missing = [words for words in pair.words if words not in str(found)]
    assert not missing, found


@pytest.mark.parametrize("saga", sorted({pair.mended for pair in PAIRS}, key=str), ids=lambda saga: saga.__name__)
def test_the_mended_saga_passes(saga: type[Saga[Any]]) -> None:
    """No false alarm."""
    found = explored(saga)
    assert not found.failures, found
    assert len(found.stories) > 15 and not found.left_out
