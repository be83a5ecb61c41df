"""The first version of the tables: the SQL file is the truth, the state tells Django what it makes."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from sagas_django.operations import RunSchema


def model(
    name: str, table: str, singular: str, plural: str, *fields: tuple[str, models.Field], **options: Any
) -> migrations.CreateModel:
    return migrations.CreateModel(
        name=name,
        fields=list(fields),
        options={"verbose_name": singular, "verbose_name_plural": plural, "db_table": table, **options},
    )


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        RunSchema(
            1,
            state_operations=[
                model(
                    "SagaRow", "sagas_saga", "saga", "sagas",
                    ("id", models.UUIDField(primary_key=True, serialize=False)),
                    ("name", models.TextField()),
                    ("version", models.IntegerField()),
                    ("key", models.TextField()),
                    ("run", models.IntegerField(default=1)),
                    ("status", models.TextField()),
                    ("seq", models.IntegerField()),
                    ("input_hash", models.TextField()),
                    ("steps", models.JSONField(default=dict)),
                    ("cancel_requested", models.BooleanField(default=False)),
                    ("parked_from", models.TextField(null=True)),
                    ("parent", models.UUIDField(null=True)),
                    ("subject_type", models.TextField(null=True)),
                    ("subject_id", models.TextField(null=True)),
                    ("deadline", models.DateTimeField(null=True)),
                    ("paused", models.BooleanField(default=False)),
                    ("failing", models.BooleanField(default=False)),
                    ("definition", models.TextField(default="")),
                    ("headers", models.JSONField(default=dict)),
                    ("error", models.TextField(default="")),
                    ("created_at", models.DateTimeField()),
                    ("updated_at", models.DateTimeField()),
                    ("finished_at", models.DateTimeField(null=True)),
                    permissions=(
                        ("retry_saga", "Can ask for a saga to be retried"),
                        ("cancel_saga", "Can ask for a saga to be cancelled"),
                        ("abort_saga", "Can ask for a saga to be aborted"),
                        ("pause_saga", "Can ask for a saga to be paused"),
                        ("resume_saga", "Can ask for a saga to be resumed"),
                        ("redo_saga", "Can ask for a step to be done anew"),
                        ("signal_saga", "Can send a saga what it waits for"),
                    ),
                ),
                model(
                    "LogEntry", "sagas_log", "log entry", "log entries",
                    ("pk", models.CompositePrimaryKey("saga_id", "seq", blank=True, editable=False, primary_key=True,
                                                      serialize=False)),
                    ("saga_id", models.UUIDField()),
                    ("seq", models.IntegerField()),
                    ("kind", models.TextField()),
                    ("step", models.TextField(null=True)),
                    ("attempt", models.IntegerField(default=0)),
                    ("token", models.BigIntegerField(null=True)),
                    ("data", models.JSONField(default=dict)),
                    ("at", models.DateTimeField()),
                ),
                model(
                    "OutboxRow", "sagas_outbox", "outbox row", "outbox rows",
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("saga_id", models.UUIDField(null=True)),
                    ("kind", models.TextField()),
                    ("step", models.TextField(null=True)),
                    ("direction", models.TextField(null=True)),
                    ("holder", models.TextField(null=True)),
                    ("queue", models.TextField()),
                    ("priority", models.SmallIntegerField(default=0)),
                    ("ordering_key", models.TextField(null=True)),
                    ("due_at", models.DateTimeField()),
                    ("timer_at", models.DateTimeField(null=True)),
                    ("token", models.BigIntegerField(default=0)),
                    ("publishes", models.IntegerField(default=0)),
                    ("deliveries", models.IntegerField(default=0)),
                    ("failures", models.IntegerField(default=0)),
                    ("first_begun_at", models.DateTimeField(null=True)),
                    ("payload", models.JSONField(null=True)),
                    ("progress", models.JSONField(null=True)),
                    ("headers", models.JSONField(null=True)),
                ),
                model(
                    "DedupeRecord", "sagas_dedupe", "dedupe record", "dedupe records",
                    ("key", models.TextField(primary_key=True, serialize=False)),
                    ("saga_id", models.UUIDField(null=True)),
                    ("state", models.TextField()),
                    ("token", models.BigIntegerField(null=True)),
                    ("fingerprint", models.TextField(null=True)),
                    ("response", models.JSONField(null=True)),
                    ("created_at", models.DateTimeField()),
                    ("expires_at", models.DateTimeField(null=True)),
                ),
            ],
        ),
    ]  # fmt: skip
