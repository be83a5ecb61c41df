"""Every error of the framework, in one tree. A class's docstring is its default message.

SagaError
├── ConfigurationError      settings contradict each other or the surroundings
│   └── StoreNotReady       the database lacks what this version needs
├── DefinitionError         a Saga class is wrong; raised when it is created or loaded
├── UnknownSaga             name and version are not registered in this process
├── NotInTransaction        start() where nothing would make it durable together with the caller's work
├── KeyConflict             the business key is taken by a saga with another input
├── SagaNotFound            no such saga in the store
├── NotPossible             an operator asks for what changes nothing in the saga's present status
├── CodecError              a value and its declared type do not fit; `path` names the field
│   ├── InvalidInput        ... in the input of start()
│   ├── Unstorable          ... in the result of a step
│   ├── Misfit              ... in what is stored: the type was changed without a new version
│   └── PayloadTooLarge     ... more bytes than the store takes
├── PayloadLocked           a stored payload cannot be opened here: its codec or key is missing
├── NoResult                `self.<step>.result` of a step that has none
├── EffectMismatch          an effect is asked for under a key that stands for another request
├── LeaseLost               this worker may no longer act for the saga
├── Refused                 raised by step bodies: "this attempt definitely did nothing"
│   └── LockHeld            a semantic lock that the step is to take is held by another saga
└── Undecided               raised by `resolve`: "cannot tell yet, ask again"
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable


class SagaError(Exception):
    """Something about a saga went wrong."""

    def __init__(self, message: str | None = None) -> None:
        if message is None:
            message = " ".join((inspect.getdoc(type(self)) or type(self).__name__).split("\n\n")[0].split())
        super().__init__(message)


class ConfigurationError(SagaError):
    """The settings do not fit together; the message names the setting to change."""


class StoreNotReady(ConfigurationError):
    """The database lacks tables or functions that this version needs: run the migrations."""


class DefinitionError(SagaError):
    """A saga class is not defined correctly.

    Args:
        message: what is wrong and what to change.
        problems: when several were found at once, each of them.
    """

    def __init__(self, message: str | None = None, *, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (str(self),)


class UnknownSaga(SagaError):
    """No saga of this name and version is registered in this process: import the module that defines it."""


class NotInTransaction(SagaError):
    """start() was called outside a transaction: call it inside one, or pass own_transaction=True."""


class KeyConflict(SagaError):
    """A saga with this key already exists and was started with another input."""


class SagaNotFound(SagaError):
    """There is no saga with this key or id."""


class NotPossible(SagaError):
    """What was asked for changes nothing in the saga's present status."""


class CodecError(SagaError):
    """A value does not fit the type declared for it.

    Args:
        message: names the field and what is wrong with it.
        path: the field, for example `input.address.city`.
    """

    def __init__(self, message: str | None = None, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidInput(CodecError):
    """The input cannot be stored as it is."""


class Unstorable(CodecError):
    """The step returned something that cannot be stored."""


class Misfit(CodecError):
    """What is stored does not fit the type that this code declares for it: the saga is parked, until code can."""


class PayloadTooLarge(CodecError):
    """The value takes more bytes than the store accepts: keep it elsewhere and store a reference to it."""


class PayloadLocked(SagaError):
    """A stored payload cannot be opened in this process: the codec that sealed it, or its key, is missing or wrong."""


class NoResult(SagaError):
    """The step has no result (yet)."""


class LeaseLost(SagaError):
    """This worker no longer holds the lease: another may have taken the saga over, so stop without side effects."""


class EffectMismatch(SagaError):
    """An effect of this name was tried before with another request."""


class Refused(SagaError):
    """The step was refused; this attempt definitely did nothing.

    Raise it in a step body to stop the saga and compensate (after the pivot: to park it). Any
    other exception says "perhaps it happened" and is retried.
    """


class LockHeld(Refused):
    """Another saga holds the semantic lock that the step is to take, for longer than the step may wait."""


class Undecided(SagaError):
    """The outcome cannot be told yet: ask again later."""
