"""The database itself: closed lists, append-only history, and migrations that agree with files and models."""

from __future__ import annotations

import re
import tracemalloc
import uuid
from collections.abc import Callable
from io import StringIO
from typing import LiteralString

import psycopg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from django.apps import apps
from django.core import serializers
from django.core.management import call_command
from django.db import InternalError, ProgrammingError, connection, transaction
from django.db.migrations.exceptions import IrreversibleError
from django.db.utils import IntegrityError
from django.utils import timezone
from sqlalchemy import MetaData, create_engine

from sagas import verify
from sagas.asked import REQUESTS
from sagas.events import Direction, Kind
from sagas.machine import DIRECTION, TERMINAL
from sagas.states import Status
from sagas.store.schema_files import NAMES, schema_sql
from sagas.testing.servers import Postgres
from sagas_django.checks import SCHEMA, check_databases
from sagas_django.inner_models import QueueRow
from sagas_django.models import LogEntry, SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox.queries import query
from sagas_sqlalchemy import alembic
from sagas_sqlalchemy.tables import sagas_tables
from tests.shop.sagas import Trip
from tests.support.catalog import catalog
from tests.support.stories import begin, begin_many, differences, drain

pytestmark = pytest.mark.usefixtures("shop")

CHECKS = "select conname, pg_get_constraintdef(oid) from pg_constraint where contype = 'c' and conname like 'sagas%'"


def texts(constraint: str) -> list[str]:
    """The text values that a CHECK constraint names, in order."""
    with connection.cursor() as cursor:
        cursor.execute(CHECKS)
        found = re.findall(r"'\{?([a-z_,]+)\}?'::text", dict(cursor.fetchall())[constraint])
        return [value for values in found for value in values.split(",")]


def test_status_list_is_that_of_the_machine() -> None:
    """The saga row accepts exactly the statuses that the machine knows."""
    assert texts("sagas_saga_status") == [status.value for status in Status]


def test_finished_is_what_the_machine_calls_terminal() -> None:
    """A saga has an end time exactly in a terminal status."""
    assert set(texts("sagas_saga_finished")) == {status.value for status in TERMINAL}


def test_parked_from_is_where_there_is_work() -> None:
    """A saga parks from a status in which it has work, and from no other."""
    parked, *sources = texts("sagas_saga_parked_from")
    assert parked == Status.PARKED
    assert set(sources) == {status.value for status in DIRECTION}


def test_log_kinds_are_those_of_the_machine() -> None:
    """The log accepts exactly the kinds that can be folded."""
    assert texts("sagas_log_kind") == [kind.value for kind in Kind]


def test_outbox_lists_are_those_of_the_worker() -> None:
    """The outbox accepts steps and the requests that a worker can apply, in the machine's directions."""
    assert texts("sagas_outbox_kind") == ["step", *REQUESTS]
    assert texts("sagas_outbox_direction") == ["step", *(direction.value for direction in Direction)]


def test_dedupe_states() -> None:
    """The dedupe table knows tried, answered, and closed."""
    assert texts("sagas_dedupe_state") == ["started", "done", "closed"]


@pytest.mark.parametrize(
    "change",
    [
        "sagas_saga set status = 'odd'",
        "sagas_saga set status = 'completed'",
        "sagas_saga set status = 'parked'",
        "sagas_saga set finished_at = now()",
        "sagas_saga set parked_from = 'running'",
        "sagas_outbox set kind = 'odd'",
        "sagas_outbox set direction = null",
        "sagas_outbox set direction = 'sideways'",
        "sagas_outbox set token = -1",
        "sagas_outbox set deliveries = -1",
    ],
)
def test_impossible_rows_are_refused(change: str) -> None:
    """A row that the machine could not have written does not get in."""
    begin(Trip)
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(f"update {change}")


def test_a_key_is_unique_per_name_and_run() -> None:
    """Two sagas of one name cannot share key and run."""
    begin(Trip, "a")
    begin(Trip, "b")
    with pytest.raises(IntegrityError, match="sagas_saga_key"), connection.cursor() as cursor:
        cursor.execute("update sagas_saga set key = 'a'")


@pytest.mark.parametrize("statement", ["update sagas_log set kind = 'completed'", "delete from sagas_log"])
def test_the_log_is_append_only(statement: str) -> None:
    """History cannot be edited or deleted, and the error says what to do."""
    begin(Trip)
    refused = pytest.raises((InternalError, ProgrammingError), match="sagas_log is append-only")
    with connection.cursor() as cursor, refused:
        cursor.execute(statement)
    assert LogEntry.objects.count() == 1


def test_pruning_may_delete_but_not_edit() -> None:
    """Pruning says what it is in its own transaction; even then nothing can be changed."""
    begin(Trip)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local sagas.pruning = 'on'")
        with pytest.raises((InternalError, ProgrammingError)), transaction.atomic():
            cursor.execute("update sagas_log set attempt = 7")
        cursor.execute("delete from sagas_log")
    assert LogEntry.objects.count() == 0
    begin(Trip, "b")
    with pytest.raises((InternalError, ProgrammingError)), connection.cursor() as cursor:
        cursor.execute("delete from sagas_log")


def test_truncate_is_allowed() -> None:
    """Django's flush empties tables with TRUNCATE; that stays possible."""
    begin(Trip)
    with connection.cursor() as cursor:
        cursor.execute("truncate sagas_log, sagas_saga, sagas_outbox")
    assert LogEntry.objects.count() == 0


def test_migrations_have_no_drift() -> None:
    """`makemigrations` finds nothing to do for our models."""
    out = StringIO()
    call_command("makemigrations", "sagas", "--check", "--dry-run", "-v", "3", stdout=out)  # others are tests' own
    assert out.getvalue().strip() == "No changes detected in app 'sagas'"


def test_migrating_back_is_refused_in_a_sentence() -> None:
    """Sagas are not dropped by a slip; nothing has changed by then."""
    with pytest.raises(IrreversibleError, match=r"^the tables of sagas are not dropped by migrating backwards"):
        call_command("migrate", "sagas", "zero", verbosity=0)
    assert {"sagas_saga", "sagas_schema"} <= {*connection.introspection.table_names()}


def test_flush_empties_every_table_of_ours() -> None:
    """Django does that between tests that commit: what one of them sent or paused is nothing to the next. What stays
    is which version the tables have."""
    with connection.cursor() as cursor:
        cursor.execute("select tablename from pg_tables where schemaname = current_schema() and tablename ~ '^sagas_'")
        ours = {name for (name,) in cursor.fetchall()}
    flushed = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    assert ours - flushed == {"sagas_schema"}


def test_models_describe_the_tables() -> None:
    """Every model has exactly the columns of its table, of the type and nullability it says."""
    for model in apps.get_app_config("sagas").get_models():
        with connection.cursor() as cursor:
            cursor.execute(
                "select attname, format_type(atttypid, atttypmod), not attnotnull from pg_attribute"
                " where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped",
                [model._meta.db_table],
            )
            columns = {name: (kind, null) for name, kind, null in cursor.fetchall()}
        fields = {
            field.column: ((field.db_type(connection) or "").split(" GENERATED")[0], field.null)
            for field in model._meta.local_fields
            if field.column
        }
        assert fields == columns, model


def from_files(url: str) -> None:
    """The numbered SQL files, one after the other."""
    with psycopg.connect(url) as made:
        for number in range(1, len(NAMES) + 1):
            made.execute(schema_sql(number).encode(), prepare=False)


def from_tables(url: str) -> None:
    """`create_all` of a MetaData with our tables, whose naming conventions are no business of theirs."""
    metadata = MetaData(
        naming_convention={"ck": "ck_%(table_name)s_%(constraint_name)s", "ix": "ix_%(column_0_label)s"}
    )
    sagas_tables(metadata)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    metadata.create_all(engine)
    engine.dispose()


def from_alembic(url: str) -> None:
    """Alembic, through the operations that a revision is given."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        alembic.upgrade(Operations(MigrationContext.configure(connection)), to=len(NAMES))
    engine.dispose()


@pytest.mark.parametrize("make", [from_files, from_tables, from_alembic])
def test_all_ways_give_the_same_database(make: Callable[[str], None], postgres_server: Postgres, shop: str) -> None:
    """Django's migrations, the SQL files, Alembic and the `Table` objects: the same to the last storage option."""
    with psycopg.connect(shop) as migrated:
        expected = catalog(migrated)
    name = f"sagas_{make.__name__}_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    try:
        make(url)
        with psycopg.connect(url) as made:
            found = catalog(made)
            assert made.execute("select array_agg(version order by version) from sagas_schema").fetchone() == (
                list(range(1, SCHEMA + 1)),
            )
    finally:
        postgres_server.drop_database(name)
    assert found - expected == expected - found == set()
    assert {row[0] for row in found} == {"column", "constraint", "index", "function", "trigger", "relation"}
    assert len(found) > 100


def test_checks_are_content_with_a_migrated_database() -> None:
    """The system checks find nothing wrong here."""
    assert check_databases(None, ["default"]) == []


def test_models_are_read_only() -> None:
    """A saga changes through the engine, never by saving its row."""
    begin(Trip)
    saga = SagaRow.objects.get()
    for call in (saga.save, saga.delete, LogEntry.objects.all()[0].save):
        with pytest.raises(TypeError, match="read-only"):
            call()


def test_a_queue_with_limits_is_dumped_and_loaded() -> None:
    """By `dumpdata` and `loaddata`, which tests with `serialized_rollback` use too."""
    QueueRow.objects.bulk_create([QueueRow(name="payments", rate=2, period=60.0, spent=[3, 4], at=timezone.now())])
    dumped = serializers.serialize("json", QueueRow.objects.all())
    QueueRow.objects.all().delete()
    for each in serializers.deserialize("json", dumped):
        each.save()
    assert [(row.name, row.spent) for row in QueueRow.objects.all()] == [("payments", [3, 4])]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("update sagas_saga set status = 'compensating'", "status is .*its log says"),
        ("update sagas_saga set seq = 7", "seq is 7, its log says 0"),
        ('update sagas_saga set steps = \'{"book": {"status": "done"}}\'', "steps is"),
        ("update sagas_saga set cancel_requested = true", "cancel_requested is True"),
        ("delete from sagas_outbox", r"the outbox holds \[\], its state calls for \[\('book', 'do'\)\]"),
        ("update sagas_outbox set direction = 'undo'", r"the outbox holds \[\('book', 'undo'\)\]"),
        ("insert into sagas_log (saga_id, seq, kind) select id, 5, 'completed' from sagas_saga", "cannot be read"),
        ("update sagas_saga set steps = '[]'", "cannot be read"),
    ],
)
def test_verify_finds_what_does_not_agree(change: str, complaint: str) -> None:
    """`verify` folds the log and compares: every difference is named with its saga."""
    run = begin(Trip)
    assert differences() == []
    with connection.cursor() as cursor:
        cursor.execute(change)
    found = "\n".join(differences())
    assert re.search(complaint, found), found
    assert str(run.id) in found


def test_verify_beside_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is recorded after the rows were read, and before the logs are, is no difference."""
    run = begin(Trip)

    def meanwhile(package: str, name: str) -> LiteralString:
        if name == "logs":
            patched.undo()
            drain()
        return query(package, name)

    with monkeypatch.context() as patched:
        patched.setattr(verify, "query", meanwhile)
        assert differences() == []
    assert SagaRow.objects.get(id=run.id).status == "completed"


def test_verify_inside_of_a_transaction() -> None:
    """It sees what that transaction has changed, as a test's own transaction may."""
    begin(Trip)
    with DjangoStore("default").connect() as raw, raw.transaction(force_rollback=True):
        raw.execute("update sagas_saga set seq = 7")
        assert ["seq is 7" in str(each) for each in verify.verify(raw)] == [True, False]


def test_verify_holds_little_in_memory() -> None:
    """However much the logs of a batch hold: a few entries at a time, and those of one saga."""
    begin_many(Trip, [str(number) for number in range(200)])
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_log (saga_id, seq, kind, data)"
            " select id, 1, 'paused', jsonb_build_object('reason', repeat('x', 100000)) from sagas_saga"
        )
    tracemalloc.start()
    try:
        assert len(differences()) >= 200
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def test_verify_of_finished_sagas() -> None:
    """A finished saga agrees with its log, and has nothing in the outbox."""
    begin(Trip)
    drain()
    assert differences() == []
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_outbox (saga_id, kind, step, direction, queue)"
            " select id, 'step', 'book', 'do', 'default' from sagas_saga"
        )
    assert len(differences()) == 1
