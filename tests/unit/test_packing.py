"""How rows are put into messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sagas_outbox.packing import pack, short_first

TARGET = 0.05
WORK = st.one_of(st.none(), st.floats(0, 0.2))


def packed(work: list[float | None], *, alone: set[int] = frozenset(), most: int = 100) -> list[list[int]]:  # type: ignore[assignment]
    """Groups of positions, given what each takes."""
    return pack(
        range(len(work)), work=work.__getitem__, alone=lambda item: item in alone, target=TARGET, most=most
    )  # fmt: skip


def test_items_fill_a_group_up_to_the_target() -> None:
    """About fifty milliseconds of work each, the last one whatever is left."""
    assert [len(group) for group in packed([0.012] * 10)] == [4, 4, 2]


def test_what_nobody_measured_travels_alone() -> None:
    """Its time may be anything; those around it still share."""
    assert packed([0.01, None, 0.01, None]) == [[1], [3], [0, 2]]


def test_what_takes_long_travels_alone() -> None:
    """A body as long as the target does not make a short one wait."""
    assert packed([0.01, 0.05, 0.01]) == [[1], [0, 2]]


def test_what_is_said_to_travel_alone_does() -> None:
    """However short it is."""
    assert packed([0.001] * 3, alone={1}) == [[1], [0, 2]]


def test_a_group_has_at_most_so_many_items() -> None:
    """Also when they take no time at all."""
    assert [len(group) for group in packed([0.0] * 25, most=10)] == [10, 10, 5]


@given(work=st.lists(WORK, max_size=60), most=st.integers(1, 20), data=st.data())
def test_every_item_is_in_one_group_and_no_group_is_too_large(
    work: list[float | None], most: int, data: st.DataObject
) -> None:
    """Whatever the times are."""
    alone = data.draw(st.sets(st.integers(0, len(work)), max_size=5))
    groups = packed(work, alone=alone, most=most)
    assert sorted(item for group in groups for item in group) == list(range(len(work)))
    for group in groups:
        assert group == sorted(group)
        assert 1 <= len(group) <= most
        if len(group) > 1:
            times = [work[item] for item in group]
            assert None not in times and not alone & set(group)
            assert sum(time for time in times if time is not None) <= TARGET + 1e-9


def test_groups_of_short_items_go_first() -> None:
    """Otherwise as they were, so that what is short waits for nothing that is long."""
    work = [0.01, 0.2, 0.3, 0.001]
    groups = short_first([[1], [0, 0], [2], [3]], work=work.__getitem__, target=TARGET)
    assert groups == [[0, 0], [3], [1], [2]]
