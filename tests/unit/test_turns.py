"""One claim is divided among queues: those with much share it, nobody is forgotten, no more is asked for than fits."""

from __future__ import annotations

from sagas_outbox.claims import Ask, Lane, Room
from sagas_outbox.turns import Turns

QUEUES = [f"q{number}" for number in range(5)]


def claim(turns: Turns, rows: int, due: dict[str, int]) -> dict[str, int]:
    """Claim so many rows, where so many are due; returns what each queue gave."""
    asked = turns.share(QUEUES, rows)
    rooms = [
        Room(queue, room, asks=[Ask(Lane(queue, 0, 1), room, found=min(room, due.get(queue, 0)))])
        for queue, room in asked
    ]
    turns.note(rooms)
    given = {room.queue: room.asks[0].found for room in rooms if room.asks[0].found}
    for queue, found in given.items():
        due[queue] -= found
    return given


def test_a_queue_alone_is_asked_for_everything() -> None:
    """From the second claim on: by then the others are known to have nothing."""
    turns, due = Turns(), {"q3": 1000}
    assert claim(turns, 100, due) == {"q3": 20}
    assert claim(turns, 100, due) == {"q3": 100}


def test_queues_with_much_share() -> None:
    """Evenly, and in all no more than was asked for, but for what the others may have."""
    turns, due = Turns(), {"q1": 1000, "q2": 1000, "q4": 3}
    claim(turns, 100, due)
    assert claim(turns, 100, due) == {"q1": 50, "q2": 50}


def test_more_queues_than_rows_take_turns() -> None:
    """The one that was served longest ago goes first, so that each has its turn."""
    turns, due = Turns(), dict.fromkeys(QUEUES, 100)
    claim(turns, 5, due)
    served = [queue for _ in range(5) for queue in claim(turns, 1, due)]
    assert sorted(served) == QUEUES


def test_a_queue_that_was_empty_is_served_at_once() -> None:
    """However much the others have."""
    turns, due = Turns(), {"q1": 1000}
    for _ in range(5):
        claim(turns, 10, due)
    due["q0"] = 1
    assert claim(turns, 10, due)["q0"] == 1


def test_nothing_is_asked_where_there_is_no_place() -> None:
    """Not even one row of each queue."""
    assert Turns().share(["a", "b"], 0) == []
