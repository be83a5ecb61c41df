"""What a command of operators is, and how one is carried out: in text for people, in JSON for programs.

With `--json` a command writes one JSON object and nothing else, with `ok`, `data`, `said` and `error`; one that follows
something (`tail`, `top`) writes an object a line. Exit codes: 0 it did what it says; 1 it did not, or found something
wrong; 2 it was called in a wrong way.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from sagas.desk import Desk
from sagas.errors import InvalidInput, SagaError
from sagas.failure import clean
from sagas.rights import OPERATOR, explained
from sagas_outbox.encoding import briefly


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One argument of a command: `saga`, or an option such as `--reason`."""

    name: str
    help: str
    type: type = str  # str, int, float, or bool for an option that is just there
    required: bool = False  # of an option; what is no option always is
    many: bool = False  # an option may be repeated; any number of what is no option
    default: Any = None

    @property
    def option(self) -> bool:
        """Whether it begins with dashes."""
        return self.name.startswith("-")

    @property
    def key(self) -> str:
        """What its value is called."""
        return self.name.lstrip("-").replace("-", "_")


class Bar(Protocol):
    """How far something long has come, such as click's progress bar."""

    def update(self, n_steps: int) -> None: ...


class NoBar:
    """Where nobody watches."""

    def update(self, n_steps: int) -> None:
        """Nothing is shown."""


Bars = Callable[[int, str], AbstractContextManager[Bar]]  # for a total, and what is counted


def no_bars(total: int, label: str) -> AbstractContextManager[Bar]:
    """No progress is shown."""
    return nullcontext(NoBar())


def ignore(value: Any) -> None:
    """Data is for programs only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """Where a command writes."""

    say: Callable[[str], Any]
    complain: Callable[[str], Any]
    give: Callable[[Any], Any] = ignore  # data, for whoever asked for JSON
    bar: Bars = no_bars
    json: bool = False

    def all(self, lines: Iterable[str]) -> None:
        """Say several lines, each as soon as it is known."""
        for line in lines:
            self.say(line)


Run = Callable[[Desk, Mapping[str, Any], Talk], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One command. What `run` returns, if anything, is its last word: it has failed."""

    name: str
    help: str
    run: Run
    arguments: tuple[Argument, ...] = field(default=())
    follows: bool = False  # it gives one thing after the other, each to be written at once
    also: tuple[str, ...] = ()  # other names of it
    role: str = OPERATOR  # of the database, that has the rights it needs


LONGEST: Final = 1_000_000  # characters of an argument: a payload may be among them
LARGEST: Final = 2**31 - 1
MOST_TIME: Final = 1_000_000.0  # days or seconds
CONTROLS: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")  # of Unicode: control, format, surrogates, separators of lines
KEPT: Final = "\n\t\u200c\u200d"  # the last two join letters, and do nothing else
JSON: Final = Argument(name="--json", help="write JSON, for programs", type=bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a command ended that did not do what it says."""

    message: str
    written: bool  # the message is in the JSON already


def check(command: Command, given: Mapping[str, Any]) -> None:
    """See to it that what was typed is something that Postgres can be asked about.

    Raises:
        InvalidInput: an argument is not; its name is in the message.
    """
    for argument in command.arguments:
        found = given.get(argument.key)
        for value in found if isinstance(found, list | tuple) else (found,):
            if isinstance(value, str) and clean(value, LONGEST) != value:
                raise InvalidInput(
                    f"{argument.name}: a text of at most {LONGEST} characters, without NUL or lone surrogates",
                    path=argument.key,
                )
            if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
                raise InvalidInput(f"{argument.name}={briefly(value)}: at most {LARGEST:,}", path=argument.key)
            if isinstance(value, float) and not abs(value) <= MOST_TIME:  # which no NaN is
                raise InvalidInput(f"{argument.name}={value}: at most {MOST_TIME:,.0f}", path=argument.key)


def carry_out(
    command: Command, desk: Callable[[], Desk], given: Mapping[str, Any], *, say: Callable[[str], Any],
    complain: Callable[[str], Any], bar: Bars = no_bars,
) -> Ending | None:  # fmt: skip
    """Carry out a command; returns how it failed, None if it did not.

    Args:
        command: what.
        desk: makes the desk it works at.
        given: its arguments, and "json".
        say: writes a line.
        complain: writes a line about what is wrong.
        bar: shows how far something long has come.

    Raises:
        SagaError: it cannot be done; not with "json", where that is written.
    """
    if not given.get("json"):
        talk = Talk(say=lambda line: say(visible(line)), complain=lambda line: complain(visible(line)), bar=bar)
        check(command, given)
        complaint = _run(command, desk(), given, talk)
        return None if complaint is None or complaint == "" else Ending(message=visible(complaint), written=False)
    said: list[str] = []
    data: list[Any] = []
    error: str | None = None

    def give(value: Any) -> None:
        if command.follows:
            say(as_json(value))
        else:
            data.append(value)

    try:
        check(command, given)
        talk = Talk(say=said.append, complain=said.append, give=give, json=True)
        error = _run(command, desk(), given, talk) or None
    except SagaError as problem:
        error = str(problem)
    if error is not None or not command.follows:
        found = data[0] if len(data) == 1 else data or None
        say(as_json({"ok": error is None, "data": found, "said": said, "error": error}))
    return None if error is None else Ending(message=error, written=True)


def _run(command: Command, desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    with explained(desk, command.role):
        return command.run(desk, given, talk)


def visible(text: str) -> str:
    """Text with control characters spelled out, such as `\\x1b`; line breaks and tabs stay.

    Names, keys and errors are other people's: they must not clear a terminal, set its title, or turn text around.
    """
    if text.isprintable():
        return text
    return "".join(each.encode("unicode_escape").decode("ascii") if _controls(each) else each for each in text)


def _controls(character: str) -> bool:
    """Whether a terminal may obey it instead of showing it."""
    return character not in KEPT and unicodedata.category(character) in CONTROLS


def as_json(value: Any) -> str:
    """A value as one line of JSON, for a terminal too; what JSON has no word for as text."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    if text.isprintable():
        return text
    return "".join(json.dumps(each)[1:-1] if _controls(each) else each for each in text)
