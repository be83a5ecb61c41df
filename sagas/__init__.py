"""Sagas in your own transaction: declared steps and compensations, run durably from a Postgres outbox."""

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
    PayloadTooLarge,
    Refused,
    SagaError,
    SagaNotFound,
    StoreNotReady,
    Undecided,
    UnknownSaga,
    Unstorable,
)
from sagas.outcome import NOT_DONE, UNKNOWN, NotDone, Unknown
from sagas.plan import OnUnknown
from sagas.registry import registry
from sagas.retry import Retry
from sagas.step import Step, StepRun, Undo

PARK = OnUnknown.PARK
COMPENSATE = OnUnknown.COMPENSATE

__all__ = [
    "COMPENSATE",
    "NOT_DONE",
    "PARK",
    "UNKNOWN",
    "CodecError",
    "ConfigurationError",
    "DefinitionError",
    "EffectMismatch",
    "InvalidInput",
    "KeyConflict",
    "LeaseLost",
    "NoResult",
    "NotDone",
    "NotInTransaction",
    "OnExisting",
    "OnUnknown",
    "PayloadTooLarge",
    "Refused",
    "Retry",
    "Saga",
    "SagaError",
    "SagaNotFound",
    "Step",
    "StepRun",
    "StoreNotReady",
    "Undecided",
    "Undo",
    "Unknown",
    "UnknownSaga",
    "Unstorable",
    "external_step",
    "registry",
    "step",
]
