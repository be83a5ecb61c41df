"""Fields that are stored and used, and never shown: `card: Annotated[str, Sensitive]`.

The mark is msgspec's own metadata, so that one way of writing it does for dataclasses, structs, typed dicts, named
tuples and pydantic models, and for a whole input, result or signal.

Who shows a payload shows its masked form. Who writes down an error takes out of it the sensitive values that the body
had at hand: a text of the application's own may repeat them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from sagas.pydantic_models import dump, fields_of, is_model

MASK: Final = "***"
MARK: Final = "sagas-sensitive"
SHORT: Final = 4  # characters: what is shorter is masked only where it stands alone
MOST: Final = 1000  # values that are looked for in one text

Sensitive: Final = msgspec.Meta(extra={MARK: True})


def marks(info: types.Type) -> bool:
    """Whether this part of a type, and all in it, is marked."""
    return isinstance(info, types.Metadata) and bool((info.extra or {}).get(MARK))


def masked(found: Any, declared: Any) -> Any:
    """Plain JSON of a payload with its sensitive parts masked.

    Args:
        found: what was read from JSON.
        declared: the type it was stored as.
    """
    return _masked(found, info_of(declared))


def secrets(value: Any, declared: Any) -> frozenset[str]:
    """How the sensitive parts of a value may stand in a text.

    Args:
        value: an input or a result.
        declared: its type.
    """
    found = (text for leaf in _parts(value, info_of(declared)) for text in _spellings(leaf))
    return frozenset(text for _, text in zip(range(MOST), found, strict=False) if text)


def scrub(text: str, hidden: Iterable[str]) -> str:
    """A text without certain values, longest first."""
    for each in sorted(hidden, key=len, reverse=True):
        alone = len(each) < SHORT
        text = re.sub(rf"(?<!\w){re.escape(each)}(?!\w)", MASK, text) if alone else text.replace(each, MASK)
    return text


@lru_cache(maxsize=4096)
def info_of(declared: Any) -> types.Type:
    """What msgspec says of a type."""
    return types.type_info(declared)


def members(info: Any) -> list[tuple[str, str, types.Type]]:
    """Fields of an object type: attribute, name in JSON, type."""
    if isinstance(info, types.CustomType):
        return [(name, name, info_of(each)) for name, each in fields_of(info.cls).items()] if is_model(info.cls) else []
    return [(each.name, each.encode_name, each.type) for each in info.fields]


OBJECTS: Final = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType, types.CustomType)
ITEMS: Final = (types.ListType, types.VarTupleType, types.SetType, types.FrozenSetType)


def _masked(found: Any, info: types.Type) -> Any:
    if found is None:
        return None
    if marks(info):
        return MASK
    match info:
        case types.Metadata():
            return _masked(found, info.type)
        case types.UnionType():
            for each in info.types:  # what is sensitive in one of them is masked in all
                found = _masked(found, each)
            return found
        case types.DictType() if isinstance(found, dict):
            keep = not marks(info.key_type)
            return {key: _masked(each, info.value_type) for key, each in found.items()} if keep else MASK
        case types.TupleType() if isinstance(found, list):
            return [_masked(*each) for each in zip(found, info.item_types, strict=False)]
        case _ if isinstance(info, ITEMS) and isinstance(found, list):
            return [_masked(each, info.item_type) for each in found]
        case _ if isinstance(info, OBJECTS) and isinstance(found, dict):
            kinds = {name: kind for _, name, kind in members(info)}
            return {name: _masked(each, kinds[name]) if name in kinds else each for name, each in found.items()}
        case _ if isinstance(info, OBJECTS) and isinstance(found, list):  # a named tuple, or a struct like one
            tagged = len(found) - len(members(info))
            return found[:tagged] + [
                _masked(each, kind) for each, (_, _, kind) in zip(found[tagged:], members(info), strict=False)
            ]
    return found


def _parts(value: Any, info: types.Type) -> Iterator[Any]:
    """The values of what is marked, without what they are part of."""
    if marks(info):
        yield from _leaves(value)
        return
    match info:
        case types.Metadata():
            yield from _parts(value, info.type)
        case types.UnionType():
            for each in info.types:
                yield from _parts(value, each)
        case types.DictType() if isinstance(value, dict):
            for key, each in value.items():
                yield from _parts(key, info.key_type)
                yield from _parts(each, info.value_type)
        case types.TupleType() if isinstance(value, tuple):
            for each, kind in zip(value, info.item_types, strict=False):
                yield from _parts(each, kind)
        case _ if isinstance(info, ITEMS) and isinstance(value, list | tuple | set | frozenset):
            for each in value:
                yield from _parts(each, info.item_type)
        case types.TypedDictType() if isinstance(value, dict):
            for name, _, kind in members(info):
                if name in value:
                    yield from _parts(value[name], kind)
        case _ if isinstance(info, OBJECTS) and not isinstance(info, types.TypedDictType):
            if isinstance(value, info.cls):
                for name, _, kind in members(info):
                    yield from _parts(getattr(value, name, None), kind)


def _leaves(value: Any) -> Iterator[Any]:
    """What a sensitive value is made of."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(key)
            yield from _leaves(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _leaves(each)
    elif is_model(type(value)):
        yield from _leaves(dump(value))
    elif hasattr(value, "__dataclass_fields__") or hasattr(value, "__struct_fields__"):
        names = getattr(value, "__dataclass_fields__", None) or value.__struct_fields__
        yield from _leaves([getattr(value, name, None) for name in names])
    elif value is not None and not isinstance(value, bool):
        yield value


def _spellings(leaf: Any) -> Iterator[str]:
    """A value as `str`, `repr` and JSON would have it in a text."""
    if isinstance(leaf, bytes):
        yield leaf.decode("utf-8", "replace")
        yield repr(leaf)[2:-1]
    else:
        yield str(leaf)
        yield repr(leaf).strip("'\"")
    yield msgspec.json.encode(leaf, enc_hook=str).decode().strip('"')
