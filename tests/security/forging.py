"""Messages as somebody puts them into Redis who is no relay of ours."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import redis as redis_client

from tests.relay.plant import Plant


def send_raw(plant: Plant, body: bytes, *, content: str = "application/json", encoding: str = "utf-8",
             task: str = "sagas.run", **headers: Any) -> None:  # fmt: skip
    """Put a message into the queue as somebody would who writes to Redis directly."""
    id = str(uuid.uuid4())
    message = {
        "body": base64.b64encode(body).decode(), "content-type": content, "content-encoding": encoding,
        "headers": {"lang": "py", "task": task, "id": id, "root_id": id, "argsrepr": "", "kwargsrepr": ""}
        | headers,
        "properties": {
            "correlation_id": id, "delivery_mode": 2, "delivery_tag": id, "body_encoding": "base64", "priority": 0,
            "delivery_info": {"exchange": "", "routing_key": "quick"},
        },
    }  # fmt: skip
    push(plant, json.dumps(message))


def push(plant: Plant, text: str) -> None:
    with redis_client.Redis.from_url(plant.broker) as client:
        client.lpush("quick", text)


def task_body(**keywords: Any) -> bytes:
    return json.dumps([[], keywords, {}]).encode()
