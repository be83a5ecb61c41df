"""Which publisher serves a destination, as an application says it; and the example that ships, without a Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery
from sqlalchemy import create_engine

from sagas.errors import ConfigurationError
from sagas_celery.messages import CeleryMessages, call_of, routes
from sagas_outbox import Message, Unreachable, Unsendable
from sagas_outbox.redis_stream import RedisStreamPublisher
from sagas_outbox.refusals import takes_no_writes
from sagas_sqlalchemy import Sagas
from tests.messages.post import Post

POST = Post()
CENTS = '{"__type__": "decimal", "__value__": "0.1"}'
OWN = '{"__type__": "own", "__value__": 1}'  # a type that only the worker knows gets there as it is


def message(body: str = "1", **options: Any) -> Message:
    return Message(
        id=uuid4(), destination="redis:orders", body=body, key=None, options=options, headers={},
        published_at=datetime.now(UTC),
    )  # fmt: skip


@pytest.mark.parametrize("given", [POST, "tests.messages.test_publishers.POST"])
def test_by_scheme(given: Any) -> None:
    """An object, or where it is; everything without a scheme is a Celery task."""
    found = routes(Celery("shop", set_as_current=False), timeout=1, publishers={"post": given})
    assert isinstance(found.publisher("post:a"), Post)
    assert isinstance(found.publisher("shop.tasks.pay"), CeleryMessages)
    with pytest.raises(Unsendable, match="scheme 'pots'; known schemes: post"):
        found.publisher("pots:a")
    assert found.lane("post:a") != found.lane("post:b") and found.lane("a") == found.lane("b")


@pytest.mark.parametrize(
    ("scheme", "given"),
    [
        ("post", "nowhere.at_all"),
        ("post", "tests.messages.post.nothing"),
        ("post", object()),
        ("http://", POST),
        ("p", "x"),
    ],
)
def test_what_is_no_publisher(scheme: str, given: Any) -> None:
    """Said when the relay starts, and not when the first message is there."""
    with pytest.raises(ConfigurationError, match="publishers"):
        routes(Celery("shop", set_as_current=False), timeout=1, publishers={scheme: given})


def test_of_a_sqlalchemy_runtime() -> None:
    """What the runtime is given is what its relay uses."""
    engine = create_engine("postgresql+psycopg://127.0.0.1:1/none")
    runtime = Sagas(engine, name="messages", publishers={"post": POST}, celery=Celery("shop", set_as_current=False))
    try:
        assert runtime.publisher().messages.publisher("post:a") is POST
    finally:
        runtime.close()


def test_a_redis_that_is_not_there() -> None:
    """Counts for no message."""
    client = redis.Redis(port=1, socket_connect_timeout=1, socket_timeout=1)
    publisher = RedisStreamPublisher(client)
    with pytest.raises(Unreachable, match="Redis cannot be reached"):
        publisher.send([message()])
    publisher.reset()
    client.close()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", True),
        ("Command # 1 (XADD o * a 1) of pipeline caused error: NOREPLICAS Not enough good replicas to write.", True),
        ("Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.", True),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
        ("Command # 1 (XADD o * payload OOM) of pipeline caused error: NOPERM No permissions to access a key", False),
    ],
)
def test_what_a_redis_says_that_takes_no_writes(text: str, refused: bool) -> None:
    """Its own words, for what clients have no class of their own."""
    assert takes_no_writes(redis.ResponseError(text)) == refused


@pytest.mark.parametrize(
    ("body", "options", "called"),
    [
        ('{"a": 1}', {}, ((), {"a": 1}, {})),
        ("[1, 2]", {}, ([1, 2], {}, {})),
        ("5", {}, ((5,), {}, {})),
        ("null", {}, ((), {}, {})),
        ('{"args": [1], "kwargs": {"a": 2}}', {"call": True}, ([1], {"a": 2}, {})),
        ('{"args": [], "kwargs": {}, "headers": {"n": 1.5}}', {"call": True}, ((), {}, {"n": 1.5})),
        (
            f'{{"args": [{CENTS}], "kwargs": {{}}}}',
            {"call": True},
            (({"__type__": "decimal", "__value__": "0.1"},), {}, {}),
        ),
        (
            f'{{"args": [{CENTS}], "kwargs": {{"a": {CENTS}}}}}',
            {"call": "coded"},
            ((Decimal("0.1"),), {"a": Decimal("0.1")}, {}),
        ),
        (f'{{"args": [{OWN}], "kwargs": {{}}}}', {"call": "coded"}, (({"__type__": "own", "__value__": 1},), {}, {})),
    ],
)
def test_what_a_task_is_called_with(body: str, options: dict[str, Any], called: Any) -> None:
    """An object has names, a list has none, and anything else is the only argument."""
    args, kwargs, headers = call_of(message(body, **options))
    assert (tuple(args), kwargs, headers) == (tuple(called[0]), *called[1:])
