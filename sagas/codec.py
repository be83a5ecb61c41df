"""Values to JSON and back, exactly.

What is written must be what a worker reads, hours later, in another process, after jsonb
has reordered keys and respelled numbers. So a value is stored only if reading it back gives
an equal value of the same type. The fast path is one encode, one decode and one encode more;
`sagas.mismatch` searches for the culprit only when that objects.

A datetime comes back as the same instant with a fixed offset: the name of its zone is not kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from sagas.errors import CodecError, InvalidInput, Misfit, PayloadTooLarge
from sagas.mismatch import MAX_DEPTH, Problem, find_difference, find_problem, find_refused, hidden
from sagas.pydantic_models import dump, is_model, load
from sagas.storable import check_type, facts_of

__all__ = ["DEFAULT_LIMIT", "MAX_DEPTH", "canonical", "check_type", "decode", "encode", "fingerprint", "same_input"]

DEFAULT_LIMIT = 1024 * 1024  # bytes of one payload

NAIVE = re.compile(rb'T\d\d:\d\d:\d\d(?:\.\d+)?"')  # a datetime without offset ends like this
NOT_FINITE = re.compile(rb'"-?(?:Inf|s?NaN)')  # a Decimal that is no number begins like this
WHERE = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
HARMLESS = re.compile(r"(?:field `\w+`: )?(?:Expected `[\w |]+`(?:, got `\w+`)?|Object missing required field `\w+`)\Z")
NONE_TYPE = type(None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shape:
    """How values of one declared type are written, read and checked."""

    write: Callable[[object], bytes]
    read: Callable[[bytes | str], Any]
    datetimes: bool
    decimals: bool
    recursive: bool
    sensitive: bool

    def suspicious(self, raw: bytes) -> bool:
        """Whether the bytes may hold what only the slow search can judge."""
        return (
            b"\\u0000" in raw
            or (self.datetimes and NAIVE.search(raw) is not None)
            or (self.decimals and NOT_FINITE.search(raw) is not None)
            or (self.recursive and raw.count(b"{") + raw.count(b"[") > MAX_DEPTH)
        )


def encode(
    value: object,
    *,
    declared: Any,
    limit: int = DEFAULT_LIMIT,
    what: str = "input",
    error: type[CodecError] = InvalidInput,
    of: str = "",
) -> bytes:
    """JSON of a value, which `decode` turns into an equal value again.

    Args:
        value: what to store.
        declared: the type it was declared with.
        limit: most bytes allowed.
        what: what to call the value; begins the path of a field in the message.
        error: the class to raise, `InvalidInput` or `Unstorable`.
        of: whose value it is, such as `saga shop.place_order`; ends the message.

    Raises:
        CodecError: (of the given class) the value would not come back as it is; `path` names the field.
        PayloadTooLarge: it takes more than `limit` bytes.
    """
    if value is None and (declared is NONE_TYPE or declared is None):
        return b"null"
    shape = _shape(declared)
    try:
        raw = shape.write(value)
        if len(raw) > limit:
            raise _too_large(len(raw), limit, what, of)
        back = shape.read(raw)
        again = shape.write(back)
        same = again == raw and bool(back == value)
    except CodecError:
        raise
    except (Exception, RecursionError) as problem:
        with hidden(shape.sensitive):
            path, reason = find_problem(value, what) or _from_msgspec(problem, what, shape)
            if path == what:  # msgspec names no place when it cannot write
                path = find_refused(value, what, shape.write)
        _refuse(error, (path, reason), None if shape.sensitive else problem, of=of)
    if same and not shape.suspicious(raw):
        return raw
    with hidden(shape.sensitive):
        found = find_problem(value, what) or find_difference(value, back, what)
    if found is not None:
        _refuse(error, found, of=of)
    return again


def encode_plain(value: object, *, limit: int, what: str) -> bytes:
    """JSON of a value that nobody declared a type for, so that it has to be of JSON's own: it comes back as it is.

    Args:
        value: what to store: text, numbers, True, False, None, lists, and dicts with text keys.
        limit: most bytes allowed.
        what: what to call the value; begins the path of a field in the message.

    Raises:
        InvalidInput: it has something else, or text that Postgres cannot store; `path` names the field.
        PayloadTooLarge: it takes more than `limit` bytes.
    """
    try:
        raw = _fast.encode(value)
        found = find_problem(value, what) or find_difference(value, msgspec.json.decode(raw), what)
    except (Exception, RecursionError) as problem:
        _refuse(InvalidInput, find_problem(value, what) or _from_msgspec(problem, what), problem)
    if len(raw) > limit:
        raise _too_large(len(raw), limit, what)
    if found is not None:
        _refuse(InvalidInput, found)
    return raw


def decode(raw: bytes | str, declared: Any, *, what: str = "value") -> Any:
    """The value of stored JSON, also after jsonb has reordered keys and respelled numbers.

    Args:
        raw: JSON text.
        declared: the type it was stored as.
        what: what to call the value in the message.

    Raises:
        Misfit: it does not fit; the definition has probably changed without a new version.
    """
    shape = _shape(declared)
    try:
        return shape.read(raw)
    except Exception as problem:  # `__post_init__` is the application's, and may raise whatever it likes
        path, reason = _from_msgspec(problem, what, shape)
        cause = None if shape.sensitive else problem
        raise Misfit(f"{path}: what is stored does not fit the declared type: {reason}", path=path) from cause


def canonical(raw: bytes | str) -> bytes:
    """The one spelling of equal JSON: keys sorted, no white space, whole numbers without a fraction."""
    try:
        return _sorted.encode(_untyped.decode(raw))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise CodecError(f"not readable as JSON: {problem}") from problem


def fingerprint(raw: bytes | str) -> str:
    """SHA-256 (hex) of JSON that does not depend on key order, white space or the spelling of numbers."""
    return hashlib.sha256(canonical(raw)).hexdigest()


def same_input(stored: bytes | str, given: bytes | str, declared: Any) -> bool:
    """Whether two inputs are the same once fields added since, with a default, are filled in.

    Args:
        stored: JSON of an earlier input.
        given: JSON of the input now.
        declared: the input type now.
    """
    shape = _shape(declared)
    try:
        before, now = shape.read(stored), shape.read(given)
        # not by their JSON alone: msgspec leaves out defaults of a dataclass that it has read
        return find_difference(now, before, "input") is None or canonical(shape.write(before)) == canonical(
            shape.write(now)
        )
    except Exception:  # stored under a type that no longer fits, whatever that raises: certainly another input
        return False


def _plain(value: object) -> object:
    """Models by their fields; subclasses of the plain types (a safe string, numpy's float64) as what they are."""
    if isinstance(value, str):
        return str.__str__(value)  # str(value) may give the subclass again
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if is_model(type(value)):
        return dump(value)
    raise NotImplementedError(f"objects of type {type(value).__name__} cannot be stored")


def _whole(token: str) -> float | int:
    number = float(token)
    # by way of Decimal: jsonb pads the decimal digits with zeros, int(number) would give those of the binary value
    return int(Decimal(token)) if number.is_integer() else number


_fast = msgspec.json.Encoder(enc_hook=_plain)
_ordered = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")  # sets have no order of their own
_sorted = msgspec.json.Encoder(order="sorted")
_untyped = msgspec.json.Decoder(float_hook=_whole)


def _write_in_order(value: object) -> bytes:
    """For dicts with keys that are no text: the encoder orders only what is below dicts with text keys."""
    return _fast.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain))


@lru_cache(maxsize=4096)
def _shape(declared: Any) -> _Shape:
    facts = facts_of(declared)
    return _Shape(
        write=_fast.encode if not facts.sets else _write_in_order if facts.other_keys else _ordered.encode,
        read=msgspec.json.Decoder(declared, dec_hook=load).decode,
        datetimes=facts.datetimes,
        decimals=facts.decimals,
        recursive=facts.recursive,
        sensitive=facts.sensitive,
    )


def _from_msgspec(problem: BaseException, what: str, shape: _Shape | None = None) -> Problem:
    if isinstance(problem, RecursionError):
        return what, f"nested deeper than {MAX_DEPTH} levels"
    found = WHERE.match(str(problem))
    assert found is not None  # the pattern matches any text
    reason = found["reason"] or type(problem).__name__
    if isinstance(problem, LookupError | AssertionError) and found["reason"]:  # their texts are no sentences
        reason = f"{type(problem).__name__}: {reason}"
    if shape and shape.sensitive and not HARMLESS.match(reason):  # it may repeat the value, or be of the application
        reason = "does not fit the declared type (not shown: it has sensitive fields)"
    return what + (found["path"] or ""), reason


def _refuse(
    error: type[CodecError], problem: Problem, cause: BaseException | None = None, *, of: str = ""
) -> NoReturn:  # fmt: skip
    path, reason = problem
    raise error(f"{path}: {reason}{_whose(of)}", path=path) from cause


def _too_large(size: int, limit: int, what: str, of: str = "") -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what}: {size:,} bytes of JSON, {limit:,} are allowed; store it elsewhere and pass a reference to it, "
        f"or raise max_payload{_whose(of)}",
        path=what,
    )


def _whose(of: str) -> str:
    return f" ({of})" if of else ""
