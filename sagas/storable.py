"""Which types can be stored: a walk over what msgspec says of a declared type.

msgspec would take `Any` and unknown classes in silence and hand back something else. Such
types are refused when the saga class is created, not when the first value is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin

from msgspec import inspect as types

from sagas.errors import DefinitionError
from sagas.pydantic_models import fields_of, is_model, problem_of
from sagas.sensitive import info_of, marks

SCALARS = (
    types.NoneType,
    types.BoolType,
    types.IntType,
    types.FloatType,
    types.StrType,
    types.BytesType,
    types.ByteArrayType,
    types.DateTimeType,
    types.DateType,
    types.TimeType,
    types.TimeDeltaType,
    types.UUIDType,
    types.DecimalType,
    types.EnumType,
    types.LiteralType,
)
KEYS = (
    types.StrType,
    types.IntType,
    types.UUIDType,
    types.DateType,
    types.DateTimeType,
    types.DecimalType,
    types.EnumType,
    types.LiteralType,
)
SET_ITEMS = (types.StrType, types.IntType, types.UUIDType, types.DateType, types.DateTimeType, types.DecimalType)
OBJECTS = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)
SEQUENCES = (types.ListType, types.VarTupleType)
SETS = (types.SetType, types.FrozenSetType)


@dataclass(kw_only=True, slots=True)
class Facts:
    """What a type may contain, so that values of it are searched for nothing else."""

    datetimes: bool = False
    decimals: bool = False
    sets: bool = False
    other_keys: bool = False  # dicts with keys that are no text
    recursive: bool = False  # may nest without end
    sensitive: bool = False  # some of it must not be shown
    seen: set[int] = field(default_factory=set)  # ids of the object types walked so far


def check_type(declared: Any, *, where: str = "value") -> None:
    """Make sure that every value of a type comes back from the store as it was.

    Args:
        declared: the annotation.
        where: what the type belongs to, for the message.

    Raises:
        DefinitionError: it holds something that cannot be stored; the message says what and what to use.
        NameError: it names a type that does not exist (yet).
    """
    try:
        facts_of(declared)
    except DefinitionError as problem:
        raise DefinitionError(f"{where}: {type_label(declared)} cannot be stored: {problem}") from None
    except TypeError as problem:  # metadata in Annotated that has no hash
        raise DefinitionError(f"{where}: {declared!r} cannot be stored: {problem}") from None


@lru_cache(maxsize=4096)
def facts_of(declared: Any) -> Facts:
    """Facts of a storable type.

    Raises:
        DefinitionError: the type cannot be stored.
        NameError: it names a type that does not exist (yet).
    """
    facts = Facts()
    info = _info(declared)
    _walk(info, "", facts, ())
    return facts


def _info(declared: Any) -> types.Type:
    try:
        return info_of(declared)
    except (TypeError, ValueError) as problem:
        hint = "; give each its own field, or use tagged msgspec.Struct classes" if "union" in str(problem) else ""
        raise DefinitionError(f"{problem}{hint}") from problem


def _walk(info: types.Type, path: str, facts: Facts, above: tuple[int, ...]) -> None:
    match info:
        case types.Metadata():
            facts.sensitive |= marks(info)
            _walk(info.type, path, facts, above)
        case types.UnionType():
            _union(info, path, facts, above)
        case types.DictType():
            if not isinstance(info.key_type, (*KEYS, types.AnyType)):
                raise _refused(path, "its dict keys", "use str or int keys, or a list of pairs")
            facts.other_keys |= not isinstance(info.key_type, types.StrType)
            _walk(info.key_type, path, facts, above)
            _walk(info.value_type, f"{path}[...]", facts, above)
        case types.TupleType():
            for position, item in enumerate(info.item_types):
                _walk(item, f"{path}[{position}]", facts, above)
        case _ if isinstance(info, OBJECTS):
            _object(info, path, facts, above)
        case types.CustomType() if is_model(info.cls):
            _model(info, path, facts, above)
        case _ if isinstance(info, SEQUENCES):
            _walk(info.item_type, f"{path}[...]", facts, above)
        case _ if isinstance(info, SETS):
            if not isinstance(info.item_type, (*SET_ITEMS, types.AnyType)):
                raise _refused(path, "a set of these", "use a list; sets may hold str, int, UUID, Decimal and dates")
            facts.sets = True
            _walk(info.item_type, f"{path}[...]", facts, above)
        case _ if isinstance(info, SCALARS):
            facts.datetimes |= isinstance(info, types.DateTimeType)
            facts.decimals |= isinstance(info, types.DecimalType)
        case _:
            raise _unknown(info, path)


def _union(info: types.UnionType, path: str, facts: Facts, above: tuple[int, ...]) -> None:
    kinds = {type(member) for member in info.types}
    if {types.IntType, types.FloatType} <= kinds:
        # jsonb gives 1e22 back as 10000000000000000000000, which would be read as an int
        raise _refused(path, "int | float", "use float, int or Decimal alone: the store cannot tell them apart")
    for member in info.types:
        _walk(member, path, facts, above)


def _object(info: Any, path: str, facts: Facts, above: tuple[int, ...]) -> None:
    if id(info) in above:
        facts.recursive = True
        return
    if id(info) in facts.seen:
        return
    for part in info.fields:
        _walk(part.type, f"{path}.{part.name}" if path else part.name, facts, (*above, id(info)))
    facts.seen.add(id(info))


def _model(info: types.CustomType, path: str, facts: Facts, above: tuple[int, ...]) -> None:
    key = id(info.cls)  # msgspec makes a new description of such a class each time
    if problem := problem_of(info.cls):
        raise _refused(path, f"pydantic model {type_label(info.cls)}", problem)
    if key in above:
        facts.recursive = True
        return
    for name, declared in fields_of(info.cls).items():
        _walk(_info(declared), f"{path}.{name}" if path else name, facts, (*above, key))


def _unknown(info: types.Type, path: str) -> DefinitionError:
    if isinstance(info, types.AnyType):
        return _refused(path, "Any", "name the exact type, for example list[str] instead of list, or dict[str, int]")
    if isinstance(info, types.CustomType) and info.cls.__module__.startswith("pydantic"):
        return _refused(path, type_label(info.cls), "use the plain type; `Annotated[str, Sensitive]` hides a value")
    if isinstance(info, types.CustomType):
        return _refused(
            path,
            type_label(info.cls),
            "use a dataclass, msgspec.Struct, pydantic model, TypedDict or NamedTuple, or store its id",
        )
    kind = type(info).__name__.removesuffix("Type")
    return _refused(path, kind, "use bytes")


def _refused(path: str, what: str, use: str) -> DefinitionError:
    at = f"field `{path}`: " if path else ""
    return DefinitionError(f"{at}{what} would not come back as it was; {use}")


def type_label(declared: Any) -> str:
    """A type as a reader would write it, without module names: the same in every process."""
    if get_origin(declared) is Annotated:  # what is said beside a type, such as Sensitive, makes it no other type
        declared = get_args(declared)[0]
    arguments = get_args(declared)
    if not arguments:
        if declared is type(None):
            return "None"
        return getattr(declared, "__qualname__", None) or repr(declared).removeprefix("typing.")
    inner = [type_label(each) if isinstance(each, type) or get_args(each) else repr(each) for each in arguments]
    origin = get_origin(declared)
    name = getattr(origin, "__qualname__", None) or repr(origin).removeprefix("typing.")
    if name in ("Union", "UnionType"):
        return " | ".join(inner)
    return f"{name}[{', '.join(inner)}]"
