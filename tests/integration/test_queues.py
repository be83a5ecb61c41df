"""Queues over the real SQL: turns of names, priorities, limits, and the line of an ordering key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from sagas import errors, pauses, queues
from sagas.errors import ConfigurationError, InvalidInput
from sagas.pauses import Scope
from sagas.queues import Limits
from sagas.rebuild import rebuild
from sagas.settings import Settings
from sagas.store import rows
from sagas.store.rows import Delivery
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Claimed, Held, Room
from sagas_outbox.relay import Relay
from tests.shop.sagas import Externals, Ordered, Queues
from tests.support.stories import Aside, begin, begin_many, drain
from tests.support.waiting import wait_until_blocked

pytestmark = pytest.mark.usefixtures("shop")

Connection = psycopg.Connection
START = datetime.fromisoformat("2030-01-01T00:00:00+00:00")


@pytest.fixture
def wire(shop: str) -> Iterator[psycopg.Connection]:
    """A connection of our own; no limits are left behind."""
    with closing(DjangoStore("default").connect()) as connection:
        yield connection
        connection.execute("delete from sagas_queue; delete from sagas_slot")


def backlog(wire: psycopg.Connection, name: str, many: int, *, priority: int = 0, queue: str = "default") -> None:
    """Steps of some saga that are due, the oldest first, one a millisecond."""
    wire.execute(
        "insert into sagas_outbox (kind, step, direction, queue, priority, lane, due_at)"
        " select 'step', %s, 'do', %s, %s, hashtext(%s), clock_timestamp() - make_interval(secs => (%s - n) / 1000.0)"
        " from generate_series(1, %s) n",
        [name, queue, priority, name, many, many],
    )


class Begun:
    """A broker with workers that begin and end at once whatever comes, and note it."""

    def __init__(self, wire: psycopg.Connection) -> None:
        self.wire, self.ids = wire, list[int]()

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        self.ids += [id for id, _ in rows]
        self.wire.execute("delete from sagas_outbox where id = any(%s)", [[id for id, _ in rows]])

    def reset(self) -> None:
        """Nothing to drop."""


def relay(wire: psycopg.Connection, publisher: Begun, **settings: int) -> Relay:
    return Relay(DjangoStore("default").connect, publisher, Settings(**settings), paces=lambda _: {})  # type: ignore[arg-type]


def named(wire: psycopg.Connection) -> dict[int, str]:
    """The step of each outbox row."""
    return dict(wire.execute("select id, step from sagas_outbox").fetchall())


def claim(wire: psycopg.Connection, many: int = 100, *, now: datetime | None = None) -> list[Claimed]:
    return claims.claim(wire, [Room("default", many)], holder="relay:1", window=10, begun=True, now=now)


def take(
    wire: psycopg.Connection, claimed: Sequence[Claimed], *, now: datetime | None = None, lease: float = 30
) -> list[int]:
    """Begin what was claimed, and return what is."""
    held = [(each.id, each.token) for each in claimed]
    begun = rows.begin(wire, held, holder="worker:1", lease=lease, published=True, now=now)
    return [each.id for each in begun if isinstance(each, Delivery)]


# --- turns ---


def test_a_backlog_of_one_name_does_not_delay_another(wire: psycopg.Connection) -> None:
    """10,000 rows of one name are due; the first row ever of another comes in behind them, and not more than two
    windows of rows go before it."""
    backlog(wire, "big", 10_000)
    done = Begun(wire)
    with closing(relay(wire, done)._link):
        sender = relay(wire, done)
        for _ in range(3):
            assert sender.run_once() > 0
        before = len(done.ids)
        backlog(wire, "small", 1)
        ((small,),) = wire.execute("select id from sagas_outbox where step = 'small'").fetchall()
        sender._marks.full_scan_at = 0.0  # it comes by itself in a quarter of a second
        while small not in done.ids:
            assert sender.run_once() > 0
        assert len(done.ids) - before <= 2 * 400
        sender._link.close()


def test_names_with_much_to_do_share_evenly(wire: psycopg.Connection) -> None:
    """Of five backlogs each has its fifth, also where one of them is much older; together they have all of the room."""
    for name, many in {"old": 9000, "b": 3000, "c": 3000, "d": 3000, "e": 3000}.items():
        backlog(wire, name, many)
    steps, done = named(wire), Begun(wire)
    sender = relay(wire, done)
    while len(done.ids) < 5000:
        assert sender.run_once() > 0
    sender._link.close()
    counts = {name: sum(steps[id] == name for id in done.ids) for name in ("old", "b", "c", "d", "e")}
    assert max(counts.values()) - min(counts.values()) <= 0.05 * len(done.ids), counts


# --- priorities ---


def test_the_higher_priority_goes_first_and_nothing_waits_for_ever(wire: psycopg.Connection) -> None:
    """Of ten rows nine are of the highest priority that is due, and one is given by turns."""
    backlog(wire, "low", 2000)
    backlog(wire, "high", 2000, priority=5)
    steps, done = named(wire), Begun(wire)
    sender = relay(wire, done)
    while len(done.ids) < 1000:
        assert sender.run_once() > 0
    sender._link.close()
    high = sum(steps[id] == "high" for id in done.ids)
    assert 0.85 <= high / len(done.ids) <= 0.95, (high, len(done.ids))


def test_the_first_of_a_claim_are_those_of_the_highest_priority(wire: psycopg.Connection) -> None:
    """They are published, and begun, before the others of the same claim."""
    backlog(wire, "low", 5)
    backlog(wire, "high", 5, priority=1)
    backlog(wire, "lower", 5, priority=-1)
    steps = named(wire)
    assert [steps[each.id] for each in claim(wire)] == ["high"] * 5 + ["low"] * 5 + ["lower"] * 5


def test_a_saga_adds_its_priority_to_that_of_its_steps(wire: psycopg.Connection) -> None:
    """Every row of the saga has it, also those that workers write."""
    with transaction.atomic():
        Queues.start(Ordered(), key="vip", priority=7)
    assert wire.execute("select distinct priority from sagas_outbox").fetchall() == [(7,)]
    with pytest.raises(InvalidInput, match="priority=101"), transaction.atomic():
        Queues.start(Ordered(), key="too-much", priority=101)


# --- limits ---


def test_a_queue_gives_no_more_than_it_is_limited_to(wire: psycopg.Connection) -> None:
    """Neither published nor begun; what ends, is given back or loses its lease makes room, and nothing else does."""
    queues.limit(wire, "default", Limits(concurrency=2), actor="ann", reason="the bank")
    begin_many(Externals, ["a", "b", "c", "d", "e"])
    first = claim(wire)
    assert len(first) == 2 and claim(wire) == []
    assert len(take(wire, first)) == 2 and claim(wire) == []
    ((one, token), (two, other)) = wire.execute(
        "select id, token from sagas_outbox where holder = 'worker:1'"
    ).fetchall()
    assert claims.hand_back(wire, [(one, token)], now=None) == {one}
    assert len(again := claim(wire)) == 1
    assert claim(wire) == []
    wire.execute("delete from sagas_outbox where id = %s", [two])  # recorded, and nothing more to do
    assert len(claim(wire)) == 1
    assert other == 1 and len(take(wire, again)) == 1


@pytest.mark.parametrize("lower", [Limits(concurrency=1), Limits(rate="1/60s")], ids=["concurrency", "rate"])
def test_a_limit_that_is_lowered_while_more_is_at_work_holds_up_that_queue_only(
    wire: psycopg.Connection, lower: Limits
) -> None:
    """There is no room, not less than none: one statement claims for all queues."""
    queues.limit(wire, "default", Limits(concurrency=5, rate="5/60s"), actor="ann")
    begin_many(Externals, ["a", "b", "c", "d"])
    assert len(take(wire, claim(wire)[:3])) == 3
    queues.limit(wire, "default", lower, actor="ann", reason="the bank asks us to slow down")
    backlog(wire, "other", 2, queue="elsewhere")
    rooms = [Room("default", 10), Room("elsewhere", 10)]
    with wire.transaction():
        due = claims.lock_due(wire, rooms, begun=True, now=None)
    assert {named(wire)[id] for (id, _), _ in due} == {"other"}
    claimed = claims.claim(wire, rooms, holder="relay:1", window=10, begun=True, now=None)
    assert {each.queue for each in claimed} == {"elsewhere"} and len(claimed) == 2


def test_a_rate_that_is_used_up_says_nothing_of_another_queue(wire: psycopg.Connection) -> None:
    """A worker without a broker begins rows of several queues in one statement."""
    queues.limit(wire, "a", Limits(rate="1/60s"), actor="ann")
    queues.limit(wire, "b", Limits(concurrency=5), actor="ann")
    begin_many(Externals, ["one", "two", "three", "four"])
    wire.execute("update sagas_outbox o set queue = case when s.key < 'p' then 'a' else 'b' end"
                 " from sagas_saga s where s.id = o.saga_id")  # fmt: skip
    held = wire.execute("select id, token from sagas_outbox order by id").fetchall()
    begun = rows.begin(wire, held, holder="worker:1", lease=30, published=False, now=None)
    assert sorted(each.queue for each in begun if isinstance(each, Delivery)) == ["a", "b", "b"]  # of four and one, one


def test_a_lease_that_ended_makes_room_and_its_owner_notices(wire: psycopg.Connection) -> None:
    """The token of the row goes up, so that what the owner does next counts for nothing, though nobody claimed it."""
    queues.limit(wire, "default", Limits(concurrency=1), actor="ann")
    begin_many(Externals, ["a", "b"])
    (mine,) = take(wire, claim(wire), lease=0.001)
    ((token,),) = wire.execute("select token from sagas_outbox where id = %s", [mine]).fetchall()
    assert len(claim(wire)) == 1
    assert claims.heartbeat(wire, [(mine, token)], holder="worker:1", lease=30, now=None) == set()


def test_a_worker_in_the_middle_of_a_local_step_keeps_its_place(wire: psycopg.Connection) -> None:
    """Its row is locked, so its lease cannot be renewed; nobody else takes its place all the same."""
    queues.limit(wire, "default", Limits(concurrency=1), actor="ann")
    begin_many(Externals, ["a", "b"])
    (mine,) = take(wire, claim(wire), lease=0.001)
    with closing(DjangoStore("default").connect()) as local, local.transaction():
        local.execute("select from sagas_outbox where id = %s for update", [mine])
        assert claim(wire) == []
    assert len(claim(wire)) == 1


def test_what_was_published_before_the_limit_is_not_begun_beyond_it(wire: psycopg.Connection) -> None:
    """Begin is where it holds; what finds no place is due again at once, and is not counted as begun."""
    begin_many(Externals, ["a", "b", "c", "d", "e"])
    published = claim(wire)
    queues.limit(wire, "default", Limits(concurrency=2), actor="ann")
    assert len(take(wire, published)) == 2
    left = "select publishes, deliveries, token, due_at <= clock_timestamp() from sagas_outbox where holder is null"
    assert wire.execute(left).fetchall() == [(0, 0, 0, True)] * 3
    assert len(take(wire, published)) == 0


def test_two_who_begin_at_the_same_time_share_the_limit(wire: psycopg.Connection) -> None:
    """The second waits for the first, and sees what it has begun."""
    begin_many(Externals, ["a", "b", "c", "d"])
    published = claim(wire)
    queues.limit(wire, "default", Limits(concurrency=3), actor="ann")
    with closing(DjangoStore("default").connect()) as other:
        with other.transaction():
            assert len(take(other, published[:2])) == 2
            wire.execute("set lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                take(wire, published[2:])
            wire.execute("reset lock_timeout")
        assert len(take(wire, published[2:])) == 1


@pytest.fixture
def repeatable(shop: str) -> Iterator[None]:
    """Whoever connects gets transactions that see nothing of what others commit meanwhile."""
    of_role = "alter role current_user in database {} {}"
    with closing(DjangoStore("default").connect()) as raw:
        name = raw.info.dbname
        raw.execute(of_role.format(name, "set default_transaction_isolation to 'repeatable read'"))
        yield
        raw.execute(of_role.format(name, "reset default_transaction_isolation"))


def test_a_limit_holds_whatever_the_role_says_of_isolation(wire: psycopg.Connection, repeatable: None) -> None:
    """The second waits for the first, and sees what it has begun, though a snapshot from before would not show it."""
    begin_many(Externals, ["a", "b"])
    published = claim(wire)
    queues.limit(wire, "default", Limits(concurrency=1), actor="ann")
    begun: list[int] = []
    with closing(DjangoStore("default").connect()) as first, closing(DjangoStore("default").connect()) as second:
        with first.transaction():
            begun += take(first, published[:1])
            aside = Aside(lambda: begun.extend(take(second, published[1:])))
            wait_until_blocked(1)
        aside.join()
    assert begun == [published[0].id]


def test_a_request_passes_a_queue_that_is_full(wire: psycopg.Connection) -> None:
    """A cancel is applied however much is at work: it is what frees a place."""
    queues.limit(wire, "default", Limits(concurrency=1), actor="ann")
    begin_many(Externals, ["a", "b"])
    assert len(take(wire, claim(wire))) == 1
    with transaction.atomic():
        Externals.cancel(key="b", reason="enough")
    (request,) = claim(wire)
    assert request.kind == "cancel" and take(wire, [request]) == [request.id]


def test_a_rate_counts_what_was_begun_in_the_last_period(wire: psycopg.Connection) -> None:
    """Never more in any period, wherever it begins; what is given back before it ran was not begun."""
    queues.limit(wire, "default", Limits(rate="3/10s"), actor="ann")
    begin_many(Externals, [str(number) for number in range(20)])
    wire.execute("update sagas_outbox set due_at = '2029-01-01'")

    def at(seconds: float) -> list[int]:
        now = START + timedelta(seconds=seconds)
        return take(wire, claim(wire, now=now), now=now, lease=1000)

    assert [len(at(0)), len(at(0.1)), len(at(4)), len(at(9.9))] == [3, 0, 0, 0]
    assert len(at(10.6)) == 3
    assert len(at(15)) == 0
    wire.execute("update sagas_outbox set due_at = '2029-01-01' where holder is null")
    now = START + timedelta(seconds=22)
    claimed = claim(wire, now=now)
    begun = take(wire, claimed[:2], now=now, lease=1000)
    tokens = wire.execute("select id, token from sagas_outbox where id = any(%s)", [begun]).fetchall()
    assert len(claimed) == 3 and claim(wire, now=now) == []
    claims.hand_back(wire, tokens[:1], now=now)
    assert len(claim(wire, now=now)) == 1


def test_a_clock_that_is_set_back_does_not_stop_a_queue(wire: psycopg.Connection) -> None:
    """By a little: what was begun counts for longer; by much: nothing of it counts."""
    queues.limit(wire, "default", Limits(rate="2/10s"), actor="ann")
    begin_many(Externals, ["a", "b", "c", "d", "e"])
    wire.execute("update sagas_outbox set due_at = '2029-01-01'")
    assert len(take(wire, claim(wire, now=START), now=START)) == 2
    back = START - timedelta(seconds=3)
    assert claim(wire, now=back) == []
    long_before = START - timedelta(hours=1)
    assert len(take(wire, claim(wire, now=long_before), now=long_before)) == 2


def test_a_worker_does_not_go_on_by_itself_in_a_queue_with_limits(wire: psycopg.Connection) -> None:
    """Each step of it is asked for; elsewhere the commit that records one begins the next."""
    queues.limit(wire, "default", Limits(rate="1000/s"), actor="ann")
    begin(Externals)
    drain()
    assert queues.queues(wire)[0].lately == len(Externals.plan.steps) > 1
    assert wire.execute("select distinct status from sagas_saga").fetchall() == [("completed",)]


# --- what code says, and what operators say ---


def test_settings_say_which_limits_there_are(wire: psycopg.Connection) -> None:
    """Workers write them when they begin; what is not in them any more goes; None leaves everything alone."""
    said = Settings(queues={"a": {"concurrency": 5}, "b": {"rate": "100/m"}})
    queues.declare(wire, said.queues)
    assert [(each.name, each.concurrency, each.words, each.actor) for each in queues.queues(wire)] == [
        ("a", 5, "", ""), ("b", None, "100/m", "")
    ]  # fmt: skip
    queues.declare(wire, Settings().queues)
    assert len(queues.queues(wire)) == 2
    queues.declare(wire, Settings(queues={"b": {"rate": "7/10s", "concurrency": 2}}).queues)
    assert [(each.name, each.concurrency, each.words) for each in queues.queues(wire)] == [("b", 2, "7/10s")]
    queues.declare(wire, Settings(queues={}).queues)
    assert queues.queues(wire) == []


def test_what_an_operator_changes_holds_until_it_is_reset(wire: psycopg.Connection) -> None:
    """Workers that start do not change it back."""
    said = Settings(queues={"a": {"concurrency": 5}}).queues
    queues.declare(wire, said)
    queues.limit(wire, "a", Limits(concurrency=1, rate="2/s"), actor="ann", reason="slowly")
    queues.declare(wire, Settings(queues={"a": {"concurrency": 6}}).queues)
    (found,) = queues.queues(wire)
    assert (found.concurrency, found.words, found.actor, found.reason) == (1, "2/s", "ann", "slowly")
    assert queues.reset(wire, "a")
    (found,) = queues.queues(wire)
    assert (found.concurrency, found.rate, found.actor) == (6, None, "")
    assert not queues.reset(wire, "a")
    queues.limit(wire, "new", Limits(concurrency=1), actor="ann")
    assert queues.reset(wire, "new")
    assert [each.name for each in queues.queues(wire)] == ["a"]


@pytest.mark.parametrize(
    "given",
    [
        {"a": {"concurrency": 0}}, {"a": {"rate": "0/s"}}, {"a": {"rate": "fast"}}, {"a": {"rate": 5}}, {"a": {}},
        {"a": {"concurency": 1}}, ["a"], {"": {"concurrency": 1}}, {"a": {"concurrency": True}}, {"a": 5},
    ],
)  # fmt: skip
def test_limits_that_cannot_be_meant_are_refused(given: object) -> None:
    """When settings are read, with the queue in the message."""
    with pytest.raises(ConfigurationError, match="queues"):
        Settings(queues=given)


def test_what_is_at_work_when_a_limit_is_set_counts(wire: psycopg.Connection) -> None:
    """A limit that comes while a queue is busy holds at once."""
    begin_many(Externals, ["a", "b", "c"])
    assert len(take(wire, claim(wire, 2))) == 2
    queues.limit(wire, "default", Limits(concurrency=2), actor="ann")
    assert claim(wire) == []
    (found,) = queues.queues(wire)
    assert found.at_work == 2


def test_a_paused_queue_with_limits_stays_paused(wire: psycopg.Connection) -> None:
    """Both hold."""
    queues.limit(wire, "default", Limits(concurrency=2), actor="ann")
    pauses.pause(wire, Scope.QUEUE, "default", reason="now")
    begin(Externals)
    assert claim(wire) == []


# --- the line of an ordering key ---


def in_line(*keys: str, ordering_key: str = "customer-7") -> None:
    for key in keys:
        with transaction.atomic():
            Externals.start(Ordered(), key=key, ordering_key=ordering_key)


def test_only_the_first_of_a_line_is_claimed_and_whoever_leaves_makes_the_next_one_due(
    wire: psycopg.Connection,
) -> None:
    """The others are put off, and need not be looked at again and again."""
    in_line("a", "b", "c")
    in_line("x", ordering_key="customer-8")
    assert len(claim(wire)) == 2
    assert wire.execute("select count(*) from sagas_outbox where due_at > clock_timestamp() + interval '3 s'"
                        " and holder is null").fetchone() == (2,)  # fmt: skip
    assert claim(wire) == []


def test_a_line_is_worked_off_in_order(wire: psycopg.Connection) -> None:
    """From the first to the last, without a wait in between."""
    keys = [f"{number:02}" for number in range(30)]
    in_line(*keys)
    drain()
    ended = wire.execute("select key from sagas_saga where finished_at is not null order by finished_at").fetchall()
    assert [key for (key,) in ended] == keys


def test_begin_refuses_who_is_not_the_first(wire: psycopg.Connection) -> None:
    """A message from before, or from another relay, begins nothing out of its turn."""
    in_line("a", "b")
    held = wire.execute("update sagas_outbox set holder = 'relay:1' returning id, token").fetchall()
    begun = rows.begin(wire, held, holder="worker:1", lease=30, published=True, now=None)
    assert [each.key for each in begun if isinstance(each, Delivery)] == ["a"]


def test_a_key_that_cannot_be_stored_is_refused() -> None:
    """When the saga is started."""
    with pytest.raises(errors.InvalidInput, match="ordering_key"), transaction.atomic():
        Externals.start(Ordered(), key="a", ordering_key="")


def test_rebuilt_from_the_log_a_saga_has_its_priority_and_its_place(wire: psycopg.Connection) -> None:
    """Entry 0 says both, so the log alone is enough."""
    with transaction.atomic():
        Externals.start(Ordered(), key="a", ordering_key="customer-7", priority=3)
    row = "select priority, lane, ordering_key, place from sagas_outbox"
    before = wire.execute(row).fetchall()
    wire.execute("delete from sagas_outbox; delete from sagas_saga")
    assert [each.problem for each in rebuild(wire)] == [""]
    assert wire.execute(row).fetchall() == before and before[0][0] == 3
    assert wire.execute("select priority, ordering_key from sagas_saga").fetchall() == [(3, "customer-7")]


# --- the command line ---


def said(*words: str) -> str:
    """What `manage.py sagas ...` says."""
    out = StringIO()
    call_command("sagas", *words, stdout=out)
    return out.getvalue()


def test_operators_see_and_change_limits(wire: psycopg.Connection) -> None:
    """One of the two limits at a time, with who and why; and back to what code declares."""
    assert "no queue has limits" in said("queues")
    queues.declare(wire, Settings(queues={"payments": {"concurrency": 5, "rate": "100/m"}}).queues)
    said("limit-queue", "payments", "--concurrency", "2", "--reason", "slowly", "--actor", "ann")
    (found,) = queues.queues(wire)
    assert (found.concurrency, found.words, found.actor) == (2, "100/m", "ann")
    assert "payments" in (shown := said("queues")) and "ann" in shown and "slowly" in shown
    said("limit-queue", "payments", "--rate", "none", "--reason", "quickly")
    (found,) = queues.queues(wire)
    assert (found.concurrency, found.rate) == (2, None)
    said("reset-queue", "payments")
    (found,) = queues.queues(wire)
    assert (found.concurrency, found.words, found.actor) == (5, "100/m", "")
    with pytest.raises(CommandError, match="no operator has changed"):
        said("reset-queue", "payments")
    with pytest.raises(CommandError, match="whole number"):
        said("limit-queue", "payments", "--concurrency", "few", "--reason", "a")
