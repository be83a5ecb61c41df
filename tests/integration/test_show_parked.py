"""What `show` and `list` tell whoever has to ask the other side what became of a parked saga, and then say so."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas import Refused
from tests.shop.payloads import MARKER, Order, Review, Vaulted
from tests.shop.sagas import Charge, Pivoted, Trip
from tests.shop.world import World
from tests.support.codecs import ZlibCodec
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")
NO_REPLY = OSError("no reply\x1b[2J")


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return out.getvalue()


def data(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))["data"]


def test_show_has_the_key_and_the_last_error(world: World) -> None:
    """The key that the other side was given, the kind and the text of the last error; its traceback where asked for."""
    world.always("charge", NO_REPLY)
    run = begin(Trip, "p")
    drain()
    key = f"{run.id}:charge:do:0"
    assert {call.key for call in world.calls if call.name == "charge"} == {key}
    text = said("show", "test.trip:p")
    assert f"key       {key} is the idempotency key of charge" in text
    assert text.count("again after") == 2  # the last of three attempts is followed by none
    (line,) = [line for line in text.splitlines() if line.startswith("error ")]
    assert line.startswith("error     charge, attempt 3: OSError: no reply [2J, ") and line.endswith(
        "; --traceback says where"
    )
    assert "Traceback (most recent call last)" not in text and "Traceback" in said("show", "test.trip:p", "--traceback")
    (at,) = data("show", "test.trip:p")["at"]
    assert (at["step"], at["direction"], at["idempotency_keys"]) == ("charge", "do", {"do": key})
    assert (at["error"]["type"], at["error"]["attempt"]) == ("OSError", 3)


def test_parked_on_the_way_back(world: World) -> None:
    """The key of the compensation, beside that of its step; earlier errors of the step itself are not shown."""
    world.plan("charge", OSError("late"))
    world.plan("confirm", Refused("sold out"))
    world.always("refund", OSError("bank is down"))
    run = begin(Trip, "p")
    drain()
    text = said("show", "test.trip:p")
    assert f"key       {run.id}:charge:do:0 is the idempotency key of charge" in text
    assert f"key       {run.id}:charge:undo:0 is the idempotency key of the compensation of charge" in text
    assert "error     charge (undo), attempt 3: OSError: bank is down, " in text and "\nerror     charge, " not in text
    assert {call.key for call in world.calls if call.name == "refund"} == {f"{run.id}:charge:undo:0"}


def test_what_it_turned_back_over(world: World) -> None:
    """A saga that has ended keeps the error of the step that turned it back: where, of which class, its traceback."""
    world.always("book", ZeroDivisionError("by zero"))
    begin(Trip, "failed")
    begin(Pivoted, "done")
    drain()
    text = said("show", "test.trip:failed")
    assert "status    compensated" in text and "reason    failed: by zero" in text
    assert "\nerror     book, attempt 3: ZeroDivisionError: by zero, " in text and "; --traceback says where" in text
    assert ", in book" in said("show", "test.trip:failed", "--traceback")
    over = data("show", "test.trip:failed")["turned_back_over"]
    assert (over["step"], over["error"]["type"], over["error"]["attempt"]) == ("book", "ZeroDivisionError", 3)
    assert "\nerror " not in said("show", "test.pivoted:done")
    assert "\nerror     none is kept: " in said("show", "test.pivoted:done", "--traceback")
    assert data("show", "test.pivoted:done")["turned_back_over"] is None


def test_local_steps_have_no_key(world: World) -> None:
    """Nobody else knows of them; nor does a redo give them a new one, or waits."""
    world.always("confirm", OSError("no printer"))
    begin(Pivoted, "p")
    drain()
    text = said("show", "test.pivoted:p")
    assert "error     confirm, attempt 3: OSError: no printer" in text and "is the idempotency key" not in text
    with pytest.raises(
        CommandError, match=r"^redo: .*, and it is done again: .* what it wrote is written twice\. Pass "
    ):
        said("redo", "test.pivoted:p", "confirm", "--reason", "x")


def test_list_says_the_error_behind_the_reason(world: World) -> None:
    """Of those that are parked, unless the reason has it already; one statement for all of them."""
    world.always("charge", OSError("no route to the bank"))
    world.always("invoice", Refused("no address"))
    begin(Pivoted, "told")
    begin(Charge, "one")
    drain()
    with CaptureQueriesContext(
        connection,
    ) as few:
        text = said("list")
    assert text.count("(its outcome is unknown, and no further attempt may begin; OSError: no route to the bank)") == 1
    assert "(refused after the pivot: no address)" in text
    for key in ("two", "three", "four"):
        begin(Charge, key)
    drain()
    with CaptureQueriesContext(connection) as many:
        assert said("list").count("OSError: no route to the bank") == 4
    assert len(many) == len(few)
    errors = {each["key"]: [at["error"]["type"] for at in each["at"]] for each in data("list")}
    assert errors["one"] == ["OSError"] and errors["told"] == ["sagas.errors.Refused"]


@pytest.mark.parametrize("codec", [None, ZlibCodec()], ids=["plain", "sealed"])
def test_payloads_are_shown_to_who_asks(codec: Any, world: World, settings: Any) -> None:
    """Input, results and signals below their log entries: without what is sensitive, and nothing of what is sealed."""
    settings.SAGAS = {"WAKE": False, "PAYLOAD_CODEC": codec}
    world.always("ship", OSError("no reply"))
    begin(Vaulted, "a", Order())
    drain()
    with transaction.atomic():
        Vaulted.review.send(Review(ok=True, note=MARKER), key="a")
    drain()
    assert "12345678901234567.890" not in said("show", "test.vaulted:a")
    assert "payloads" not in data("show", "test.vaulted:a")
    text, given = said("show", "test.vaulted:a", "--payloads"), data("show", "test.vaulted:a", "--payloads")["payloads"]
    assert MARKER not in text and MARKER not in json.dumps(given)
    assert [(each["what"], each["step"]) for each in given] == [
        ("input", None), ("result", "take"), ("result", "charge"), ("signal", "review"),
    ]  # fmt: skip
    if codec is None:
        assert given[0]["value"]["amount"] == "12345678901234567.890" and given[0]["value"]["card"] == "***"
        assert '"amount": "12345678901234567.890"' in text and "input: {" in text
    else:
        assert {each["value"] for each in given} == {"(sealed by zlib)"} and 'result: "(sealed by zlib)"' in text


def test_a_payload_that_is_too_long_is_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the database; how long it is, is said."""
    monkeypatch.setattr("sagas.operate_payloads.MOST_TEXT", 4)
    begin(Trip, "a")
    drain()
    assert '       result: "con\n       … (11 characters in all; --json gives 1,000,000)' in said(
        "show", "test.trip:a", "--payloads"
    )
