"""Calls of Celery tasks that become messages, by one setting; and what of Celery has no meaning then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from celery import Celery, chain, chord, group

from sagas.errors import ConfigurationError
from sagas_celery import drop_in
from sagas_celery.drop_in import NotTransactional, make_transactional, publishing_on
from sagas_outbox import InvalidMessage

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(connection: Connection) -> Iterator[Celery]:
    """An app whose broker is not there, so that a call that talked to it would fail."""
    made = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)
    made.conf.broker_transport_options = {"socket_connect_timeout": 0.2, "max_retries": 0}
    made.conf.task_publish_retry = False
    made.conf.result_backend = "cache+memory://"  # chords ask for one

    @made.task(name="shop.pay", shared=False)  # type: ignore[untyped-decorator]
    def pay(*args: Any, **kwargs: Any) -> None: ...

    @made.task(name="other.pay", shared=False)  # type: ignore[untyped-decorator]
    def other(*args: Any, **kwargs: Any) -> None: ...

    make_transactional(made, ["shop.*"], using=connection)
    yield made
    drop_in._rules.clear()
    made.close()


def rows(connection: Connection) -> list[Any]:
    """What was published: id, arguments, options."""
    return connection.execute(
        "select message_id::text, payload, options, ordering_key, due_at - created_at as wait, headers, destination"
        " from sagas_message order by id"
    ).fetchall()


def test_delay_is_a_row_of_the_open_transaction(app: Celery, connection: Connection) -> None:
    """With the arguments it was called with; the result has the id of the message, and a rollback takes it back."""
    result = app.tasks["shop.pay"].delay(7, by="card")
    ((id, payload, options, key, wait, headers, name),) = rows(connection)
    assert (id, payload, name) == (result.id, {"args": [7], "kwargs": {"by": "card"}}, "shop.pay")
    assert (options["call"], key, wait, headers) == ("coded", None, timedelta(), None)
    connection.rollback()
    assert not rows(connection)


@pytest.mark.parametrize("way", ["apply_async", "send_task", "signature"])
def test_options_are_kept(app: Celery, connection: Connection, way: str) -> None:
    """Queue, priority, expiry, headers, the id and the time, however the task is called."""
    id, task = "0199cb8b-2f6c-7d11-8111-6a1111111111", app.tasks["shop.pay"]
    options: dict[str, Any] = {
        "queue": "quick", "priority": 3, "countdown": 60, "expires": 600, "headers": {"traceparent": "t"},
        "task_id": id,
        "ordering_key": "k", "time_limit": 9,
    }  # fmt: skip
    calls: dict[str, Callable[[], Any]] = {
        "apply_async": lambda: task.apply_async((1,), **options),
        "send_task": lambda: app.send_task("shop.pay", (1,), **options),
        "signature": lambda: task.s(1).set(**options).apply_async(),
    }
    assert calls[way]().id == id
    ((found, payload, stored, key, wait, headers, _),) = rows(connection)
    assert (found, payload, key, wait) == (id, {"args": [1], "kwargs": {}}, "k", timedelta(seconds=60))
    assert (stored["queue"], stored["priority"], stored["time_limit"]) == ("quick", 3, 9)
    assert headers == {"traceparent": "t"}
    left = datetime.fromisoformat(stored["expires"]) - datetime.now(UTC)
    assert timedelta(seconds=500) < left <= timedelta(seconds=600)


def test_headers_that_are_more_than_texts(app: Celery, connection: Connection) -> None:
    """They are kept with the arguments, in Celery's own JSON; so is what is too long for the headers of a message."""
    task = app.tasks["shop.pay"]
    task.apply_async((1,), headers={"a": "b", "headers": {"a": "b"}, "n": 1.5, "id": UUID(int=0)})
    task.apply_async((1,), headers={"baggage": "b" * 8192})
    (_, first, _, _, _, headers, _), (_, second, _, _, _, more, _) = rows(connection)
    coded = {"__type__": "uuid", "__value__": {"hex": "0" * 32}}
    assert first["headers"] == {"a": "b", "headers": {"a": "b"}, "n": 1.5, "id": coded}
    assert second["headers"] == {"baggage": "b" * 8192} and (headers, more) == (None, None)


@pytest.mark.parametrize("value", [object(), float("nan"), {"deep": {1}}])
def test_headers_that_are_no_json(app: Celery, connection: Connection, value: Any) -> None:
    """Said at the call, with the header."""
    with pytest.raises((NotTransactional, InvalidMessage), match=r"headers.*(n: nan|JSON serializable)"):
        app.tasks["shop.pay"].apply_async(headers={"n": value})
    assert not rows(connection)


def test_eta(app: Celery, connection: Connection) -> None:
    """A moment, which the outbox waits for instead of a worker."""
    moment = datetime.now(UTC) + timedelta(days=3)
    app.tasks["shop.pay"].apply_async(eta=moment)
    assert connection.execute("select due_at from sagas_message").fetchone() == (moment,)


@pytest.mark.parametrize(
    "call",
    [
        lambda pay: pay.apply_async(link=pay.s()),
        lambda pay: pay.apply_async(link_error=pay.s()),
        lambda pay: chain(pay.s(), pay.s()).apply_async(),
        lambda pay: group(pay.s(), pay.s()).apply_async(),
        lambda pay: chord([pay.s()], pay.s()).apply_async(),
        lambda pay: pay.apply_async(serializer="pickle"),
        lambda pay: pay.apply_async(task_id="order-7"),
        lambda pay: pay.apply_async(task_id=uuid4().hex),
        lambda pay: pay.app.send_task("shop.pay:now"),
        lambda pay: pay.apply_async(mandatory=True),
    ],
)
def test_what_has_no_meaning_is_an_error(app: Celery, connection: Connection, call: Callable[[Any], Any]) -> None:
    """Said at the call, and nothing is published."""
    with pytest.raises(NotTransactional, match=r"shop\.pay"):
        call(app.tasks["shop.pay"])
    assert not rows(connection)


def test_other_tasks_are_left_alone(app: Celery, connection: Connection) -> None:
    """A task that was not chosen still needs the broker."""
    with pytest.raises(Exception, match=r"(?i)refused|connect"):
        app.tasks["other.pay"].delay()
    assert not rows(connection)


@pytest.mark.parametrize(
    "options",
    [
        {"chain": [], "parent_id": "x", "root_id": "y", "link_error": [{"task": "other.pay"}]},  # the last of a chain
        {"link_error": [{"task": "other.pay"}], "parent_id": "x", "root_id": "y"},  # a callback that has one itself
        {"group_id": "g", "reply_to": "elsewhere"},  # the body of a chord
        {"chain": [{"task": "shop.pay"}], "reply_to": "elsewhere"},  # a chain as the body of a chord
        {"reply_to": "elsewhere", "root_id": "y", "replaced_task_nesting": 1},  # self.replace()
    ],
)
def test_what_a_worker_goes_on_with_is_left_alone(app: Celery, connection: Connection, options: Any) -> None:
    """What was put together before goes to the broker: there is no caller to whom an error could be told."""
    with pytest.raises(Exception, match=r"(?i)refused|connect"):
        app.send_task("shop.pay", (), **options)
    assert not rows(connection)


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_arguments_that_are_no_json(app: Celery, connection: Connection, value: Any) -> None:
    """Said at the call, with the task or the argument."""
    with pytest.raises((NotTransactional, InvalidMessage), match=r"nan|shop\.pay: .*JSON serializable"):
        app.tasks["shop.pay"].delay(value)
    assert not rows(connection)


def test_a_result_that_is_ignored(app: Celery) -> None:
    """It says so, as Celery's does, instead of waiting for what never comes."""
    assert app.tasks["shop.pay"].apply_async(ignore_result=True).get(timeout=1) is None
    assert not app.tasks["shop.pay"].delay().ignored


def test_another_connection(app: Celery, connection: Connection, fresh_database: str) -> None:
    """For a block, or for one call."""
    with psycopg.connect(fresh_database) as second, publishing_on(second):
        app.tasks["shop.pay"].delay(1)
        app.tasks["shop.pay"].apply_async((2,), using=connection)
        assert [payload["args"] for _, payload, *_ in rows(second)] == [[1]]
    assert [payload["args"] for _, payload, *_ in rows(connection)] == [[1], [2]]


def test_eager_tasks_still_run_at_once(app: Celery, connection: Connection) -> None:
    """As tests of an application may have it."""
    app.conf.task_always_eager = True
    app.conf.broker_url = "memory://"
    assert app.tasks["shop.pay"].delay().state == "SUCCESS"
    assert not rows(connection)


def test_a_list_is_a_list() -> None:
    """A single name that was meant to be a list."""
    with pytest.raises(ConfigurationError, match="a list of names"):
        make_transactional(None, "shop.pay")
