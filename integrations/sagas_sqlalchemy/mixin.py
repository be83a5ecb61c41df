"""`HasSagas`: an object and the sagas that were started with `subject=` it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Integer, String, Text, Uuid, and_, cast, func, inspect
from sqlalchemy.orm import Mapped, Mapper, declared_attr, foreign, relationship, remote

from sagas.errors import ConfigurationError
from sagas_sqlalchemy.models import SagaRow, sagas_models
from sagas_sqlalchemy.subjects import subject_type

AS_TEXT = (Integer, String, Uuid)  # whose text in Python is their text in Postgres


class HasSagas:
    """Gives a declarative model the relationship `sagas`: its sagas, newest first, for reading only.

    With an `AsyncSession` load it with the object: `select(Order).options(selectinload(Order.sagas))`.
    """

    @declared_attr
    def sagas(cls) -> Mapped[list[SagaRow]]:
        """The sagas that were started with `subject=` this object."""
        row: Any = sagas_models(cls).saga
        return relationship(row, primaryjoin=lambda: _join(cls, row), order_by=row.id.desc(), viewonly=True)


def _join(model: Any, row: Any) -> ColumnElement[bool]:
    mapper: Mapper[Any] = inspect(model)
    return and_(
        remote(foreign(row.subject_id)) == _subject_id(mapper),
        remote(row.subject_type) == subject_type(mapper),
    )


def _subject_id(mapper: Mapper[Any]) -> ColumnElement[str]:
    """What `sagas_sqlalchemy.subjects.subject_id` makes of a primary key, made by Postgres."""
    for column in mapper.primary_key:
        if not isinstance(column.type, AS_TEXT):
            raise ConfigurationError(
                f"{mapper.class_.__name__}.sagas: sagas are found by the text of the primary key, and that of "
                f"{column.key} ({column.type!r}) is another in Python than in Postgres; HasSagas is for keys that are "
                f"whole numbers, texts or UUIDs"
            )
    texts = [cast(column, Text) for column in mapper.primary_key]
    if len(texts) == 1:
        return texts[0]
    return cast(func.jsonb_build_array(*texts), Text)
