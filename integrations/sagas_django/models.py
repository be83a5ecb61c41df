"""The tables as read-only models, for queries and admin. Only the engine writes them."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils.translation import gettext_lazy as _


class ReadOnly(models.Model):
    """Refuses to be written: a saga changes through the engine, never by editing its rows."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only; use Saga.start(), cancel() and the operator commands")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only; old sagas are removed by pruning")


class SagaRow(ReadOnly):
    """One saga."""

    id = models.UUIDField(primary_key=True)
    name = models.TextField()
    version = models.IntegerField()
    key = models.TextField()
    run = models.IntegerField(default=1)
    status = models.TextField()
    seq = models.IntegerField()
    input_hash = models.TextField()
    steps = models.JSONField(default=dict)
    cancel_requested = models.BooleanField(default=False)
    parked_from = models.TextField(null=True)
    parent = models.UUIDField(null=True)
    subject_type = models.TextField(null=True)
    subject_id = models.TextField(null=True)
    deadline = models.DateTimeField(null=True)
    headers = models.JSONField(default=dict)
    error = models.TextField(default="")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sagas_saga"
        verbose_name = _("saga")
        verbose_name_plural = _("sagas")

    def __str__(self) -> str:
        return f"{self.name} {self.key}"


class LogEntry(ReadOnly):
    """One line of a saga log."""

    pk = models.CompositePrimaryKey("saga_id", "seq")
    saga_id = models.UUIDField()
    seq = models.IntegerField()
    kind = models.TextField()
    step = models.TextField(null=True)
    attempt = models.IntegerField(default=0)
    token = models.BigIntegerField(null=True)
    data = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        db_table = "sagas_log"
        verbose_name = _("log entry")
        verbose_name_plural = _("log entries")

    def __str__(self) -> str:
        return f"{self.saga_id} {self.seq} {self.kind}"


class OutboxRow(ReadOnly):
    """One thing that must be run or delivered, no earlier than `due_at`."""

    id = models.BigAutoField(primary_key=True)
    saga_id = models.UUIDField(null=True)
    kind = models.TextField()
    step = models.TextField(null=True)
    direction = models.TextField(null=True)
    holder = models.TextField(null=True)
    queue = models.TextField()
    priority = models.SmallIntegerField(default=0)
    ordering_key = models.TextField(null=True)
    due_at = models.DateTimeField()
    timer_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0)
    publishes = models.IntegerField(default=0)
    deliveries = models.IntegerField(default=0)
    failures = models.IntegerField(default=0)
    first_begun_at = models.DateTimeField(null=True)
    payload = models.JSONField(null=True)
    headers = models.JSONField(null=True)

    class Meta:
        db_table = "sagas_outbox"
        verbose_name = _("outbox row")
        verbose_name_plural = _("outbox rows")

    def __str__(self) -> str:
        return f"{self.id} {self.kind}"


class DedupeRecord(ReadOnly):
    """What is known about one effect, by idempotency key."""

    key = models.TextField(primary_key=True)
    saga_id = models.UUIDField(null=True)
    state = models.TextField()
    token = models.BigIntegerField(null=True)
    fingerprint = models.TextField(null=True)
    response = models.JSONField(null=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sagas_dedupe"
        verbose_name = _("dedupe record")
        verbose_name_plural = _("dedupe records")

    def __str__(self) -> str:
        return self.key
