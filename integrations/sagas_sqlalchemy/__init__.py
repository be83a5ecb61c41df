"""Sagas in SQLAlchemy: `sagas_tables` on your `MetaData`, `Sagas` beside your engine, `HasSagas` on your models."""

from sagas.ports import register_adapter
from sagas_sqlalchemy.callers import sqlalchemy_caller
from sagas_sqlalchemy.inbox import inbox
from sagas_sqlalchemy.mixin import HasSagas
from sagas_sqlalchemy.models import DedupeRecord, LogEntry, OutboxRow, SagaRow, SagasModels, sagas_models
from sagas_sqlalchemy.runtime import Sagas, runtime_of
from sagas_sqlalchemy.tables import SagasTables, sagas_tables

__all__ = [
    "DedupeRecord",
    "HasSagas",
    "LogEntry",
    "OutboxRow",
    "SagaRow",
    "Sagas",
    "SagasModels",
    "SagasTables",
    "inbox",
    "runtime_of",
    "sagas_models",
    "sagas_tables",
]

register_adapter(sqlalchemy_caller)
