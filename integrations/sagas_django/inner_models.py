"""The tables that have no page in the admin, as models: so that `flush`, with which Django empties the database between
tests that commit, knows them too. What one test has sent, paused or used up is then nothing to the next.
"""

from __future__ import annotations

from django.db import models

from sagas_django.fields import IntegersField
from sagas_django.read_only import ReadOnly


class Inner(ReadOnly):
    """No permission is made for it: there is nothing in the admin that one could be for."""

    class Meta:
        abstract = True
        default_permissions = ()


class SignalRecord(Inner):
    """That a signal with this id was sent."""

    pk = models.CompositePrimaryKey("name", "key", "step", "dedupe_id")
    name = models.TextField()
    key = models.TextField()
    step = models.TextField()
    dedupe_id = models.TextField()
    saga_id = models.UUIDField(null=True)
    sent_at = models.DateTimeField()

    class Meta(Inner.Meta):
        db_table = "sagas_signal"


class PauseRow(Inner):
    """That a queue or a definition is paused."""

    pk = models.CompositePrimaryKey("kind", "name", "version")
    kind = models.TextField()
    name = models.TextField()
    version = models.IntegerField(default=0)
    actor = models.TextField(default="")
    reason = models.TextField(default="")
    at = models.DateTimeField()

    class Meta(Inner.Meta):
        db_table = "sagas_pause"


class QueueRow(Inner):
    """A queue with limits, and what was begun of it lately."""

    name = models.TextField(primary_key=True)
    concurrency = models.IntegerField(null=True)
    rate = models.IntegerField(null=True)
    period = models.FloatField(null=True)
    spent = IntegersField(default=list)
    spent_at = models.BigIntegerField(default=0)
    declared = models.JSONField(null=True)
    actor = models.TextField(default="")
    reason = models.TextField(default="")
    at = models.DateTimeField()

    class Meta(Inner.Meta):
        db_table = "sagas_queue"


class SlotRow(Inner):
    """A place in a queue with limits."""

    outbox_id = models.BigIntegerField(primary_key=True)
    queue = models.TextField()
    token = models.BigIntegerField()
    begun = models.BooleanField(default=False)
    cell = models.BigIntegerField(null=True)

    class Meta(Inner.Meta):
        db_table = "sagas_slot"


class PaceRow(Inner):
    """How long the bodies of a step take."""

    pk = models.CompositePrimaryKey("name", "step", "direction")
    name = models.TextField()
    step = models.TextField()
    direction = models.TextField()
    mean = models.FloatField()
    updated_at = models.DateTimeField()

    class Meta(Inner.Meta):
        db_table = "sagas_pace"


class ProcessRow(Inner):
    """A relay or a worker that has said it is there."""

    holder = models.TextField(primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
    queues = models.TextField(default="")
    version = models.TextField(default="")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    trouble = models.TextField(default="")
    trouble_since = models.DateTimeField(null=True)

    class Meta(Inner.Meta):
        db_table = "sagas_process"


class TombstoneRow(Inner):
    """The key of a saga that was pruned."""

    pk = models.CompositePrimaryKey("name", "key", "run")
    name = models.TextField()
    key = models.TextField()
    run = models.IntegerField()
    saga_id = models.UUIDField()
    version = models.IntegerField()
    status = models.TextField()
    input_hash = models.TextField()
    finished_at = models.DateTimeField()

    class Meta(Inner.Meta):
        db_table = "sagas_tombstone"


class ArchivedSaga(Inner):
    """A saga that was pruned, whole."""

    saga_id = models.UUIDField(primary_key=True)
    name = models.TextField()
    key = models.TextField()
    status = models.TextField()
    finished_at = models.DateTimeField()
    archived_at = models.DateTimeField()
    data = models.JSONField()

    class Meta(Inner.Meta):
        db_table = "sagas_archive"


class TallyRow(Inner):
    """How often something has happened."""

    pk = models.CompositePrimaryKey("name", "step", "what")
    name = models.TextField()
    step = models.TextField()
    what = models.TextField()
    count = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0)

    class Meta(Inner.Meta):
        db_table = "sagas_tally"
