"""Rules taken out of the engine, one at a time, in the processes of a run: a run that does not notice has no teeth."""

# mypy: disable-error-code="attr-defined"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

KILLED_BY = {
    "begin": "a step that may begin once begins twice",
    "effect": "an effect is called again after it has returned",
    "key": "the bank charges twice",
    "lock": "an addition is lost",
    "unknown": "what was charged is never paid back",
}


def plant(name: str) -> None:
    """Take a rule out of this process.

    Raises:
        KeyError: there is no such mutant.
    """
    _MUTANTS[name]()


def _begin() -> None:
    """A message that comes twice begins twice: its token is not consumed, and who holds the row is not looked at."""
    _in_sql(("token = o.token + 1,\n        deliveries", "token = o.token,\n        deliveries"),
            ("then o.holder like 'relay:%%'", "then true"))  # fmt: skip


def _effect() -> None:
    """What is remembered of an effect is not believed."""
    from sagas import guarding

    right = guarding.judge
    guarding.judge = lambda seen, wanted: (
        guarding.PROCEED if isinstance(found := right(seen, wanted), guarding.Answer) else found
    )


def _key() -> None:
    """Each attempt has a key of its own."""
    from uuid import uuid4

    from sagas import perform

    right = perform.idempotency_key
    perform.idempotency_key = lambda *given: f"{right(*given)}@{uuid4()}"


def _lock() -> None:
    """A semantic lock is had by whoever asks."""
    from sagas import perform

    def take(body: Any, lock: Any) -> Any:
        yield from ()

    perform._take = take


def _unknown() -> None:
    """An attempt whose worker died counts as one that did nothing."""
    from sagas import takeover
    from sagas.machine import back, forward, look

    for module in (takeover, look, forward, back):
        if hasattr(module, "ever_unknown"):
            module.ever_unknown = lambda external, track, attempt: False


_MUTANTS: dict[str, Callable[[], None]] = {
    "begin": _begin, "effect": _effect, "key": _key, "lock": _lock, "unknown": _unknown
}  # fmt: skip


class _Changed:
    """A folder of statements in which some words are others."""

    def __init__(self, found: Any, changes: tuple[tuple[str, str], ...]) -> None:
        self._found, self._changes = found, changes

    def joinpath(self, *parts: str) -> _Changed:
        return _Changed(self._found.joinpath(*parts), self._changes)

    def read_text(self, encoding: str) -> str:
        text = str(self._found.read_text(encoding=encoding))
        for old, new in self._changes:
            text = text.replace(old, new)
        return text


def _in_sql(*changes: tuple[str, str]) -> None:
    from sagas_outbox import queries

    right = queries.files
    queries.files = lambda package: _Changed(right(package), changes)  # type: ignore[assignment,return-value]
