"""Payloads that the application seals: encrypted, compressed, under keys that change and keys that are lost."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import connection, transaction

from sagas import ConfigurationError, KeyConflict, PayloadLocked, Refused
from sagas.embedded import Embedded
from sagas.rebuild import rebuild
from sagas.replay import replay
from sagas.settings import Settings
from sagas.states import Status
from sagas_django.models import DedupeRecord, LogEntry, OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.payloads import MARKER, Order, Receipt, Review, Vaulted
from tests.shop.world import World
from tests.support.codecs import FernetCodec, NoCheck, ZlibCodec
from tests.support.stories import NO_WAIT, begin, bring_forward, differences, drain, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")

ONE, TWO = Fernet.generate_key(), Fernet.generate_key()
LOST = ConnectionError("no reply")
PAYLOADS = """
select coalesce(data->'result', data #> '{saga,input}')::text from sagas_log
union all select response::text from sagas_dedupe union all select payload::text from sagas_outbox
"""


def use(settings: Any, codec: Any) -> None:
    settings.SAGAS = {"WAKE": False, "PAYLOAD_CODEC": codec, "UNKNOWN_DELAY": 5.0}


def stored() -> str:
    """Everything in the columns that hold payloads."""
    with connection.cursor() as cursor:
        cursor.execute(PAYLOADS)
        return "\n".join(row[0] or "" for row in cursor.fetchall())


def review(key: str = "a") -> None:
    with transaction.atomic():
        Vaulted.review.send(Review(ok=True, note=MARKER), key=key)


def check_all_saw_the_same(world: World) -> None:
    """First runs, retries and undos were given equal values of equal types."""
    order = Order()
    taken, charged = Receipt(order.amount, MARKER + "-taken"), Receipt(Decimal("1.10"), MARKER + "-charged")
    for call in world.calls:
        if call.name == "take":
            assert call.argument == order
        elif call.name == "charge":
            assert call.argument == (order, taken, charged)
        elif call.name == "ship":
            assert call.argument == (order, taken, charged, Review(ok=True, note=MARKER))
        elif call.name == "refund":
            assert call.argument == (order, charged)
        elif call.name == "give_back":
            assert call.argument == (order, taken)


CODECS = [FernetCodec(ONE), FernetCodec(ONE, hash_key=b"secret"), ZlibCodec(), NoCheck(7), None]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: getattr(codec, "name", "plain"))
def test_sealed_from_start_to_undo(codec: Any, world: World, settings: Any) -> None:
    """Input, results, effects, signals, in first run, retry and undo: the same values, and nothing readable at rest."""
    use(settings, codec)
    for name, answers in {
        "take": [LOST],
        "charge": [LOST],
        "ship": [LOST, Refused("no van")],
        "refund": [LOST],
    }.items():
        world.plan(name, *answers)
    run = begin(Vaulted, input=Order())
    drain()
    review()
    drain()
    assert Vaulted.get(key="a").status is Status.COMPENSATED
    assert world.count()["charge"] == 2 and world.count()["ship"] == 2 and world.count()["refund"] == 2
    check_all_saw_the_same(world)
    assert differences() == []
    if codec is not None:
        assert MARKER not in stored() and "12345678901234567" not in stored()
        assert f'"$sealed": "{codec.name}"' in stored()
    assert run.id == Vaulted.get(key="a").id


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: getattr(codec, "name", "plain"))
def test_starting_again_compares_what_was_given(codec: Any, settings: Any) -> None:
    """The same input gives the same saga, another one is a conflict, also where no two seals are alike."""
    use(settings, codec)
    run = begin(Vaulted, input=Order())
    assert begin(Vaulted, input=Order()).id == run.id
    with pytest.raises(KeyConflict):
        begin(Vaulted, input=Order(card="other"))


def test_hashes_of_inputs_are_made_with_the_key(settings: Any) -> None:
    """Without `hash_key` equal inputs have equal hashes, which can be tried out; with it, only by who has it."""
    hashes = []
    for number, key in enumerate((None, b"one", b"two", b"one")):
        use(settings, FernetCodec(ONE, hash_key=key))
        hashes.append(SagaRow.objects.get(pk=begin(Vaulted, f"k{number}", Order()).id).input_hash)
    assert hashes[1] == hashes[3] and len(set(hashes)) == 3
    assert begin(Vaulted, "k2", Order()).created is False  # another hash: the inputs themselves are compared


def test_keys_rotate_and_codecs_change(world: World, settings: Any) -> None:
    """What was sealed under an old key, by another codec, or not at all, stays readable within one saga."""
    begin(Vaulted, input=Order())
    use(settings, FernetCodec(ONE))
    world.plan("charge", LOST)
    drain(skip=NO_WAIT)
    use(settings, FernetCodec(TWO, ONE))
    drain()
    use(settings, [ZlibCodec(), FernetCodec(TWO, ONE)])
    review()
    world.plan("ship", Refused("no van"))
    drain()
    assert Vaulted.get(key="a").status is Status.COMPENSATED
    check_all_saw_the_same(world)
    assert '"fernet"' in stored() and '"zlib"' in stored()


@pytest.mark.parametrize("wrong", [None, FernetCodec(TWO), NoCheck(9), FernetCodec(ONE, name="renamed")], ids=str)
def test_without_the_key_the_row_waits(
    wrong: Any, world: World, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost or wrong key parks nothing and changes nothing, at any step: when the key is back the saga goes on."""
    use(settings, FernetCodec(ONE) if not isinstance(wrong, NoCheck) else NoCheck(7))
    right = settings.SAGAS["PAYLOAD_CODEC"]
    run = begin(Vaulted, input=Order())
    for when in ("start", "wait"):
        use(settings, wrong)
        before = [entries_of(run), SagaRow.objects.values().get(pk=run.id), dict(world.count())]
        if when == "start":
            with caplog.at_level(logging.ERROR):
                look(times=6)  # more often than a step may be delivered
            assert "it waits: input: " in caplog.text and "codec" in caplog.text
            assert MARKER not in caplog.text
        assert [entries_of(run), SagaRow.objects.values().get(pk=run.id), dict(world.count())] == before
        (row,) = outbox(run)
        assert row.holder is None and row.deliveries == 0
        use(settings, right)
        drain()
        if when == "start":
            assert world.count() == {"take": 1, "charge": 1}
    review()
    drain()
    assert Vaulted.get(key="a").status is Status.COMPLETED
    check_all_saw_the_same(world)


def look(times: int) -> None:
    """Let a worker begin whatever there is, again and again."""
    for _ in range(times):
        Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
        bring_forward()


def entries_of(run: Any) -> list[Any]:
    return list(LogEntry.objects.filter(saga_id=run.id).order_by("seq").values())


def test_a_signal_is_applied_without_the_key(settings: Any) -> None:
    """Requests do not have to be opened: a worker without the key records a signal, and cancels."""
    use(settings, FernetCodec(ONE))
    run = begin(Vaulted, input=Order())
    drain()
    review()
    use(settings, None)
    look(times=3)
    assert "signalled review" in log_of(run)
    assert MARKER not in stored()


def test_a_caller_without_the_key_is_told(settings: Any) -> None:
    """start() of a saga that exists and cannot be compared is an error, not a conflict."""
    use(settings, FernetCodec(ONE, hash_key=b"k"))
    begin(Vaulted, input=Order())
    use(settings, None)
    with pytest.raises(PayloadLocked, match="sealed by payload codec 'fernet'"):
        begin(Vaulted, input=Order())


def test_verify_rebuild_and_replay_need_no_key(world: World, settings: Any) -> None:
    """Logs are folded and rows made again without opening anything; replay says what it could not look at."""
    use(settings, FernetCodec(ONE, hash_key=b"k"))
    run = begin(Vaulted, input=Order())
    drain()
    before = SagaRow.objects.values("status", "seq", "input_hash", "key", "run", "definition").get(pk=run.id)
    settings.SAGAS = {"WAKE": False}
    assert differences() == []
    with DjangoStore("default").connect() as raw:
        raw.execute("delete from sagas_outbox")
        raw.execute("delete from sagas_saga")
        assert [found.problem for found in rebuild(raw, [run.id])] == [""]
        found = replay(raw, run.id)
    assert found.fits and found.locked == (0, 1, 2)
    assert SagaRow.objects.values("status", "input_hash", "key", "run", "definition").get(pk=run.id) == {
        name: value for name, value in before.items() if name != "seq"
    }
    use(settings, FernetCodec(ONE, hash_key=b"k"))
    with DjangoStore("default").connect() as raw:
        assert replay(raw, run.id, Settings(payload_codec=FernetCodec(ONE)).payloads).locked == ()
    call_command("sagas", "replay", str(run.id))
    review()
    drain()
    assert Vaulted.get(key="a").status is Status.COMPLETED


class _Nameless:
    def encode(self, data: bytes) -> bytes:
        return data

    decode = encode


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        (_Nameless(), "no usable name"),
        (object(), "no usable name"),
        ([ZlibCodec(), ZlibCodec()], "same name"),
        ("tests.support.codecs.nothing", "not found"),
        ("nowhere.at.all", "not found"),
        ("plain", "not found"),
    ],
    ids=str,
)
def test_a_setting_that_is_no_codec(codec: Any, words: str) -> None:
    """The message names the setting and what is missing."""
    with pytest.raises(ConfigurationError, match=f"payload_codec.*{words}"):
        Settings(payload_codec=codec)


def test_a_codec_by_its_name() -> None:
    """As Django settings name things."""
    assert Settings(payload_codec="tests.support.codecs.ZlibCodec").payloads.seals
    assert not Settings().payloads.seals
    assert OutboxRow.objects.count() == DedupeRecord.objects.count() == 0
