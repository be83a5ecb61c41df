"""Pydantic models (version 2) as payloads. Nothing is imported: whoever has such a model has imported pydantic.

A model is written field by field and made again from its fields, under their own names. Its validators ran when the
application made it and do not run again: what is stored is what it was, whatever they would say today. Aliases,
serializers and computed fields have no part in it, and `model_fields_set` is all fields afterwards.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec

UNBOUND = "an extra or private attribute has no declared type; declare it as a field"


def is_model(cls: object) -> bool:
    """Whether this is a pydantic model class."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


def fields_of(cls: Any) -> dict[str, Any]:
    """The declared types of a model's fields, with what is said of them for msgspec.

    Raises:
        NameError: one names a type that does not exist (yet).
    """
    if not cls.__pydantic_complete__:
        cls.model_rebuild()
    return {name: _annotation(each) for name, each in cls.model_fields.items()}


def problem_of(cls: Any) -> str:
    """Why values of a model would not come back as they were, whatever its fields; nothing when they would."""
    if cls.model_config.get("extra") == "allow" or cls.__private_attributes__:
        return UNBOUND
    return ""


def dump(value: Any) -> dict[str, Any]:
    """The fields of a model as they are."""
    return {name: getattr(value, name) for name in type(value).model_fields}


def load(cls: type, found: Any) -> Any:
    """A model made again from its stored fields, as msgspec's hook for types it does not know.

    Raises:
        msgspec.ValidationError: a field does not fit, or a required one is missing.
    """
    if not is_model(cls):
        raise NotImplementedError(f"objects of type {cls.__name__} cannot be stored")
    if not isinstance(found, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(found).__name__}`")
    values = {}
    for name, declared in fields_of(cls).items():
        if name in found:
            values[name] = _convert(found[name], declared, name)
        elif cls.model_fields[name].is_required():  # type: ignore[attr-defined]
            raise msgspec.ValidationError(f"Object missing required field `{name}`")
    return cls.model_construct(**values)  # type: ignore[attr-defined]


def _convert(found: Any, declared: Any, name: str) -> Any:
    try:
        return msgspec.convert(found, declared, str_keys=True, dec_hook=load)
    except msgspec.ValidationError as problem:
        raise msgspec.ValidationError(f"field `{name}`: {problem}") from None


def _annotation(field: Any) -> Any:
    """The annotation as msgspec reads it; pydantic keeps `Annotated` metadata of a field apart from its type."""
    declared = field.annotation
    for each in field.metadata:
        if isinstance(each, msgspec.Meta):
            declared = Annotated[declared, each]
    return declared
