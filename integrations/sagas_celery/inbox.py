"""Which message a Celery task handles: the one with the task's id."""

from __future__ import annotations

from celery import current_task

from sagas_outbox.handling import message_ids_from


def task_message_id() -> str | None:
    """The id of the message that the running task handles; None outside of any task."""
    request = getattr(current_task, "request", None)
    found: str | None = None if request is None or request.called_directly else request.id
    return found


message_ids_from(task_message_id)
