"""Reading from outside what a step has returned. Like every call it runs on the caller's own connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from sagas import engine, ports
from sagas.errors import NoResult, SagaNotFound
from sagas.ports import Caller, Work
from sagas.registry import registry
from sagas_outbox.queries import query

if TYPE_CHECKING:
    from sagas.step import Step

R = TypeVar("R")
PACKAGE = "sagas.store"


def result_of(step: Step[Any, R], *, key: str | None, id: UUID | None, using: Any) -> R:
    """The result of a step of one saga. See `Step.result_of`."""
    caller = ports.caller(using, call=f"{_name(step)}.result_of")
    return caller.run(_one(caller, step, key, id))


async def aresult_of(step: Step[Any, R], *, key: str | None, id: UUID | None, using: Any) -> R:
    """The result of a step of one saga. See `Step.aresult_of`."""
    caller = ports.caller(using, call=f"{_name(step)}.result_of", asynchronous=True)
    return await caller.arun(_one(caller, step, key, id))


def results_of(step: Step[Any, R], ids: Iterable[UUID], *, using: Any) -> dict[UUID, R]:
    """The results of a step of several sagas. See `Step.results_of`."""
    caller = ports.caller(using, call=f"{_name(step)}.results_of")
    return caller.run(_many(caller, step, ids))


async def aresults_of(step: Step[Any, R], ids: Iterable[UUID], *, using: Any) -> dict[UUID, R]:
    """The results of a step of several sagas. See `Step.aresults_of`."""
    caller = ports.caller(using, call=f"{_name(step)}.results_of", asynchronous=True)
    return await caller.arun(_many(caller, step, ids))


def _one(caller: Caller, step: Step[Any, R], key: str | None, id: UUID | None) -> Work[R]:
    run = yield from engine._finding(caller, None if key is None else _owner(step).saga_name, key, id)
    if run.name not in _names(step):
        raise SagaNotFound(
            f"saga {run.id} on {caller.name} is a {run.name}, not one with {_name(step)}; use the step of its own class"
        )
    found = yield from _many(caller, step, [run.id])
    if run.id not in found:
        stands = (run.steps or {}).get(step.name)
        raise NoResult(
            f"step {step.name!r} of saga {run.name} {run.id} (key {run.key!r}) has no result: it is "
            f"{'pending' if stands is None else stands.status.value!r}, the saga {run.status.value!r}; look at "
            f"`steps` of get() first"
        )
    return found[run.id]


def _many(caller: Caller, step: Step[Any, R], ids: Iterable[UUID]) -> Work[dict[UUID, R]]:
    names, declared, what = _names(step), step.result_type, f"result of step {step.name!r}"
    asked = {"ids": [str(id) for id in ids], "step": step.name}
    text = yield query(PACKAGE, "results_of"), msgspec.json.encode(asked).decode()
    read = caller.settings.payloads.read
    return {
        UUID(id): read(stored, declared, what=f"{what} of saga {id}")
        for id, name, stored in msgspec.json.decode(text or "[]")
        if name in names
    }


def _names(step: Step[Any, Any]) -> set[str]:
    """Of the sagas that have it: several where it is in a base that they share."""
    return {_owner(step).saga_name} | {each.saga_name for each in registry.definitions() if step in each.steps}


def _owner(step: Step[Any, Any]) -> Any:
    step._compiled()  # which says what is wrong with one that belongs to no saga
    return step.owner


def _name(step: Step[Any, Any]) -> str:
    return f"{step.owner.__name__ if step.owner else '?'}.{step.name}"
