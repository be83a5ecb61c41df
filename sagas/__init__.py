"""Sagas in your own transaction: declared steps and compensations, run durably from a Postgres outbox."""

from sagas.context import Missing
from sagas.decorators import external_step, step
from sagas.definition import OnExisting, Saga
from sagas.errors import (
    CodecError,
    ConfigurationError,
    DefinitionError,
    EffectMismatch,
    InvalidInput,
    KeyConflict,
    LeaseLost,
    NoResult,
    NotInTransaction,
    PayloadLocked,
    PayloadTooLarge,
    Refused,
    SagaError,
    SagaNotFound,
    StoreNotReady,
    Undecided,
    UnknownSaga,
    Unstorable,
)
from sagas.outcome import NOT_DONE, UNKNOWN, ContinueAs, NotDone, Skip, Unknown
from sagas.plan import OnTimeout, OnUnknown
from sagas.registry import registry
from sagas.retry import FOREVER, Retry
from sagas.sensitive import Sensitive
from sagas.step import Step, StepRun, Undo
from sagas.waits import Wait, sleep, sleep_until, wait_for

PARK = OnUnknown.PARK
COMPENSATE = OnUnknown.COMPENSATE
SKIP = OnTimeout.SKIP
RAISE, IGNORE, KEEP = Missing.RAISE, Missing.IGNORE, Missing.KEEP

__all__ = [
    "COMPENSATE",
    "FOREVER",
    "IGNORE",
    "KEEP",
    "NOT_DONE",
    "PARK",
    "RAISE",
    "SKIP",
    "UNKNOWN",
    "CodecError",
    "ConfigurationError",
    "ContinueAs",
    "DefinitionError",
    "EffectMismatch",
    "InvalidInput",
    "KeyConflict",
    "LeaseLost",
    "Missing",
    "NoResult",
    "NotDone",
    "NotInTransaction",
    "OnExisting",
    "OnTimeout",
    "OnUnknown",
    "PayloadLocked",
    "PayloadTooLarge",
    "Refused",
    "Retry",
    "Saga",
    "SagaError",
    "SagaNotFound",
    "Sensitive",
    "Skip",
    "Step",
    "StepRun",
    "StoreNotReady",
    "Undecided",
    "Undo",
    "Unknown",
    "UnknownSaga",
    "Unstorable",
    "Wait",
    "external_step",
    "registry",
    "sleep",
    "sleep_until",
    "step",
    "wait_for",
]
