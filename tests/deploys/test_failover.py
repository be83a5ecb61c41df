"""Postgres fails over to a replica that lags, after the bank was charged: nothing twice, and every orphan is named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres, Redis, postgres
from tests.conftest import REPORT, ROOT
from tests.deploys import replica
from tests.deploys.app import bank
from tests.deploys.app.sagas import Buy
from tests.deploys.scene import PATIENCE, Scene
from tests.relay.plant import wait_until

pytestmark = pytest.mark.full


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Postgres, Postgres]]:
    """The primary, with our tables, and one that is to be its replica."""
    with postgres(private=True, fsync=False) as primary, postgres(private=True, fsync=False) as standby:
        url = primary.create_database("shop")
        with ProcessGroup(tmp_path_factory.mktemp("migrate")) as processes:
            migrate = processes.python(
                "-m", "django", "migrate", "--verbosity=0", cwd=ROOT,
                env={"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            )  # fmt: skip
            assert migrate.wait(120) == 0, migrate.output()
        yield primary, standby


def waiting_messages(broker: Redis) -> int:
    """How many messages the broker holds that nobody has taken."""
    return sum(int(broker.command("LLEN", queue).lstrip(":")) for queue in ("payments", "books", "parcels"))


def bank_list(scene: Scene, path: Path) -> Path:
    """What bank and carrier know, as they would export it."""
    with bank.books(scene.books) as connection:
        rows = connection.execute(
            "select key, reference, at from movement union all select key, 'p-' || id, at from parcel"
        ).fetchall()
    lines = [
        {"key": key, "reference": reference, "amount": 12.5, "at": str(at), "result": reference}
        for key, reference, at in rows
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def happened(scene: Scene) -> Counter[str]:
    """How often each effect was had."""
    return Counter(scene.movements()) + scene.parcels()


@pytest.mark.parametrize("with_list", [True, False], ids=["with the list of the bank", "without"])
def test_failover_to_a_replica_that_lags(
    request: pytest.FixtureRequest, servers: tuple[Postgres, Postgres], books: str, own_redis: Redis, tmp_path: Path,
    django_db_blocker: DjangoDbBlocker, with_list: bool,
) -> None:  # fmt: skip
    """Sagas that began after the copy have vanished, and each effect of them is named. Those from before do again what
    they had done since, or have it from the list: the bank, which honours keys, and the carrier, which does not but can
    be asked, have every effect once. The broker still holds messages of the history that was lost."""
    primary, standby = servers
    own_redis.flushall()
    with django_db_blocker.unblock(), ProcessGroup(tmp_path) as processes:
        request.node.stash[REPORT] = processes
        scene = Scene(primary.url("shop"), books, own_redis, processes)
        relay, worker = scene.relay(), scene.work()
        with scene.stream(Buy, "a") as keys:
            scene.more(keys)
            before = len(keys)
            replica.copy(primary, standby)
            scene.wait_until_completed(f"a-{len(keys) + 3}")
            worker.kill()  # while the relay goes on: the broker fills with messages that nobody takes
            wait_until(lambda: waiting_messages(own_redis) >= 5, "messages that nobody takes", PATIENCE)
        relay.kill()
        lost_ids = {str(row[0]) for row in scene.fetch("select id from sagas_saga")}
        scene.close()
        primary.kill()

        standby.restart()
        after = Scene(standby.url("shop"), books, own_redis, processes)
        here = {str(row[0]) for row in after.fetch("select id from sagas_saga")}
        assert before <= len(here) < len(keys), "the copy has some of them"
        answer = after.json("restored", "--reason", "failover")
        assert answer["ok"], answer
        ((replayed,),) = after.fetch("select pg_last_xact_replay_timestamp()")
        assert datetime.fromisoformat(answer["data"]["until"]) <= replayed, "the server knows when it was"
        effects = happened(after)
        orphans = {key for key in effects if key.split(":")[0] not in here}
        assert orphans
        assert {key.split(":")[0] for key in orphans} <= lost_ids
        path = bank_list(after, tmp_path / "bank.jsonl")
        apply = ("--apply", "--reason", "failover") if with_list else ()
        answer = after.json("reconcile", str(path), *apply)
        assert named(answer, "vanished") == orphans
        assert named(answer, "ahead"), "some were under way"
        after.relay()
        after.work()
        after.buy("later-1", "later-2", saga=Buy)
        after.wait_for_end()

        assert after.fetch("select status, count(*) from sagas_saga group by status") == [("completed", len(here) + 2)]
        assert after.problems() == []
        assert set(happened(after).values()) == {1}, "every effect once"
        assert all(happened(after)[f"{id}:{step}:do:0"] == 1 for id in here for step in ("charge", "ship"))
        again = after.json("reconcile", str(bank_list(after, tmp_path / "again.jsonl")))
        assert named(again, "vanished") == orphans
        assert named(again) == orphans, "nothing else is open"
        after.close()


def named(answer: dict[str, Any], verdict: str | None = None) -> set[str]:
    """The keys of what was found."""
    return {each["key"] for each in answer["data"]["found"] if verdict in (None, each["verdict"])}
