"""The small sagas with waits, signals, deadlines, pauses, redos, conditions and runs that go on from each other."""

from __future__ import annotations

from typing import Final

from sagas.plan import OnTimeout
from tests.modelcheck.sagas import (
    ALL,
    ASKED,
    BODY,
    KEYS,
    NOTHING,
    ONCE,
    TWO,
    WHATEVER,
    local,
    pivot,
    plan,
    step,
    wait,
)
from tests.modelcheck.scenario import Late, Scenario

PROTOCOL: Final = frozenset({"crash", "freeze", "lost acknowledgement", "hand back", "raise"})
MESSAGES: Final = frozenset({"crash", "freeze", "duplicate", "loss", "slow broker", "lost acknowledgement"})


def waiting() -> tuple[Scenario, ...]:
    """All of them."""
    return (*_signals(), *_times(), *_operators(), *_choices(), *_runs())


def _signals() -> tuple[Scenario, ...]:
    charge = step("charge", **WHATEVER)
    ends = (
        Scenario(
            name=f"a signal early, at the timeout and late; then {on_timeout}",
            plans=(plan(local("reserve"), wait("review", on_timeout), charge),), provider=ALL, latest=1.0,
            signals=("review",), faults=1, kinds=PROTOCOL,
        )
        for on_timeout in OnTimeout
    )  # fmt: skip
    return (
        *ends,
        Scenario(
            name="a signal, relay and broker", plans=(plan(wait("review", OnTimeout.COMPENSATE)),), broker=True,
            latest=1.0, signals=("review",), faults=1, kinds=MESSAGES,
        ),
        Scenario(
            name="two signals to one wait, two workers", plans=(plan(wait("review"), local("book")),), latest=1.0,
            signals=("review", "review"), faults=1, kinds=frozenset({"crash", "freeze"}),
        ),
        Scenario(
            name="signals to two waits", plans=(plan(wait("review"), wait("approval", OnTimeout.SKIP)),), latest=1.0,
            signals=("approval", "review"), faults=1, kinds=PROTOCOL,
        ),
        Scenario(
            name="a signal that is kept until its saga starts",
            plans=(plan(wait("review"), local("book")),), latest=1.0,
            signals=("review", "review"), unstarted=True, faults=1, kinds=frozenset({"crash"}),
        ),
    )  # fmt: skip


def _times() -> tuple[Scenario, ...]:
    sleeping = plan(local("reserve"), wait("night", None), pivot("ship", has_resolve=True))
    return (
        Scenario(name="a sleep", plans=(sleeping,), latest=1.0, cancels=1, faults=1, kinds=PROTOCOL),
        Scenario(
            name="a sleep whose rows are lost", plans=(plan(wait("night", None), local("book")),), latest=2.0, faults=2,
            kinds=frozenset({"rows lost", "crash"}),
        ),
        Scenario(
            name="a deadline at any moment",
            plans=(plan(local("reserve"), step("charge", has_resolve=True, **WHATEVER)),),
            provider=ASKED, latest=1.0, deadline=1.0, faults=1, kinds=BODY | PROTOCOL, late=Late.SETTLING,
        ),
        Scenario(
            name="a deadline while a pivot is in doubt",
            plans=(plan(local("reserve"), pivot("ship", has_resolve=True)),),
            provider=ASKED, latest=1.0, deadline=1.0, faults=1, kinds=BODY | {"lost acknowledgement"},
        ),
        Scenario(
            name="a deadline while it waits", plans=(plan(local("reserve"), wait("review"), pivot("ship")),),
            latest=2.0, waits=2.0, deadline=1.0, signals=("review",), faults=1, kinds=MESSAGES,
        ),
    )  # fmt: skip


def _operators() -> tuple[Scenario, ...]:
    once = step("charge", retry=ONCE)
    return (
        Scenario(
            name="a pause at any moment", plans=(plan(local("reserve"), step("charge", **WHATEVER)),), pauses=1,
            cancels=1, faults=1, kinds=frozenset({"crash", "timeout", "hand back"}),
        ),
        Scenario(
            name="a pause while it waits", plans=(plan(wait("review"), local("book")),), latest=1.0, pauses=1,
            signals=("review",), faults=1, kinds=frozenset({"freeze"}),
        ),
        Scenario(
            name="a redo, keys", plans=(plan(once, pivot("ship")),), provider=KEYS, redos=1,
            faults=2, kinds=frozenset({"timeout", "freeze"}), late=Late.SETTLING,
        ),
        Scenario(
            name="a redo, no keys", plans=(plan(once),), provider=NOTHING, redos=1,
            faults=2, kinds=frozenset({"timeout", "crash"}), late=Late.LOOK,
        ),
        Scenario(
            name="a redo of two effects", plans=(plan(step("charge", retry=ONCE)),),
            provider=KEYS, effects=TWO, redos=1, faults=2, kinds=frozenset({"freeze", "crash"}),
            late=Late.SETTLING,
        ),
        Scenario(
            name="a redo of a wait", plans=(plan(wait("review"), local("book")),), latest=1.0, redos=1,
            signals=("review",), faults=1, kinds=frozenset({"crash"}),
        ),
    )  # fmt: skip


def _choices() -> tuple[Scenario, ...]:
    return (
        Scenario(
            name="a condition before an external step",
            plans=(plan(local("reserve"), step("charge", has_when=True, **WHATEVER)),), provider=ALL, cancels=1,
            faults=1, kinds=BODY | PROTOCOL,
        ),
        Scenario(
            name="a condition before a local step", plans=(plan(local("reserve", has_when=True), step("charge")),),
            provider=KEYS, cancels=1, faults=1, kinds=PROTOCOL | {"refusal"},
        ),
        Scenario(
            name="a condition before a wait",
            plans=(plan(wait("review", OnTimeout.SKIP), local("book", has_when=True)),),
            latest=1.0, signals=("review",), faults=1, kinds=PROTOCOL,
        ),
    )  # fmt: skip


def _runs() -> tuple[Scenario, ...]:
    one = plan(local("work"))
    paid = plan(step("charge", has_resolve=True, **WHATEVER))
    kept = plan(local("work"), wait("review", OnTimeout.SKIP), local("book"))
    return (
        Scenario(
            name="a run that goes on, local", plans=(one, one, one), runs=True, cancels=1, faults=1, kinds=PROTOCOL
        ),
        Scenario(
            name="a run that goes on, external", plans=(paid, paid), runs=True, provider=ALL, faults=2,
            kinds=frozenset({"crash", "freeze", "lost acknowledgement"}),
        ),
        Scenario(
            name="a run that goes on, relay and broker", plans=(one, one), runs=True, broker=True, faults=2,
            kinds=MESSAGES,
        ),
        Scenario(
            name="signals are carried over", plans=(kept, kept, kept), runs=True, latest=1.0,
            signals=("review", "review"), faults=0,
        ),
    )  # fmt: skip
