"""A mail server."""

from __future__ import annotations

from typing import Any

sent: list[int] = []


def send_mail(user_id: int, message_id: str) -> None:
    sent.append(user_id)


def afterwards(names: dict[str, Any]) -> None:
    """One mail."""
    assert sent == [7]
