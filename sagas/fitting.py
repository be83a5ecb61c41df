"""Whether this process's types can read what is stored of a saga.

A field that was renamed, or added without a default, belongs to a new version, like a step. Where that was forgotten,
the code is wrong and not the saga: it is parked before a body runs, with no attempt counted and nothing undone.
"""

from __future__ import annotations

from sagas.duty import SagaClass, steps_of
from sagas.errors import Misfit
from sagas.reader import History, Reader
from sagas.states import State


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
