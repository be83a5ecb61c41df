"""Which sagas were started, also in a transaction that is still open."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Raw

from sagas import ports
from sagas.definition import Saga
from sagas.registry import registry
from sagas.testing.borrowed import check_using
from sagas_outbox.queries import query

PACKAGE = "sagas.testing"
SagaClass = type[Saga[Any]]


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """One saga that was started."""

    id: UUID
    key: str
    version: int
    input: Any


class _Row(msgspec.Struct):
    id: UUID
    version: int
    key: str
    input: Raw


def started(definition: SagaClass, *, using: Any = None) -> list[Started]:
    """The sagas of a class, any version, that the connection sees, in the order in which they were started."""
    text = _fetch("started", definition.saga_name, using)
    return [
        Started(id=row.id, key=row.key, version=row.version, input=_input(definition, row))
        for row in msgspec.json.decode(text, type=list[_Row])
    ]


def assert_started(
    definition: SagaClass, *, key: str | None = None, input: Any = ANY, times: int | None = None, using: Any = None
) -> Started:
    """See that a saga was started; returns the first one that fits.

    Args:
        definition: its class.
        key: its key; None: any.
        input: its input, compared with `==`; left out: any.
        times: how many have to fit; None: at least one.
        using: as for `start()`.

    Raises:
        ValueError: `times` is below 1.
        AssertionError: none was, or not as many; the message lists those that were.
    """
    if times is not None and times < 1:
        raise ValueError(f"times={times}: at least 1; assert_not_started(...) is for none")
    all_of_them = started(definition, using=using)
    fitting = [each for each in all_of_them if _fits(each, key, input)]
    if fitting and times in (None, len(fitting)):
        return fitting[0]
    wanted = _wanted(definition, key, input)
    count = "was not started" if not fitting else f"was started {len(fitting)} times, not {times}"
    raise AssertionError(f"{wanted} {count}; {_list(definition, all_of_them)}")


def assert_not_started(definition: SagaClass, *, key: str | None = None, input: Any = ANY, using: Any = None) -> None:
    """See that no such saga was started. Arguments as for `assert_started`.

    Raises:
        AssertionError: one was.
    """
    all_of_them = started(definition, using=using)
    if any(_fits(each, key, input) for each in all_of_them):
        raise AssertionError(f"{_wanted(definition, key, input)} was started; {_list(definition, all_of_them)}")


def database_time(using: Any = None) -> datetime:
    """The present time of the database, in UTC."""
    return EPOCH + timedelta(microseconds=int(_fetch("time", "", using)))


def _fetch(name: Literal["started", "time"], argument: str, using: Any) -> str:
    def work() -> Generator[tuple[Any, str], str | None, str]:
        text = yield query(PACKAGE, name), argument
        assert text is not None
        return text

    check_using(using)
    return ports.caller(using, call=f"sagas.testing.{name}").run(work())


def _input(definition: SagaClass, row: _Row) -> Any:
    known = definition
    if row.version != definition.saga_version and row.version in registry.versions(definition.saga_name):
        known = registry.get(definition.saga_name, row.version)
    return ports.settings_in_force().payloads.read(row.input, known.input_type, what="input")


def _fits(each: Started, key: str | None, input: Any) -> bool:
    return (key is None or each.key == key) and (input is ANY or each.input == input)


def _wanted(definition: SagaClass, key: str | None, input: Any) -> str:
    text = f"saga {definition.saga_name}"
    if key is not None:
        text += f" with key {key!r}"
    if input is not ANY:
        text += f"{' and' if key is not None else ' with'} input {input!r}"
    return text


def _list(definition: SagaClass, found: list[Started]) -> str:
    if not found:
        return f"no saga {definition.saga_name} was"
    lines = "".join(f"\n    key {each.key!r} with {each.input!r}" for each in found)
    return f"of {definition.saga_name} there are:{lines}"
