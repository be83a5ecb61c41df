"""Any value of any storable type comes back as it was: types and values are made up by hypothesis."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from sagas import DefinitionError, InvalidInput, Saga, Sensitive, external_step
from sagas.codec import check_type, decode, encode

T = TypeVar("T")
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
OrderNumber = NewType("OrderNumber", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Auto(enum.Enum):
    ONE = enum.auto()
    TWO = enum.auto()


class Spot(NamedTuple):
    x: int
    label: str | None = None


class Box(TypedDict, total=False):
    width: Decimal
    tags: list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Generic[T]):
    left: T
    right: T
    note: str = "none"


class Parcel(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: UUID
    weight: Decimal = Field(default=Decimal("0.10"), ge=0)
    colours: tuple[Colour, ...] = ()
    spot: Spot | None = None
    by_number: dict[int, datetime] = {}
    raw: bytes = b""
    inner: Parcel | None = None


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Wrapped(pydantic.RootModel[list[Decimal]]):
    pass


moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES)
parcels: st.SearchStrategy[Parcel] = st.deferred(
    lambda: st.builds(
        Parcel, id=st.uuids(), weight=st.decimals(0, 10**20, allow_nan=False, allow_infinity=False),
        colours=st.lists(st.sampled_from(Colour), max_size=3).map(tuple), raw=st.binary(max_size=9),
        spot=st.none() | st.builds(Spot, st.integers(-9, 9), st.none() | TEXT),
        by_number=st.dictionaries(st.integers(-(2**40), 2**40), moments, max_size=2), inner=st.none() | parcels,
    )
)  # fmt: skip
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, st.integers(-(10**30), 10**30)),
    (float, st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)),
    (str, TEXT),
    (bytes, st.binary(max_size=20)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (datetime, moments),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=ZONES)),
    (timedelta, st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Level, st.sampled_from(Level)),
    (Auto, st.sampled_from(Auto)),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (OrderNumber, st.integers(0, 10**6)),
    (Annotated[str, Sensitive], TEXT),
    (Spot, st.builds(Spot, st.integers(-9, 9), st.none() | TEXT)),
    (Box, st.fixed_dictionaries({}, optional={"width": st.decimals(0, 9), "tags": st.lists(TEXT, max_size=2)})),
    (Parcel, parcels),
]
KEYS = [leaf for leaf in LEAVES if leaf[0] in (str, int, UUID, date, Colour, Size)]
ITEMS = [leaf for leaf in LEAVES if leaf[0] in (str, int, UUID, date, Decimal)]

Made = tuple[Any, st.SearchStrategy[Any]]
_count = iter(range(10**9))


def fields_of(inner: Made, other: Made) -> dict[str, Made]:
    return {"first": inner, "second": other, "maybe": optional(inner)}


def optional(inner: Made) -> Made:
    return Optional[inner[0]], st.none() | inner[1]  # noqa: UP045 - made at run time


def as_dataclass(inner: Made, other: Made) -> Made:
    fields = fields_of(inner, other)
    made = dataclasses.make_dataclass(
        f"D{next(_count)}", [(name, kind) for name, (kind, _) in fields.items()], frozen=True, slots=True, kw_only=True
    )
    return made, st.builds(made, **{name: values for name, (_, values) in fields.items()})


def as_struct(inner: Made, other: Made) -> Made:
    fields = fields_of(inner, other)
    made = msgspec.defstruct(f"S{next(_count)}", [(name, kind) for name, (kind, _) in fields.items()], rename="camel")
    return made, st.builds(made, **{name: values for name, (_, values) in fields.items()})


def as_model(inner: Made, other: Made) -> Made:
    fields = fields_of(inner, other)
    made: Any = pydantic.create_model(
        f"M{next(_count)}", __config__=ConfigDict(arbitrary_types_allowed=True),
        **{name: (kind, ...) for name, (kind, _) in fields.items()},
    )  # fmt: skip
    # without its own parsing, which would make other values of some of these (an int of a bool)
    build: Callable[..., Any] = made.model_construct
    return made, st.builds(build, **{name: values for name, (_, values) in fields.items()})


def as_generic(inner: Made, other: Made) -> Made:
    return Pair[inner[0]], st.builds(Pair, left=inner[1], right=inner[1], note=TEXT)


def wider(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    pairs = st.tuples(inner, st.sampled_from(LEAVES))
    return st.one_of(
        inner.map(lambda made: (list[made[0]], st.lists(made[1], max_size=3))),
        inner.map(lambda made: (tuple[made[0], ...], st.lists(made[1], max_size=3).map(tuple))),
        pairs.map(lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))),
        inner.map(optional),
        st.tuples(st.sampled_from(KEYS), inner).map(
            lambda two: (dict[two[0][0], two[1][0]], st.dictionaries(two[0][1], two[1][1], max_size=3))
        ),
        st.sampled_from(ITEMS).map(lambda made: (set[made[0]], st.sets(made[1], max_size=4))),
        st.sampled_from(ITEMS).map(lambda made: (frozenset[made[0]], st.frozensets(made[1], max_size=4))),
        pairs.map(lambda two: as_dataclass(*two)),
        pairs.map(lambda two: as_struct(*two)),
        pairs.map(lambda two: as_model(*two)),
        pairs.map(lambda two: as_generic(*two)),
    )


types = st.recursive(st.sampled_from(LEAVES), wider, max_leaves=4)


def same(given: Any, back: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if isinstance(given, datetime):
        return type(back) is datetime and given.astimezone(UTC) == back.astimezone(UTC)
    if type(given) is not type(back):
        return False
    if isinstance(given, dict):
        return given.keys() == back.keys() and all(same(each, back[key]) for key, each in given.items())
    if isinstance(given, list | tuple):
        return len(given) == len(back) and all(map(same, given, back))
    if isinstance(given, BaseModel):
        return all(same(getattr(given, name), getattr(back, name)) for name in type(given).model_fields)
    if dataclasses.is_dataclass(given):
        names = [each.name for each in dataclasses.fields(given)]
        return all(same(getattr(given, name), getattr(back, name)) for name in names)
    if isinstance(given, msgspec.Struct):
        return all(same(getattr(given, name), getattr(back, name)) for name in given.__struct_fields__)
    return bool(given == back)


def like_jsonb(raw: bytes) -> str:
    """Reordered keys and other white space, as Postgres has it."""

    def reorder(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: reorder(value[key]) for key in sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            }
        return [reorder(each) for each in value] if isinstance(value, list) else value

    return json.dumps(reorder(json.loads(raw)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_of_any_type_comes_back(data: st.DataObject) -> None:
    """What a type accepts at class creation it gives back exactly, or refuses at the call: never another value."""
    declared, values = data.draw(types)
    check_type(declared)
    value = data.draw(values)
    try:
        raw = encode(value, declared=declared)
    except InvalidInput:
        if not holds_large_int_in_model(value):
            raise
        return
    for stored in (raw, like_jsonb(raw)):
        assert same(value, decode(stored, declared)), (declared, value, stored)
    assert encode(decode(raw, declared), declared=declared) == raw


def holds_large_int_in_model(value: Any, inside: bool = False) -> bool:
    """pydantic's fields are read by way of plain JSON, where an int has 64 bits."""
    if isinstance(value, BaseModel):
        return any(holds_large_int_in_model(getattr(value, name), True) for name in type(value).model_fields)
    if isinstance(value, dict):
        return any(holds_large_int_in_model(each, inside) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(holds_large_int_in_model(each, inside) for each in value)
    if dataclasses.is_dataclass(value):
        return any(holds_large_int_in_model(getattr(value, each.name), inside) for each in dataclasses.fields(value))
    if isinstance(value, msgspec.Struct):
        return any(holds_large_int_in_model(getattr(value, name), inside) for name in value.__struct_fields__)
    return inside and isinstance(value, int) and not -(2**63) <= value < 2**64


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")


class Private(BaseModel):
    a: int
    _seen: int = PrivateAttr(default=0)


class Secret(BaseModel):
    password: SecretStr


class Either(BaseModel):
    found: Parcel | Aliased


class Loose(BaseModel):
    anything: Any


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Extra, "declare it as a field"),
        (Private, "declare it as a field"),
        (Secret, r"`password`: SecretStr .* Sensitive"),
        (Either, "tagged msgspec.Struct"),
        (Loose, "`anything`: Any"),
        (str | UUID, "its own field"),
        (list[int] | tuple[int, ...], "its own field"),
        (set[Parcel], "use a list"),
    ],
)
def test_types_are_refused_by_name_when_the_class_is_made(declared: Any, words: str) -> None:
    """A type that would lose something is no input or result: the message names class, field and remedy."""
    with pytest.raises(DefinitionError, match=words):
        check_type(declared, where="input")
    with pytest.raises(DefinitionError, match="Refusing"):

        class Refusing(Saga[declared], name="test.refusing", version=1):
            @external_step
            def look(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "declared", "path"),
    [
        (Parcel(id=UUID(int=1), by_number={1: datetime(2026, 1, 1)}), Parcel, "input.by_number[1]"),
        (Parcel.model_construct(id="x"), Parcel, "input"),
        (Parcel.model_construct(), Parcel, "input"),
        (Pair(left=float("nan"), right=1.0), Pair[float], "input.left"),
        (Spot(x=1, label="\0"), Spot, "input.label"),
    ],
)
def test_values_are_refused_by_name_at_the_call(value: Any, declared: Any, path: str) -> None:
    """The field, the reason, and whose input it was."""
    with pytest.raises(InvalidInput, match=r"\(saga shop.place_order version 1\)$") as caught:
        encode(value, declared=declared, of="saga shop.place_order version 1")
    assert caught.value.path == path


def test_keys_that_are_shown_alike_are_no_difference() -> None:
    """Keys that messages shorten or hide are told apart all the same."""
    value = {"x" * 100 + letter: letter for letter in "ab"}
    assert decode(encode(value, declared=dict[str, str]), dict[str, str]) == value


def test_models_come_back_without_being_parsed_again() -> None:
    """Aliases play no part, root models work, and validators do not run on what is read."""
    ran = []

    class Checked(BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def note(cls, n: int) -> int:
            ran.append(n)
            return n

    value = Checked(n=3)
    assert decode(encode(value, declared=Checked), Checked) == value
    assert ran == [3]
    assert encode(Aliased(orderId=3), declared=Aliased) == b'{"order_id":3}'
    assert decode(b'{"order_id":3}', Aliased) == Aliased(orderId=3)
    assert decode(encode(Wrapped([Decimal("1.10")]), declared=Wrapped), Wrapped).root == [Decimal("1.10")]


def test_a_field_added_with_a_default_is_filled_in() -> None:
    """What was stored before a model had the field is read as with its default; a required one is missed by name."""
    assert decode(b'{"id":"%s"}' % str(UUID(int=1)).encode(), Parcel).weight == Decimal("0.10")
    with pytest.raises(Exception, match="missing required field `id`"):
        decode(b"{}", Parcel)


def test_sets_beside_keys_that_are_no_text() -> None:
    """Sets have one spelling in every process, also inside of dicts by number."""
    value = {7: {3, 1, 2}, 5: {9}}
    assert encode(value, declared=dict[int, set[int]]) == b'{"5":[9],"7":[1,2,3]}'
    assert decode(encode(value, declared=dict[int, set[int]]), dict[int, set[int]]) == value


def marker_type() -> Any:
    @dataclasses.dataclass
    class Card:
        number: Annotated[str, Sensitive]
        level: Level = Level.LOW
        colour: Annotated[Colour, Sensitive] = Colour.RED
        limits: Annotated[dict[str, float], Sensitive] = dataclasses.field(default_factory=dict)

        def __post_init__(self) -> None:
            if self.number == "MARKER-broken":
                raise ValueError(f"bad {self.number}")

    return Card


def broken(card: Any, **fields: Any) -> Any:
    value = card("x")
    for name, each in fields.items():
        setattr(value, name, each)
    return value


@pytest.mark.parametrize(
    "fields",
    [
        {"number": "MARKER\0"},
        {"number": ["MARKER"]},
        {"number": "MARKER-broken"},
        {"colour": "MARKER"},
        {"limits": {"MARKER\0": 1.0}},
        {"limits": {"MARKER": float("nan")}},
        {"level": 7},
    ],
    ids=str,
)
def test_messages_about_sensitive_types_show_no_value(fields: dict[str, Any]) -> None:
    """Neither the message nor what it was raised from repeats the value; the field is named all the same."""
    card = marker_type()
    with pytest.raises(InvalidInput) as caught:
        encode(broken(card, **fields), declared=card)
    problem: BaseException | None = caught.value
    assert caught.value.path.startswith("input")
    while problem is not None:
        assert "MARKER" not in str(problem) + repr(problem)
        problem = problem.__cause__
    stored = msgspec.json.encode({"number": "x", "colour": "MARKER"})
    with pytest.raises(Exception, match="does not fit") as read:
        decode(stored, card)
    assert "MARKER" not in str(read.value) and read.value.__cause__ is None
