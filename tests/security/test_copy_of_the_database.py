"""Who has a copy of the database, and who may write to it: what they can read, and what of tampering is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet
from django.db import transaction

from sagas.verify import Finding, verify
from sagas_django.models import LogEntry
from tests.security.crawling import NOT_OURS
from tests.shop.payloads import MARKER, Order, Review, Vaulted
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.codecs import FernetCodec
from tests.support.stories import begin, drain

AMOUNT = "12345678901234567.890"  # of the input: personal, though not marked as sensitive
NOTE = "the neighbours complained"


def whole_copy(url: str) -> str:
    """Every row of every table, as text."""
    with psycopg.connect(url) as thief:
        names = thief.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        rows = [thief.execute(f"select t::text from {name} t").fetchall() for (name,) in names if name not in NOT_OURS]
    return "\n".join(text for found in rows for (text,) in found)


def live(world: World) -> None:
    """A saga with every sort of payload, an effect, a signal, and an error that repeats what it was given."""

    def fail(run: Any) -> None:
        raise ValueError(f"card {run.input.card} of {run.input.day} was refused")

    world.plan("charge", fail)
    begin(Vaulted, input=Order())
    drain()
    with transaction.atomic():
        Vaulted.review.send(Review(ok=True, note=NOTE), key="a")
    drain()
    assert Vaulted.get(key="a").status == "completed"


def test_without_a_codec_a_copy_shows_every_payload(shop: str, world: World) -> None:
    """Inputs, results and signals are there to be read, also what is marked as sensitive; errors have it masked."""
    live(world)
    copy = whole_copy(shop)
    assert AMOUNT in copy and MARKER in copy and NOTE in copy
    errors = "\n".join(str(entry.data["error"]) for entry in LogEntry.objects.all() if "error" in entry.data)
    assert "was refused" in errors and MARKER not in errors


def test_with_a_codec_a_copy_shows_no_payload(shop: str, world: World, settings: Any) -> None:
    """Nothing of inputs, results, effects and signals; names, keys, times, queues and errors stay readable."""
    settings.SAGAS = {"WAKE": False, "PAYLOAD_CODEC": FernetCodec(Fernet.generate_key())}
    live(world)
    copy = whole_copy(shop)
    assert AMOUNT not in copy and MARKER not in copy and NOTE not in copy
    assert "test.vaulted" in copy and "was refused" in copy, "an error says what the application put into it"
    assert Order().day.isoformat() in copy, "what is not marked as sensitive is not taken out of errors"


def findings(url: str) -> list[str]:
    with psycopg.connect(url, autocommit=True) as owner:
        return [found.problem for found in verify(owner) if isinstance(found, Finding)]


def remove_last(owner: psycopg.Connection[Any]) -> None:
    owner.execute("delete from sagas_log l using (select max(seq) as seq from sagas_log) m where l.seq = m.seq")


def remove_inner(owner: psycopg.Connection[Any]) -> None:
    owner.execute("delete from sagas_log where seq = 2")


def forge_end(owner: psycopg.Connection[Any]) -> None:
    owner.execute("update sagas_log set kind = 'step_failed' where seq = 1")


def forge_saga(owner: psycopg.Connection[Any]) -> None:
    owner.execute("update sagas_saga set status = 'aborted'")


def add_work(owner: psycopg.Connection[Any]) -> None:
    owner.execute(
        "insert into sagas_outbox (saga_id, kind, step, direction, queue)"
        " select id, 'step', 'charge', 'do', 'default' from sagas_saga"
    )


def remove_saga(owner: psycopg.Connection[Any]) -> None:
    owner.execute("delete from sagas_saga")


@pytest.mark.parametrize("tamper", [remove_last, remove_inner, forge_end, forge_saga, add_work, remove_saga])
def test_verify_notices_what_does_not_fit(
    shop: str, world: World, tamper: Callable[[psycopg.Connection[Any]], None]
) -> None:
    """An owner who switches the trigger off: entries taken out or changed in kind, rows changed, added, taken out."""
    begin(Trip)
    drain()
    assert findings(shop) == []
    with psycopg.connect(shop, autocommit=True) as owner:
        owner.execute("set session_replication_role = replica")
        tamper(owner)
    assert findings(shop), "it looks as if nothing had happened"


def test_verify_does_not_notice_what_fits(shop: str, world: World) -> None:
    """A forged result, a forged time, and a saga removed with all its traces: the log has no chain of hashes."""
    begin(Trip)
    begin(Trip, "gone")
    drain()
    with psycopg.connect(shop, autocommit=True) as owner:
        owner.execute("set session_replication_role = replica")
        owner.execute("update sagas_log set data = jsonb_set(data, '{result}', '\"forged\"') where step = 'charge'")
        owner.execute("update sagas_log set at = at - interval '1 year'")
        owner.execute("delete from sagas_log where saga_id = (select id from sagas_saga where key = 'gone')")
        owner.execute("delete from sagas_saga where key = 'gone'")
    assert findings(shop) == []


def test_the_log_is_append_only_for_its_owner_too(shop: str, world: World) -> None:
    """As long as the trigger is there, which an owner can take away: no UPDATE, and no DELETE but by pruning."""
    begin(Trip)
    with psycopg.connect(shop, autocommit=True) as owner:
        for statement in ("update sagas_log set at = now()", "delete from sagas_log"):
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                owner.execute(statement)
