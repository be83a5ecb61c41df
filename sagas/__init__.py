"""Sagas in your own transaction: declared steps and compensations, run durably from a Postgres outbox."""

from sagas.children import Child, child_saga
from sagas.context import Missing
from sagas.decorators import external_step, step
from sagas.definition import OnExisting, Saga
from sagas.each import COLLECT, FAIL, Each, tolerate
from sagas.errors import (
    CodecError,
    ConfigurationError,
    DefinitionError,
    EffectMismatch,
    InvalidInput,
    KeyConflict,
    LeaseLost,
    LockHeld,
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
from sagas.locks import SemanticLock, semantic_lock
from sagas.outcome import NOT_DONE, UNKNOWN, ContinueAs, NotDone, Skip, Unknown
from sagas.plan import OnTimeout, OnUnknown
from sagas.registry import registry
from sagas.retry import FOREVER, Retry
from sagas.schedules.declaration import Schedule
from sagas.schedules.policy import CatchUp, Overlap
from sagas.sensitive import Sensitive
from sagas.step import Step, StepRun, Undo
from sagas.waits import Wait, sleep, sleep_until, wait_for

PARK = OnUnknown.PARK
COMPENSATE = OnUnknown.COMPENSATE
SKIP = OnTimeout.SKIP
RAISE, IGNORE, KEEP = Missing.RAISE, Missing.IGNORE, Missing.KEEP

__all__ = [
    "COLLECT",
    "COMPENSATE",
    "FAIL",
    "FOREVER",
    "IGNORE",
    "KEEP",
    "NOT_DONE",
    "PARK",
    "RAISE",
    "SKIP",
    "UNKNOWN",
    "CatchUp",
    "Child",
    "CodecError",
    "ConfigurationError",
    "ContinueAs",
    "DefinitionError",
    "Each",
    "EffectMismatch",
    "InvalidInput",
    "KeyConflict",
    "LeaseLost",
    "LockHeld",
    "Missing",
    "NoResult",
    "NotDone",
    "NotInTransaction",
    "OnExisting",
    "OnTimeout",
    "OnUnknown",
    "Overlap",
    "PayloadLocked",
    "PayloadTooLarge",
    "Refused",
    "Retry",
    "Saga",
    "SagaError",
    "SagaNotFound",
    "Schedule",
    "SemanticLock",
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
    "child_saga",
    "external_step",
    "registry",
    "semantic_lock",
    "sleep",
    "sleep_until",
    "step",
    "tolerate",
    "wait_for",
]
