"""Business objects as sagas name them: the class and the primary key of a mapped instance."""

from __future__ import annotations

import json
import warnings
from typing import Any

from sqlalchemy import exc, inspect
from sqlalchemy.orm import InstanceState, Mapper, Session, object_session

from sagas.errors import InvalidInput

NAME = "__saga_subject__"  # attribute of a class that gives it a name of its own


def subject_type(mapper: Mapper[Any]) -> str:
    """What sagas call a mapped class: its name, or its `__saga_subject__`.

    The class and not the table: one that moves to another schema or table keeps its sagas, and one table may have
    several classes. All classes of one inheritance tree share the name of its base, because an object's class may not
    be known when its sagas are looked for. A class that is renamed, or shares its name with another, sets
    `__saga_subject__ = "shop.Order"`, which is also how to write what Django wrote.
    """
    base = mapper.base_mapper.class_
    name: str = getattr(base, NAME, None) or base.__name__
    return name


def subject_id(key: tuple[Any, ...]) -> str:
    """What sagas call a primary key: its text as in Postgres, or for several columns a JSON list of these."""
    if len(key) == 1:
        return str(key[0])
    return json.dumps([str(part) for part in key], ensure_ascii=False)


def subject_of(subject: object, session: Session | None) -> tuple[str, str] | None:
    """Type and id of a mapped instance; None when it is none.

    An instance that waits in the session for its key is flushed, and nothing else is.

    Raises:
        InvalidInput: it has no key, and this session cannot give it one.
    """
    state = inspect(subject, raiseerr=False)
    if not isinstance(state, InstanceState):
        return None
    key = state.identity or _key(state)
    if key is None:
        key = _flushed(state, session)
    return subject_type(state.mapper), subject_id(key)


def _key(state: InstanceState[Any]) -> tuple[Any, ...] | None:
    found = tuple(state.mapper.primary_key_from_instance(state.obj()))
    return None if None in found else found


def _flushed(state: InstanceState[Any], session: Session | None) -> tuple[Any, ...]:
    instance = state.obj()
    if session is None or instance is None or object_session(instance) is not session:
        raise InvalidInput(
            f"subject: the {state.class_.__name__} has no primary key yet; "
            + ("add it to the session first" if session is not None else "flush it first, or pass using= its session"),
            path="subject",
        )
    with warnings.catch_warnings():  # deprecated in SQLAlchemy 2.1; the only way to leave all else unflushed
        warnings.simplefilter("ignore", exc.SADeprecationWarning)
        session.flush([instance])
    key = _key(state)
    assert key is not None, "a flush gives a key or raises"
    return key
