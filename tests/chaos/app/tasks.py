"""What a plain message is sent to."""

from __future__ import annotations

from celery import shared_task

from sagas_django.inbox import inbox
from tests.chaos.app.money import write


@shared_task(acks_late=True, autoretry_for=(Exception,), default_retry_delay=1, max_retries=None)
@inbox(name="chaos.post")
def post(order: str) -> None:
    """Take a message once."""
    write(order, "letter")
