"""A publisher of the project's own: streams of the Redis that is its broker too."""

from __future__ import annotations

import os

import redis

from sagas_outbox.redis_stream import RedisStreamPublisher

publisher = RedisStreamPublisher(
    redis.Redis.from_url(
        os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0"), socket_timeout=2, socket_connect_timeout=2
    )
)
