"""Lists of what the other side knows: JSON Lines or CSV, one effect a line, each with its idempotency key."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from sagas.errors import InvalidInput

KEYS: Final = ("key", "idempotency_key")
REFERENCES: Final = ("reference", "id")
TIMES: Final = ("at", "time", "created", "created_at")
DIRECTIONS: Final = ("do", "undo")


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One effect that the other side knows of.

    Attributes:
        key: the idempotency key it came under.
        reference: what the other side calls it.
        amount: as it is said there.
        at: when, as it is said there.
        result: JSON of what the step would have returned; None: nobody says.
    """

    key: str
    reference: str = ""
    amount: str = ""
    at: str = ""
    result: str | None = None


class Address(NamedTuple):
    """What an idempotency key of ours says; see `sagas.keys`."""

    saga_id: UUID
    step: str
    effect: str  # name of an `effect()` of the step; nothing: the step itself
    direction: str
    generation: int


def address(key: str) -> Address | None:
    """What a key says; None for one that is none of ours."""
    parts = key.rsplit(":", 3)
    if len(parts) != 4:
        return None
    saga, step, direction, generation = parts
    name, _, effect = step.partition("/")
    try:
        found = Address(UUID(saga), name, effect, direction, int(generation))
    except ValueError:
        return None
    return found if direction in DIRECTIONS and name and found.generation >= 0 else None


def read(path: Path, *, key: str = "") -> Iterator[Effect]:
    """The effects of a list.

    Args:
        path: a file of JSON Lines, or of CSV with a line of names first.
        key: name of the field that holds the idempotency key; nothing: "key" or "idempotency_key".

    Raises:
        InvalidInput: it cannot be read, or a line has no such field; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"{path}: {problem}", path="list") from problem
    lines = _json_lines(path, text) if text.lstrip().startswith("{") else _csv_lines(path, text)
    for number, fields in lines:
        found = _first(fields, (key,) if key else KEYS)
        if found is None:
            wanted = key or " or ".join(KEYS)
            raise InvalidInput(
                f"{path} line {number}: it has no {wanted}; it has {', '.join(fields) or 'nothing'}. Say which field "
                f"is the idempotency key with --key", path="list",
            )  # fmt: skip
        yield Effect(
            key=_text(found), reference=_text(_first(fields, REFERENCES)), amount=_text(fields.get("amount")),
            at=_text(_first(fields, TIMES)), result=_result(fields.get("result")),
        )  # fmt: skip


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            except msgspec.MsgspecError as problem:
                raise InvalidInput(f"{path} line {number}: no JSON object: {problem}", path="list") from problem


def _csv_lines(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    for fields in reader:
        yield reader.line_num, {name: value for name, value in fields.items() if name and isinstance(value, str)}


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _text(value: Any) -> str:
    """As it was written: an amount in particular."""
    if isinstance(value, msgspec.Raw):
        raw = bytes(value)
        return str(msgspec.json.decode(raw)) if raw.startswith(b'"') else raw.decode()
    return "" if value is None else str(value)


def _result(value: Any) -> str | None:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value or None
