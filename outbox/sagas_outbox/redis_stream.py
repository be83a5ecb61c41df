"""A publisher of your own, as an example that works: messages become entries of Redis streams.

    PUBLISHERS = {"redis": "shop.messaging.stream"}            # SAGAS in the Django settings
    stream = RedisStreamPublisher(redis.Redis(..., socket_timeout=2, socket_connect_timeout=2))
    publish("redis:orders", {"order": 7}, ordering_key="order-7")

An entry has the fields `id`, `payload` (JSON), `published_at`, `key` where there is one, and each header as
`header:NAME`. Whoever reads it takes it through the inbox by its `id`, since an entry may come twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sagas_outbox.errors import Unreachable
from sagas_outbox.publishers import Message, Outcome
from sagas_outbox.refusals import takes_no_writes


class RedisStreamPublisher:
    """Adds each message to the stream that its destination names: `redis:orders` is the stream `orders`.

    Args:
        client: a `redis.Redis` with time limits of its own (`socket_timeout`, `socket_connect_timeout`).
        most: about how many entries a stream keeps; None: all.
    """

    def __init__(self, client: Any, *, most: int | None = None) -> None:
        self._client, self._most = client, most

    def send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Add them in one round trip, in order.

        Raises:
            Unreachable: Redis cannot be reached, or does not take writes.
        """
        pipe = self._client.pipeline(transaction=True)  # all or none, so that no entry overtakes one that was refused
        for message in messages:
            stream = message.destination.partition(":")[2]
            pipe.xadd(stream, _fields(message), maxlen=self._most, approximate=True)
        try:
            answers = pipe.execute(raise_on_error=False)
        except Exception as problem:
            if takes_no_writes(problem):
                raise Unreachable(f"Redis cannot be reached, or takes no writes: {problem}") from problem
            raise
        return [answer if isinstance(answer, Exception) else None for answer in answers]

    def reset(self) -> None:
        """Let go of connections; the next send opens others."""
        self._client.connection_pool.disconnect()


def _fields(message: Message) -> dict[str, str]:
    fields = {"id": str(message.id), "payload": message.body, "published_at": message.published_at.isoformat()}
    if message.key is not None:
        fields["key"] = message.key
    return fields | {f"header:{name}": value for name, value in message.headers.items()}
