"""What a delivery knows of its saga's payloads: opened once, large ones loaded when asked for, sensitive ones noted.

Begin loads small log entries whole and of large ones only that they are there (`None` in the history). A large one is
fetched by a statement of its own, by the body that asks for it, and forgotten after that body: so what a worker holds
is bounded by what its bodies look at, not by what their sagas have stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Raw, UnsetType

from sagas import codec, errors
from sagas.events import ErrorText, Facts
from sagas.failure import error_text
from sagas.head import Head, read_head
from sagas.payloads import MARK, PLAIN, Payloads
from sagas.sensitive import secrets
from sagas.storable import facts_of as facts_of_type

if TYPE_CHECKING:
    from sagas.kin import Kin
    from sagas.step import Step

History = Mapping[int, "bytes | None"]  # data of log entries by seq; None: large, and not loaded
Fetch = Callable[[int], bytes]
Read = Callable[[bytes], Facts]
Probes = Mapping[int, tuple[str, str]]  # of large payloads by seq: who sealed it, and the probe of the key


@dataclass(slots=True)
class Reader:
    """Reads payloads for the bodies of one begun row."""

    read: Read  # what a stored log line says
    payloads: Payloads = PLAIN
    fetch: Fetch | None = None  # the data of one log entry of this saga
    kin: Kin | None = None  # reads the saga that started this one
    opened: dict[int, bytes] = field(default_factory=dict)  # plain JSON by seq, where that took something
    large: set[int] = field(default_factory=set)  # which of them are large
    hidden: set[str] = field(default_factory=set)  # sensitive values that were read

    def head(self, history: History) -> Head:
        """What entry 0 says."""
        return read_head(_there(self.read(self._data(history, 0)).saga))

    def input(self, history: History, declared: Any) -> Any:
        """The input."""
        return self._value(history, 0, declared, "input")

    def result(self, history: History, seq: int, step: Step[Any, Any]) -> Any:
        """The result of a step that is in entry `seq`, decoded anew each time."""
        return self._value(history, seq, step.result_type, f"result of step {step.name!r}")

    def given(self, stored: Raw, declared: Any, *, what: str) -> Any:
        """The value of a payload that is no log entry."""
        return self.note(self.payloads.read(bytes(stored), declared, what=what), declared)

    def check(self, history: History, others: Iterable[Raw | None], probes: Probes) -> None:
        """See that what is sealed can be opened, before anything depends on it.

        Args:
            history: entries of the log.
            others: payloads from elsewhere that a body may be given.
            probes: of large payloads, as far as they are known.

        Raises:
            PayloadLocked: something cannot be opened in this process.
        """
        for seq, data in history.items():
            if data is not None and MARK in data:
                self._plain(history, seq, _what(seq))
        for each in others:
            if each is not None:
                self.payloads.open(bytes(each), what="an answer in the dedupe table")
        for seq, (by, probe) in probes.items():
            self.payloads.try_key(by, probe, what=_what(seq))

    def load_large(self, history: History) -> None:
        """Load everything that is large, for a body that must not wait for it when it asks."""
        for seq, data in history.items():
            if data is None:
                self._plain(history, seq, _what(seq))

    def forget(self) -> None:
        """A body has ended: what is large is loaded again if another asks for it."""
        for seq in self.large:
            del self.opened[seq]
        self.large.clear()

    def error_text(self, problem: BaseException, payloads: Iterable[tuple[Any, Callable[[], Any]]] = ()) -> ErrorText:
        """What is kept of an exception, without sensitive values.

        Args:
            problem: the exception.
            payloads: declared type of each, and how it is read; the sensitive ones are read first.
        """
        for declared, read in payloads:
            if facts_of_type(declared).sensitive:
                with suppress(Exception):
                    read()
        return error_text(problem, hide=self.hidden)

    def _value(self, history: History, seq: int, declared: Any, what: str) -> Any:
        return self.note(codec.decode(self._plain(history, seq, what), declared, what=what), declared)

    def note(self, value: Any, declared: Any) -> Any:
        """Remember what of a value must not stand in an error."""
        if facts_of_type(declared).sensitive:
            self.hidden |= secrets(value, declared)
        return value

    def _plain(self, history: History, seq: int, what: str) -> bytes:
        if seq in self.opened:
            return self.opened[seq]
        facts = self.read(self._data(history, seq))
        stored = read_head(_there(facts.saga)).input if seq == 0 else _there(facts.result)
        raw = bytes(stored)
        plain = self.payloads.open(raw, what=what)
        if history[seq] is None:
            self.large.add(seq)
        if history[seq] is None or plain is not raw:
            self.opened[seq] = plain
        return plain

    def _data(self, history: History, seq: int) -> bytes:
        data = history[seq]
        if data is None:
            assert self.fetch is not None
            data = self.fetch(seq)
        return data


def _what(seq: int) -> str:
    return "input" if seq == 0 else f"what log entry {seq} holds"


def _there(raw: Raw | UnsetType) -> Raw:
    if isinstance(raw, UnsetType):
        raise errors.CodecError("the log entry that should hold it is empty; run `sagas verify` on this saga")
    return raw
