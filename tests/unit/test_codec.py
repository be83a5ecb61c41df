"""What is stored is what comes back; what would not come back is refused by name."""

from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagas import CodecError, DefinitionError, InvalidInput, PayloadTooLarge, Unstorable
from sagas.codec import DEFAULT_LIMIT, canonical, check_type, decode, encode, fingerprint, same_input
from sagas.errors import Misfit


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Box(TypedDict, total=False):
    width: int
    label: str


@dataclasses.dataclass(frozen=True)
class Address:
    city: str
    lines: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Customer:
    id: UUID
    address: Address
    credit: Decimal | None = None


@dataclasses.dataclass(eq=False)
class NoEquality:
    amount: int


@dataclasses.dataclass
class Hidden:
    amount: int
    note: str = dataclasses.field(default="", compare=False)


class Node(msgspec.Struct):
    below: Node | None = None


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
CUSTOMER = Customer(uuid4(), Address("Zürich", ["a", "b"]), Decimal("1.10"))


def nested(levels: int) -> Node | None:
    node = None
    for _ in range(levels):
        node = Node(node)
    return node


def as_jsonb(raw: bytes) -> str:
    """What Postgres hands back: shorter keys first, blanks after separators, the last of duplicate keys."""

    def reorder(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reorder(value[key]) for key in sorted(value, key=lambda k: (len(k.encode()), k.encode()))}
        return [reorder(each) for each in value] if isinstance(value, list) else value

    return json.dumps(reorder(json.loads(raw)))


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (None, None),
        (None, type(None)),
        (True, bool),
        (0, int),
        (2**63 - 1, int),
        (2**64 + 1, int),
        (-(10**20), int),
        (10**1000, int),
        (1.5, float),
        (1e22, float),
        (5e-324, float),
        (1.7976931348623157e308, float),
        ("Grüße \U0001f600 \\u0000 \u2028", str),
        (b"\x00\xff", bytes),
        (Decimal("1.10"), Decimal),
        (Decimal("12345678901234567.890"), Decimal),
        (UUID(int=7), UUID),
        (NOON, datetime),
        (date(2026, 2, 28), date),
        (time(23, 59, 59, 999999), time),
        (timedelta(days=-1, microseconds=1), timedelta),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        ("a", Literal["a", "b"]),
        (Point(1, 2), Point),
        ({"width": 3}, Box),
        (CUSTOMER, Customer),
        ([CUSTOMER, CUSTOMER], list[Customer]),
        (Dog("rex"), Cat | Dog),
        ({"b": 1, "a": 2}, dict[str, int]),
        ({2: "b", 1: "a"}, dict[int, str]),
        ({UUID(int=1): Decimal("2.50")}, dict[UUID, Decimal]),
        ({Colour.RED: 1}, dict[Colour, int]),
        ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ({3, 1, 2}, set[int]),
        (frozenset({"a", "b"}), frozenset[str]),
        (None, str | None),
        ([1], Sequence[int]),
        ({"a": 1}, Mapping[str, int]),
    ],
)
def test_round_trip(value: Any, declared: Any) -> None:
    """A storable value comes back equal and of the same type, also through jsonb."""
    check_type(declared)
    raw = encode(value, declared=declared)
    for stored in (raw, raw.decode(), as_jsonb(raw)):
        back = decode(stored, declared)
        assert back == value
        assert type(back) is type(value)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    st.dictionaries(TEXT, TEXT),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.timezones()),
)
def test_any_finite_value_comes_back(texts: dict[str, str], number: float, amount: Decimal, moment: datetime) -> None:
    """Text, floats and decimals come back exactly; a datetime as the same instant or not at all."""
    assert decode(encode(texts, declared=dict[str, str]), dict[str, str]) == texts
    assert decode(encode(number, declared=float), float) == number
    assert str(decode(encode(amount, declared=Decimal), Decimal)) == str(amount)
    try:
        raw = encode(moment, declared=datetime)
    except InvalidInput:
        assert moment.utcoffset().total_seconds() % 60 or moment.year in (1, 9999)  # type: ignore[union-attr]
    else:
        assert decode(raw, datetime).astimezone(UTC) == moment.astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "declared", "path", "words"),
    [
        (float("nan"), float, "input", "nan"),
        ({"a": float("nan")}, dict[str, float | None], "input['a']", "nan"),
        ([1.0, float("-inf")], list[float], "input[1]", "inf"),
        (Decimal("NaN"), Decimal, "input", "NaN"),
        (Decimal("sNaN"), Decimal, "input", "NaN"),
        (Decimal("-Infinity"), Decimal, "input", "Infinity"),
        ("a\x00b", str, "input", "NUL"),
        ("\ud800", str, "input", "surrogate"),
        ({"k\x00": 1}, dict[str, int], "input", "NUL"),
        ({"k\udfff": 1}, dict[str, int], "input", "surrogate"),
        (Customer(uuid4(), Address("x\x00")), Customer, "input.address.city", "NUL"),
        (Customer(uuid4(), Address("x", ["ok", "\x00"])), Customer, "input.address.lines[1]", "NUL"),
        (datetime(2026, 1, 1), datetime, "input", "time zone"),
        ([datetime(2026, 1, 1, 1, 2, 3, 4)], list[datetime], "input[0]", "time zone"),
        pytest.param(10**5000, int, "input", "digits", id="huge int"),
        pytest.param({10**5000: 1}, dict[int, int], "input", "digits", id="huge key"),
        (2**53 + 1, float, "input", "come back"),
        (True, int, "input", "bool"),
        (1.0, int, "input", "float"),
        (5, Decimal, "input", "int"),
        (uuid4(), str, "input", "UUID"),
        (Colour.RED, str, "input", "Colour"),
        ((1, 2), list[int], "input", "tuple"),
        ("x", None, "input", "null"),
        (object(), Customer, "input", "object"),
        (Customer(uuid4(), {"city": "x", "lines": []}), Customer, "input.address", "dict"),  # type: ignore[arg-type]
        (Customer("no uuid", Address("x")), Customer, "input.id", "UUID"),  # type: ignore[arg-type]
        ({"width": 1, "depth": 2}, Box, "input", "depth"),
        ({1: 1, "1": 2}, dict[str, int], "input", "come back"),
        (datetime(1800, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")), datetime, "input", "come back"),
    ],
)
def test_refused_by_name(value: Any, declared: Any, path: str, words: str) -> None:
    """A value that would come back changed is refused with the field and the reason."""
    with pytest.raises(InvalidInput) as caught:
        encode(value, declared=declared)
    assert caught.value.path == path
    assert words in str(caught.value)
    assert str(caught.value).startswith(path)


def test_error_class_and_name_are_the_callers() -> None:
    """Results are refused as Unstorable under the name they are given."""
    with pytest.raises(Unstorable, match=r"^result of charge: has a NUL"):
        encode("\x00", declared=str, what="result of charge", error=Unstorable)


def test_repeated_hour_is_accepted() -> None:
    """Python's == between zones is False in an hour that clocks repeat; the instant is the same all the same."""
    for fold in (0, 1):
        moment = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=fold)
        assert decode(encode(moment, declared=datetime), datetime).timestamp() == moment.timestamp()


def test_what_type_checkers_accept_is_accepted() -> None:
    """An int where float is declared, and subclasses of plain types, are stored as the declared type."""

    class SafeText(str):
        pass

    assert encode(5, declared=float) == b"5.0"
    assert decode(encode(SafeText("a"), declared=str), str) == "a"
    assert decode(encode([SafeText("a")], declared=list[str]), list[str]) == ["a"]


def test_classes_without_useful_equality() -> None:
    """Comparison looks at the fields, not at what __eq__ says."""
    assert decode(encode(NoEquality(3), declared=NoEquality), NoEquality).amount == 3
    assert decode(encode(Hidden(3, "kept"), declared=Hidden), Hidden).note == "kept"


def test_depth() -> None:
    """A hundred levels are stored; one more, a hundred thousand more or a cycle is a clear error."""
    assert encode(nested(100), declared=Node)
    cycle = Node()
    cycle.below = cycle
    for value in (nested(101), nested(2000), cycle):
        with pytest.raises(InvalidInput, match="nested deeper than 100") as caught:
            encode(value, declared=Node)
        assert len(str(caught.value)) < 200
    with pytest.raises(CodecError, match="nested deeper"):
        decode(b'{"below":' * 100_000, Node)


def test_size() -> None:
    """More bytes than allowed is PayloadTooLarge, with both numbers."""
    assert len(encode("x" * 98, declared=str, limit=100)) == 100
    with pytest.raises(PayloadTooLarge, match="101 bytes of JSON, 100 are allowed"):
        encode("x" * 99, declared=str, limit=100)
    with pytest.raises(PayloadTooLarge):
        encode("x" * DEFAULT_LIMIT, declared=str)


@pytest.mark.parametrize("stored", [b"10000000000000000000000", b"1e22", b"1.0E+22"])
def test_float_respelled_by_jsonb(stored: bytes) -> None:
    """jsonb writes 1e22 as an integer; it still comes back as a float."""
    back = decode(stored, float)
    assert back == 1e22
    assert type(back) is float


def test_decode_names_the_field() -> None:
    """A stored value of an older shape is an error with its path."""
    with pytest.raises(CodecError, match=r"result\.address\.city") as caught:
        decode(b'{"id":"%s","address":{"city":1}}' % str(uuid4()).encode(), Customer, what="result")
    assert caught.value.path == "result.address.city"
    for garbage in (b"", b"{", b"\xff"):
        with pytest.raises(CodecError):
            decode(garbage, Customer)


class Plain:
    pass


@dataclasses.dataclass
class HasAny:
    things: list[Any]


@dataclasses.dataclass
class HasInitVar:
    a: int
    b: dataclasses.InitVar[int] = 0


class Mixed(enum.Enum):
    A = 1
    B = "b"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Any, "Any"),
        (object, "object"),
        (list, "Any"),
        (dict, r"Any.*exact type.*dict\[str, int\]"),
        (dict[Any, int], "Any.*exact type"),
        (dict[str, dict], "Any.*exact type"),  # type: ignore[type-arg]
        (set, "Any.*exact type"),
        (frozenset, "Any.*exact type"),
        (Plain, "Plain"),
        (HasAny, "things"),
        (HasInitVar, "InitVar"),
        (Callable[[], int], "Callable"),
        (type, "type"),
        (complex, "complex"),
        (int | float, "int . float"),
        (list[int | float | None], "int . float"),
        (dict[float, int], "keys"),
        (dict[bytes, int], "keys"),
        (dict[tuple[int, int], int], "keys"),
        (set[float], "list"),
        (set[str | int], "list"),
        (memoryview, "bytes"),
        (msgspec.Raw, "Raw"),
        (Mixed, "Enum"),
        (datetime | str, "str-like"),
        (Address | Customer, "more than one dataclass"),
        (tuple[int, Plain], "Plain"),
        (Exception, "Exception"),
    ],
)
def test_types_that_cannot_be_stored(declared: Any, words: str) -> None:
    """A type whose values would not come back is refused before there is a value."""
    with pytest.raises(DefinitionError, match=words) as caught:
        check_type(declared, where="result of step 'charge'")
    assert str(caught.value).startswith("result of step 'charge'")


@dataclasses.dataclass
class NamesNothing:
    value: DoesNotExist  # type: ignore[name-defined]  # noqa: F821


def test_unknown_names_are_left_to_the_caller() -> None:
    """A type that does not exist yet is no definition error: it may come into being."""
    with pytest.raises(NameError):
        check_type(NamesNothing)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.floats(-1e30, 1e30)))
def test_fingerprint_ignores_spelling(value: dict[str, float]) -> None:
    """Key order, white space and the spelling of numbers do not change the hash."""
    raw = msgspec.json.encode(value)
    other = json.dumps(dict(reversed(value.items())), indent=1)
    assert fingerprint(raw) == fingerprint(other) == fingerprint(canonical(raw))


def test_fingerprint_tells_apart() -> None:
    """Different values have different hashes, also beyond 64 bits and 53 bits."""
    texts = ["1", "2", '"1"', "null", "[1]", "[]", "{}", str(2**64), str(2**64 + 1), str(2**53), str(2**53 + 1), "0.1"]
    assert len({fingerprint(text) for text in texts}) == len(texts)
    assert fingerprint("1e22") == fingerprint("10000000000000000000000")
    assert fingerprint("1.7976931348623157e308") == fingerprint("17976931348623157" + "0" * 292)
    assert fingerprint("5.0") == fingerprint("5")
    assert fingerprint("-0.0") == fingerprint("0")


def test_hash_of_a_set_is_the_same_in_every_process() -> None:
    """Sets have no order; their JSON has, whatever the hash seed."""
    program = "from sagas.codec import encode; print(encode({'a','b','c','d'}, declared=set[str]).decode())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in "123"
    }
    assert seen == {'["a","b","c","d"]\n'}


def test_added_field_with_default_is_the_same_input() -> None:
    """An input stored before a field was added equals one that leaves the field at its default."""
    assert same_input(b'{"city":"x"}', b'{"lines":[],"city":"x"}', Address)
    assert not same_input(b'{"city":"x"}', b'{"lines":["1"],"city":"x"}', Address)
    assert not same_input(b'{"town":"x"}', b'{"lines":[],"city":"x"}', Address)


@dataclasses.dataclass
class LooksItselfUp:
    """Its class raises what msgspec does not turn into an error of its own."""

    currency: str

    def __post_init__(self) -> None:
        {"EUR": 1}[self.currency]


def test_whatever_a_class_raises_says_that_it_does_not_fit() -> None:
    """What was stored when its class still let it pass."""
    with pytest.raises(Misfit, match="KeyError: 'DEM'"):
        decode(b'{"currency":"DEM"}', LooksItselfUp)
    assert not same_input(b'{"currency":"DEM"}', b'{"currency":"EUR"}', LooksItselfUp)
