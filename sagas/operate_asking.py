"""What operators ask of one saga on the command line: only what is possible now, and always with a reason."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from typing import Any

from sagas import codec, engine
from sagas.actions import OFFERS, expected_signals
from sagas.desk import Desk
from sagas.engine import SagaRun
from sagas.errors import CodecError, InvalidInput, NotPossible
from sagas.operate import find
from sagas.progress import state_of
from sagas.registry import registry
from sagas.storable import type_label
from sagas.waits import Wait


def ask(desk: Desk, wanted: str, kind: str, reason: str, *, actor: str = "", step: str = "") -> SagaRun:
    """Insert a request for a worker to apply.

    Args:
        desk: where.
        wanted: the saga: its id, or name:key.
        kind: of the request.
        reason: why.
        actor: who asks; nothing: the user of this machine.
        step: the step that a redo is about.

    Raises:
        NotPossible: nothing would come of it now; the message says what is possible.
        UnknownSaga: this process does not have the saga's definition.
    """
    saga = find(desk, wanted)
    possible = saga.allowed_actions
    if (kind, step or None) not in [(action.name, action.step) for action in possible]:
        named = [f"{action.name} {action.step}" if action.step else action.name for action in possible]
        asked = f"{kind} {step}" if step else kind
        raise NotPossible(
            f"{asked}: saga {saga.name} {saga.id} (key {saga.key!r}) is {saga.status}, where this changes nothing; "
            f"possible now: {', '.join(named) or 'nothing, it has ended'}"
        )
    return engine.request(None, kind, id=saga.id, reason=reason, actor=actor or user(), step=step, using=desk.using)


def asked(desk: Desk, found: SagaRun, kind: str) -> str:
    """What came of `ask`, as a line."""
    return f"{kind} of saga {found.name} {found.id} (was {found.status}) is in the outbox of {desk.name!r}"


def confirmed(kind: str, yes: bool) -> None:
    """See to it that a person knows what a request means.

    Args:
        kind: of the request.
        yes: they have said so already.

    Raises:
        NotPossible: they have not, and nobody can be asked; or they said no.
    """
    does = OFFERS[kind].does
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotPossible(f"{kind}: {does} Pass --yes if that is what you want")
    if input(f"{does}\nGo on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise NotPossible(f"{kind}: nothing was asked for")


def signal(
    desk: Desk, wanted: str, step: str, value: str, *, reason: str, actor: str = "", dedupe_id: str | None = None
) -> Iterator[str]:
    """Send a saga the signal that it waits for, or will wait for; yields what came of it.

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
        yield f"signal {step} for saga {saga.name} {saga.id} (was {saga.status}) is in the outbox of {desk.name!r}"
    else:
        yield f"signal {step} for saga {saga.name} {saga.id}: {dedupe_id!r} was sent before; nothing was added"


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


def read_value(wait: Wait[Any], text: str) -> Any:
    """A signal from JSON.

    Raises:
        InvalidInput: it is not of the declared type; `path` names the field.
    """
    label = type_label(wait.result_type)
    try:
        return codec.decode(text, wait.result_type, what=wait.name)
    except CodecError as problem:
        reason = str(problem).partition("does not fit the declared type: ")[2] or str(problem)
        raise InvalidInput(
            f"{problem.path}: {reason}; signal {wait.name!r} is JSON of {label}", path=problem.path
        ) from None  # the cause may repeat what is sensitive


def user() -> str:
    """Who uses the command line."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user may have no name
        return "cli:unknown"
