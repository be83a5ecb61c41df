"""Whether this process's types can read what is stored of a saga.

A field that was renamed, or added without a default, belongs to a new version, like a step. Where that was forgotten,
the code is wrong and not the saga: it waits for code that can read it. No attempt is counted, and nothing is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sagas import machine
from sagas.duty import SagaClass, steps_of
from sagas.errors import Misfit, UnknownSaga
from sagas.payloads import LARGE
from sagas.progress import state_of
from sagas.reader import History, Reader
from sagas.registry import registry
from sagas.states import State
from sagas.store.rows import facts_of
from sagas.why import WaitingSaga

Rows = Callable[[str, dict[str, Any]], Sequence[Any]]  # what a named query of the core finds


def misfit(definition: SagaClass, reader: Reader, history: History, state: State) -> str:
    """What of the input and the results cannot be read by the types declared for them; nothing when all can.

    Large payloads are not looked at: they are read by the bodies that ask for them.

    Args:
        definition: the saga's class.
        reader: reads its payloads.
        history: entries of its log, those that hold the input and results.
        state: where it stands.
    """
    steps = steps_of(definition)
    try:
        if history.get(0) is not None:
            reader.input(history, definition.input_type)
        for name, each in state.steps.items():
            if each.result is not None and history.get(each.result) is not None and name in steps:
                reader.result(history, each.result, steps[name])
    except Misfit as problem:
        return str(problem)
    except Exception:  # a damaged entry, or one that is sealed: the body says so, which must not hold up its neighbours
        return ""
    return ""


def stored_misfit(rows: Rows, saga: WaitingSaga) -> str:
    """The same for a saga that somebody looks at; nothing for one that has ended, or whose definition is not here.

    Args:
        rows: asks the saga's database.
        saga: its row.
    """
    state = state_of(saga)
    if state is None or machine.finished(state):
        return ""
    try:
        definition = registry.get(saga.name, saga.version)
    except UnknownSaga:
        return ""
    seqs = [0, *(each.result for each in state.steps.values() if each.result is not None)]
    found = rows("stored", {"saga": saga.id, "seqs": seqs, "large": LARGE})
    history: dict[int, bytes | None] = {seq: data.encode() for seq, data in found}
    return misfit(definition, Reader(facts_of), history, state)
