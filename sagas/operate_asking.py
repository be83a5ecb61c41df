"""What operators ask of one saga on the command line: only what is possible now, and always with a reason."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sagas import codec, engine
from sagas.actions import expected_signals
from sagas.desk import Desk
from sagas.engine import SagaRun
from sagas.errors import CodecError, InvalidInput, NotPossible
from sagas.operate import find
from sagas.progress import state_of
from sagas.registry import registry
from sagas.step import Step
from sagas.storable import type_label
from sagas.waits import Wait

OUTCOMES: Final = {  # what became of a step, by option
    "done": "mark_done", "not_done": "mark_not_done", "skip": "skip", "compensated": "mark_undone",
}  # fmt: skip


def ask(
    desk: Desk, wanted: str, kind: str, reason: str, *, actor: str = "", step: str = "", result: str | None = None,
    sure: bool = True,
) -> SagaRun:  # fmt: skip
    """Insert a request for a worker to apply.

    Args:
        desk: where.
        wanted: the saga: its id, or name:key.
        kind: of the request.
        reason: why.
        actor: who asks; nothing: the user of this machine.
        step: the step that it is about, where it is about one.
        result: of a step that is marked as done, as JSON.
        sure: whoever asks knows what it means; else they are asked.

    Raises:
        InvalidInput: the result is not of the type of the step; `path` names the field.
        NotPossible: nothing would come of it now; the message says what is possible. Or the saga moved on while the
            person was asked.
        UnknownSaga: this process does not have the saga's definition.
    """
    saga = find(desk, wanted)
    possible = saga.allowed_actions
    meant = next((action for action in possible if (action.name, action.step) == (kind, step or None)), None)
    if meant is None:
        named = [typed(action.name, action.step) for action in possible]
        raise NotPossible(
            f"{typed(kind, step)}: saga {saga.name} {saga.id} (key {saga.key!r}) is {saga.status}, where this changes "
            f"nothing; possible now: {', '.join(named) or 'nothing, it has ended'}"
        )
    value = None if result is None else read_value(step_of(saga, step), result)
    if not sure:
        _confirmed(typed(kind), meant.does)
        if engine.find(None, id=saga.id, using=desk.using).seq != saga.seq:
            raise NotPossible(
                f"{typed(kind, step)}: saga {saga.name} {saga.id} has moved on since you looked at it; nothing was "
                f"asked for: look again, and decide anew"
            )
    return engine.request(
        None, kind, id=saga.id, reason=reason, actor=actor or user(), step=step, result=value, seen=saga.seq,
        using=desk.using,
    )  # fmt: skip


def resolve(desk: Desk, given: Mapping[str, Any]) -> tuple[str, SagaRun]:
    """Say what became of a step over which a saga parked; returns the kind of the request, and the saga.

    Args:
        desk: where.
        given: the arguments of the command.

    Raises:
        InvalidInput: none or several of the outcomes are given.
        NotPossible: nothing would come of it now; the message says what is possible.
    """
    chosen = [kind for name, kind in OUTCOMES.items() if given[name] not in (None, False)]
    if len(chosen) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in OUTCOMES)
        raise InvalidInput(f"resolve: say what became of the step, with one of {options}", path="outcome")
    (kind,) = chosen
    return kind, ask(
        desk, given["saga"], kind, given["reason"], actor=given["actor"] or "", step=given["step"],
        result=given["done"], sure=given["yes"],
    )  # fmt: skip


def typed(kind: str, step: str | None = None) -> str:
    """A request as it is typed: `resolve --done`, and not the name that it goes by in the outbox."""
    option = next((name.replace("_", "-") for name, each in OUTCOMES.items() if each == kind), None)
    verb, rest = (kind, "") if option is None else ("resolve", f" --{option}")
    return f"{verb} {step}{rest}" if step else f"{verb}{rest}"


def step_of(saga: SagaRun, name: str) -> Step[Any, Any]:
    """The step of this name in the definition of a saga.

    Raises:
        UnknownSaga: this process does not have the definition.
    """
    return next(each for each in registry.get(saga.name, saga.version).steps if each.name == name)


def asked(desk: Desk, found: SagaRun, kind: str) -> str:
    """What came of `ask`, as a line."""
    return f"{typed(kind)} of saga {found.name} {found.id} (was {found.status}) is in the outbox of {desk.name!r}"


def _confirmed(asked: str, does: str) -> None:
    """See to it that a person knows what a request means.

    Args:
        asked: the request, as it is typed.
        does: what it means.

    Raises:
        NotPossible: nobody can be asked, or they said no.
    """
    if not sys.stdin.isatty():
        raise NotPossible(f"{asked}: {does} Pass --yes if that is what you want")
    if input(f"{does}\nGo on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise NotPossible(f"{asked}: nothing was asked for")


def signal(
    desk: Desk, wanted: str, step: str, value: str, *, reason: str, actor: str = "", dedupe_id: str | None = None
) -> tuple[bool, SagaRun, str]:
    """Send a saga the signal that it waits for, or will wait for; returns whether it was added, the saga, and both in
    words.

    Args:
        desk: where.
        wanted: the saga: its id, or name:key.
        step: the wait.
        value: the signal, as JSON.
        reason: why.
        actor: who sends it; nothing: the user of this machine.
        dedupe_id: names this signal; sent again it changes nothing.

    Raises:
        NotPossible: the saga will not take it.
        InvalidInput: the step waits for no signal, or the value is not of its type.
        UnknownSaga: this process does not have the saga's definition.
    """
    saga = find(desk, wanted)
    wait = wait_of(saga, step)
    state = state_of(desk.saga(saga.id))
    expected = () if state is None else expected_signals(registry.get(saga.name, saga.version).plan, state)
    if step not in expected:
        raise NotPossible(
            f"signal {step}: saga {saga.name} {saga.id} (key {saga.key!r}) is {saga.status} and will not take it; "
            f"signals it would take: {', '.join(expected) or 'none'}"
        )
    taken = wait.send(
        read_value(wait, value), id=saga.id, reason=reason, actor=actor or user(), dedupe_id=dedupe_id, using=desk.using
    )
    if taken:
        said = f"signal {step} for saga {saga.name} {saga.id} (was {saga.status}) is in the outbox of {desk.name!r}"
    else:
        said = f"signal {step} for saga {saga.name} {saga.id}: {dedupe_id!r} was sent before; nothing was added"
    return taken, saga, said


def wait_of(saga: SagaRun, step: str) -> Wait[Any]:
    """The wait of this name in the definition of a saga.

    Raises:
        InvalidInput: it has none; the message names those it has.
        UnknownSaga: this process does not have the definition.
    """
    waits = {each.name: each for each in signal_waits(saga.name, saga.version)}
    if step not in waits:
        raise InvalidInput(
            f"signal {step!r}: saga {saga.name} version {saga.version} waits for no such signal; "
            f"there are: {', '.join(waits) or 'none'}",
            path="step",
        )
    return waits[step]


def signal_waits(name: str, version: int) -> Iterator[Wait[Any]]:
    """The steps of a definition that wait for a signal."""
    for each in registry.get(name, version).steps:
        if isinstance(each, Wait) and each.plan.wait is not None and each.plan.wait.signal:
            yield each


def read_value(step: Step[Any, Any], text: str) -> Any:
    """A signal, or the result of a step, from JSON.

    Raises:
        InvalidInput: it is not of the declared type; `path` names the field.
    """
    label = type_label(step.result_type)
    try:
        return codec.decode(text, step.result_type, what=step.name)
    except CodecError as problem:
        what = "signal" if isinstance(step, Wait) else "the result of"
        reason = str(problem).partition("does not fit the declared type: ")[2] or str(problem)
        raise InvalidInput(
            f"{problem.path}: {reason}; {what} {step.name!r} is JSON of {label}", path=problem.path
        ) from None  # the cause may repeat what is sensitive


def user() -> str:
    """Who uses the command line."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user may have no name
        return "cli:unknown"
