"""A `send()` whose commit is cut, or whose Postgres is killed meanwhile: sent again under its name, it counts once."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from sagas.testing.proxy import CutAt, Pass, Proxy
from sagas.testing.servers import Postgres, postgres
from tests.faults.app.sagas import Approval, Leg, LongOrder
from tests.faults.conftest import migrate
from tests.faults.long_lives import LongLives
from tests.faults.test_long_points import NewLong, new_long
from tests.settings import database_from_url

__all__ = ["new_long"]

NOT_YET = (10_000, 10_000)
KILLS = 4


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a database, and the URL through it."""
    where = database_from_url(url)
    with Proxy(where["HOST"], int(where["PORT"])) as proxy:
        yield proxy, f"postgresql://{where['USER']}:{where['PASSWORD']}@127.0.0.1:{proxy.port}/{where['NAME']}"


@pytest.mark.parametrize("answered", [False, True])
def test_a_send_whose_commit_is_cut(answered: bool, ground: str, new_long: NewLong) -> None:
    """The sender cannot know whether it was committed. The same `dedupe_id` makes sending it again safe, either way."""
    lives: LongLives = new_long(False, sends_at=NOT_YET)
    with proxied(ground) as (proxy, way), psycopg.connect(way, autocommit=True) as sender:
        sender.autocommit = False
        assert LongOrder.approval.send(Approval("first"), key=lives.order, dedupe_id="first", using=sender)
        proxy.fault = CutAt(words=b"COMMIT", answered=answered)
        with pytest.raises(psycopg.OperationalError):
            sender.commit()
        left = [each for each in (proxy.fault,) if each != Pass()]
        assert not left, "nothing was cut"
    assert lives.send("first") is not answered
    assert lives.send("second")
    lives.live()
    lives.check()


def _kill(server: Postgres, about_to: threading.Event) -> None:
    about_to.wait(10)
    server.kill()


def test_postgres_is_killed_during_the_commit_of_a_send() -> None:
    """kill -9 at the moment of the commit, again and again: each signal that is sent again is there exactly once."""
    with postgres(private=True, fsync=False) as server, tempfile.TemporaryDirectory() as directory:
        url = server.create_database("faults")
        migrate(url, Path(directory))
        with psycopg.connect(url) as connection:
            LongOrder.start(Leg("order"), key="order", using=connection)
        for number in range(KILLS):
            with psycopg.connect(url, autocommit=True) as sender, suppress(psycopg.OperationalError):
                about_to = threading.Event()
                killer = threading.Thread(target=_kill, args=(server, about_to))
                killer.start()
                try:
                    with sender.transaction():
                        LongOrder.approval.send(Approval(str(number)), key="order", dedupe_id=str(number), using=sender)
                        about_to.set()
                finally:
                    killer.join(20)
            server.restart()
            with psycopg.connect(url) as again:
                LongOrder.approval.send(Approval(str(number)), key="order", dedupe_id=str(number), using=again)
        with psycopg.connect(url) as looking:
            values = "select payload->'value'->>'note' from sagas_outbox where kind = 'signal' order by id"
            sent = looking.execute(values)
            assert [note for (note,) in sent] == [str(number) for number in range(KILLS)]
            assert looking.execute("select count(*) from sagas_signal").fetchone() == (KILLS,)
