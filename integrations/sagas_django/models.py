"""The tables as read-only models, for queries and admin. Only the engine writes them."""

from __future__ import annotations

from django.db import connections, models, router
from django.utils.translation import gettext_lazy as _

from sagas_django import inner_models as inner_models  # models, too: Django looks for them here
from sagas_django.read_only import ReadOnly
from sagas_django.subjects import subject_of


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
    parent_step = models.TextField(null=True)
    subject_type = models.TextField(null=True)
    subject_id = models.TextField(null=True)
    deadline = models.DateTimeField(null=True)
    paused = models.BooleanField(default=False)
    failing = models.BooleanField(default=False)
    definition = models.TextField(default="")
    priority = models.SmallIntegerField(default=0)
    ordering_key = models.TextField(null=True)
    headers = models.JSONField(default=dict)
    error = models.TextField(default="")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sagas_saga"
        verbose_name = _("saga")
        verbose_name_plural = _("sagas")
        permissions = (
            ("retry_saga", "Can ask for a saga to be retried"),
            ("cancel_saga", "Can ask for a saga to be cancelled"),
            ("abort_saga", "Can ask for a saga to be aborted"),
            ("pause_saga", "Can ask for a saga to be paused"),
            ("resume_saga", "Can ask for a saga to be resumed"),
            ("redo_saga", "Can ask for a step to be done anew"),
            ("mark_done_saga", "Can say that a step happened, and what came of it"),
            ("mark_not_done_saga", "Can say that a step did not happen"),
            ("skip_saga", "Can have a saga go on without a step"),
            ("mark_undone_saga", "Can say that a step was undone by hand"),
            ("signal_saga", "Can send a saga what it waits for"),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.key}"


class HasSagas(models.Model):
    """Gives the instances of a model `sagas`: those that were started with `subject=` this instance.

    It adds no column, so that no migration is needed. Name it before `models.Model`, or in its place.
    """

    class Meta:
        abstract = True

    @property
    def sagas(self) -> models.QuerySet[SagaRow]:
        """Its sagas, newest first, in the database the instance came from."""
        return sagas_of(self)


def sagas_of(instance: models.Model, using: str | None = None) -> models.QuerySet[SagaRow]:
    """The sagas of any model's instance, newest first; none while it is not saved.

    Args:
        instance: what they are about.
        using: the database alias that they are in. None: that of the instance, or where that is none for sagas, the one
            that the router reads them from.
    """
    sagas = SagaRow.objects.using(using or _home(instance._state.db)).order_by("-id")
    if instance.pk is None:
        return sagas.none()
    subject_type, subject_id = subject_of(instance)
    return sagas.filter(subject_type=subject_type, subject_id=subject_id)


def _home(alias: str | None) -> str | None:
    """An alias, if it may hold sagas; None: ask the router."""
    if alias and connections[alias].vendor == "postgresql" and router.allow_migrate_model(alias, SagaRow):
        return alias
    return None


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
    lane = models.IntegerField(default=0)
    ordering_key = models.TextField(null=True)
    place = models.BigIntegerField(null=True)
    due_at = models.DateTimeField()
    timer_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0)
    publishes = models.IntegerField(default=0)
    deliveries = models.IntegerField(default=0)
    failures = models.IntegerField(default=0)
    first_begun_at = models.DateTimeField(null=True)
    payload = models.JSONField(null=True)
    progress = models.JSONField(null=True)
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


class ScheduleRow(ReadOnly):
    """A schedule, as the code that declares it has put it here."""

    name = models.TextField(primary_key=True)
    saga = models.TextField()
    version = models.IntegerField()
    timing = models.TextField()
    timezone = models.TextField()
    catch_up = models.TextField()
    overlap = models.TextField()
    fingerprint = models.TextField()
    revision = models.BigIntegerField(default=0)
    next_at = models.DateTimeField()
    look_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True)
    last_key = models.TextField(null=True)
    last_started_at = models.DateTimeField(null=True)
    note = models.TextField(default="")
    paused = models.BooleanField(default=False)
    actor = models.TextField(default="")
    reason = models.TextField(default="")
    declared_at = models.DateTimeField()

    class Meta:
        db_table = "sagas_schedule"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = (
            ("pause_schedule", "Can pause a schedule"),
            ("resume_schedule", "Can resume a schedule"),
            ("run_schedule", "Can run a schedule now"),
        )

    def __str__(self) -> str:
        return self.name


class SemanticLockRow(ReadOnly):
    """That a saga holds a semantic lock, or waits for it."""

    pk = models.CompositePrimaryKey("subject", "saga_id")
    subject = models.TextField()
    saga_id = models.UUIDField()
    step = models.TextField()
    waiting = models.BooleanField(default=False)
    at = models.DateTimeField()

    class Meta:
        db_table = "sagas_lock"
        verbose_name = _("semantic lock")
        verbose_name_plural = _("semantic locks")

    def __str__(self) -> str:
        return self.subject


class MessageRow(ReadOnly):
    """One plain message: published, and not sent yet, dead, or kept."""

    id = models.BigAutoField(primary_key=True)
    message_id = models.UUIDField()
    destination = models.TextField()
    ordering_key = models.TextField(null=True)
    state = models.TextField(default="waiting")
    holder = models.TextField(null=True)
    due_at = models.DateTimeField()
    token = models.BigIntegerField(default=0)
    failures = models.IntegerField(default=0)
    payload = models.JSONField()
    options = models.JSONField(null=True)
    headers = models.JSONField(null=True)
    error = models.TextField(default="")
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "sagas_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        permissions = (
            ("replay_message", "Can send a dead message again"),
            ("drop_message", "Can drop a dead message"),
        )

    def __str__(self) -> str:
        return f"{self.destination} {self.message_id}"


class InboxRecord(ReadOnly):
    """That a handler has taken a message."""

    pk = models.CompositePrimaryKey("message_id", "handler")
    message_id = models.TextField()
    handler = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "sagas_inbox"
        verbose_name = _("taken message")
        verbose_name_plural = _("taken messages")

    def __str__(self) -> str:
        return f"{self.handler} {self.message_id}"
