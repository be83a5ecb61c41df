"""What each role may do to each table, tried statement by statement; docs/security.md prints what came of it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from psycopg.errors import InsufficientPrivilege

from sagas.store.schema_files import roles_sql
from sagas.testing.servers import Postgres
from sagas_sqlalchemy import ddl
from tests.security.users import ROLES

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TABLES = (
    "sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "sagas_signal", "sagas_pause", "sagas_pace",
    "sagas_message", "sagas_inbox", "sagas_schedule", "sagas_process", "sagas_schema", "sagas_tombstone",
    "sagas_archive", "sagas_tally", "sagas_lock", "sagas_queue", "sagas_slot",
)  # fmt: skip
VIEWS = ("sagas_v_status", "sagas_v_steps", "sagas_v_failures", "sagas_v_attempts", "sagas_v_queues")
VERBS = {  # each is tried on no row: the right to do it is asked for all the same
    "read": "select * from {table} limit 0",
    "insert": "insert into {table} select * from {table}_like where false",
    "update": "update {table} set {every} where false",
    "delete": "delete from {table} where false",
    "truncate": "truncate {table}",
}
SINGLY = {"read": "select 1 from {table} limit 0", "update": "select 1 from {table} where false for update"}
STATEMENT_OF_ONE = {
    "read": "select {column} from {table} limit 0", "update": "update {table} set {column} = {column} where false",
}  # fmt: skip
DDL = (
    "drop table {table}", "alter table {table} disable trigger all", "create index on {table} ({column})",
    "create trigger mine before insert on {table} for each row execute function sagas_log_is_append_only()",
    "grant all on {table} to public",
)  # fmt: skip
START = (
    '{"id": "00000000-0000-0000-0000-000000000001", "name": "n", "version": 1, "key": "k", "status": "running",'
    ' "seq": 0, "input_hash": "x", "steps": {}, "headers": {}, "run_again_after": [], "saga": {}, "rows": []}'
)


@pytest.fixture(scope="module")
def owner(postgres_server: Postgres, template_database: str) -> Iterator[psycopg.Connection[object]]:
    """The owner of the tables, with an empty copy of each that everybody may read."""
    name = f"sagas_roles_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=template_database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(roles_sql())
        for table in TABLES:
            connection.execute(f"create table {table}_like (like {table}); grant select on {table}_like to public")
        yield connection
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def rights(owner: psycopg.Connection[object]) -> dict[str, dict[str, str]]:
    """What every role may do to every table."""
    return matrix(owner)


def refused(connection: psycopg.Connection[object], statement: str) -> bool:
    """Whether a statement is refused for lack of a privilege; whatever else comes of it is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except InsufficientPrivilege:
        return True
    return False


def columns(connection: psycopg.Connection[object], table: str) -> list[str]:
    """The columns that can be written."""
    found = connection.execute(
        "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 order by attnum", [table]
    )
    return [name for (name,) in found]  # type: ignore[misc]


def allowed(connection: psycopg.Connection[object], table: str) -> str:
    """What the current role may do to a table, in words; what is allowed of some columns names them."""
    names = columns(connection, table)
    said = []
    for verb, statement in VERBS.items():
        every = ", ".join(f"{each} = {each}" for each in names)
        if not refused(connection, statement.format(table=table, every=every)):
            said.append(verb)
        elif verb in SINGLY and not refused(connection, SINGLY[verb].format(table=table)):
            one = STATEMENT_OF_ONE[verb]
            some = [each for each in names if not refused(connection, one.format(table=table, column=each))]
            said.append(f"{verb} ({', '.join(some) if len(some) < 5 else f'{len(some)} columns'})")
    return ", ".join(said)


def matrix(connection: psycopg.Connection[object]) -> dict[str, dict[str, str]]:
    """By table and role what is allowed."""
    found: dict[str, dict[str, str]] = {table: {} for table in (*TABLES, *VIEWS)}
    for role in ROLES:
        connection.execute(f"set role {role}")
        for table in TABLES:
            found[table][role] = allowed(connection, table)
        for view in VIEWS:
            found[view][role] = "" if refused(connection, f"select * from {view} limit 0") else "read"
        connection.execute("reset role")
    return found


def as_table(found: dict[str, dict[str, str]]) -> str:
    """The table of the page."""
    heads = [role.removeprefix("sagas_") for role in ROLES]
    lines = [f"| table | {' | '.join(heads)} |", "|---" * (len(ROLES) + 1) + "|"]
    for table, may in found.items():
        lines.append(f"| `{table}` | {' | '.join(may[role] or '-' for role in ROLES)} |")
    return "\n".join(lines)


def test_every_role_may_do_what_the_page_says_and_no_more(rights: dict[str, dict[str, str]]) -> None:
    """Each verb is tried on each table by each role; the table in docs/security.md is what came of it."""
    found = as_table(rights)
    stated = re.search(r"<!-- rights -->\n(.*?)\n<!-- end of rights -->", PAGE.read_text(), re.DOTALL)
    assert stated and stated[1].strip() == found, f"docs/security.md should say:\n{found}"


def test_nobody_changes_the_log(rights: dict[str, dict[str, str]]) -> None:
    """No role may update or truncate it, in whole or one column; only who prunes may delete from it."""
    may = rights["sagas_log"]
    assert {role for role, verbs in may.items() if "delete" in verbs} == {"sagas_pruner"}
    assert {role for role, verbs in may.items() if "insert" in verbs} == {"sagas_worker", "sagas_repairer"}
    assert not [role for role, verbs in may.items() if "update" in verbs or "truncate" in verbs]


def test_no_role_changes_the_tables_themselves(owner: psycopg.Connection[object]) -> None:
    """None drops, alters, indexes, truncates or passes on a table; none may act as another role, or as the owner."""
    (owns,) = owner.execute("select quote_ident(current_user)").fetchone()  # type: ignore[misc]
    for role in ROLES:
        owner.execute(f"set session authorization {role}")
        for table in TABLES:
            for statement in (*DDL, "truncate {table}"):
                given = statement.format(table=table, column=columns(owner, table)[0])
                before = owner.execute("select relacl::text from pg_class where oid = to_regclass(%s)", [table])
                acl = before.fetchone()
                if refused(owner, given):
                    continue
                owner.execute(given)  # a grant by who has nothing to give is a warning
                after = owner.execute("select relacl::text from pg_class where oid = to_regclass(%s)", [table])
                assert statement.startswith("grant") and after.fetchone() == acl, f"{role}: {given}"
        assert refused(owner, f"set role {owns}") and refused(owner, "create table mine (id int)")
        owner.execute("reset session authorization")


def test_nobody_else_may_call_the_functions(owner: psycopg.Connection[object]) -> None:
    """A reader, or any other user of the server, starts nothing and sends nothing, though the functions are there."""
    for call in ("start", "request", "send", "publish", "take", "get", "lock"):
        owner.execute("set session authorization sagas_reader")
        assert refused(owner, f"select sagas_{call}_v1('{{}}')"), call
        owner.execute("reset session authorization")


def test_functions_are_not_led_astray_by_a_search_path(owner: psycopg.Connection[object]) -> None:
    """What runs as the owner finds the tables in their schema, whatever the caller has put before it."""
    owner.execute("set session authorization sagas_application")
    owner.execute("create temp table sagas_saga (like public.sagas_saga); set search_path = pg_temp, public")
    before = owner.execute("select count(*) from pg_temp.sagas_saga").fetchone()
    owner.execute("select sagas_start_v1(%s)", [START])
    assert owner.execute("select count(*) from pg_temp.sagas_saga").fetchone() == before
    assert owner.execute("select key from public.sagas_saga").fetchall() == [("k",)]
    owner.execute("reset session authorization; reset search_path; drop table pg_temp.sagas_saga")


def test_running_the_file_again_takes_back_what_it_did_not_give(
    owner: psycopg.Connection[object], rights: dict[str, dict[str, str]]
) -> None:
    """Each migration is followed by it; a grant made by hand meanwhile does not stay."""
    owner.execute("grant all on sagas_log to sagas_reader, sagas_application; grant select on sagas_saga to public")
    owner.execute(
        "alter function sagas_send_v1(json) security invoker; grant execute on function sagas_send_v1 to public"
    )
    owner.execute(roles_sql())
    assert matrix(owner) == rights
    definer = owner.execute("select prosecdef from pg_proc where proname = 'sagas_send_v1'").fetchall()
    owner.execute("set session authorization sagas_reader")
    assert definer == [(True,)] and refused(owner, "select sagas_send_v1('{}')")
    owner.execute("reset session authorization")


def test_a_schema_where_everybody_may_create_is_refused(fresh_database: str) -> None:
    """Somebody could put a function there that passes for one of Postgres."""
    with psycopg.connect(fresh_database, autocommit=True) as owner:
        owner.execute("grant create on schema public to public")
        with pytest.raises(psycopg.errors.RaiseException, match="everybody may create objects in schema public"):
            owner.execute(roles_sql())


def test_no_table_and_no_function_is_forgotten(owner: psycopg.Connection[object]) -> None:
    """What a later version adds has to be thought of here: each table is in the page, each function is somebody's."""
    found = owner.execute(
        "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'v')"
        " and relname like 'sagas\\_%' and relname not like '%\\_like'"
    ).fetchall()
    assert {name for (name,) in found} == {*TABLES, *VIEWS}  # type: ignore[misc]
    nobodys = owner.execute(
        "select proname from pg_proc p where pronamespace = 'public'::regnamespace and proname like 'sagas\\_%%'"
        " and prorettype <> 'trigger'::regtype"
        " and not exists (select from unnest(%s::text[]) r where has_function_privilege(r, p.oid, 'execute'))",
        [list(ROLES)],
    ).fetchall()
    assert nobodys == []


def test_the_command_writes_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is, for psql to read; it needs no database."""
    call_command("sagas", "roles")
    assert capsys.readouterr().out.strip() == roles_sql().strip()


def test_tables_in_a_schema_of_their_own(postgres_server: Postgres) -> None:
    """As SQLAlchemy has them: with `search_path` there the same file does, and callers need not say where they are."""
    name = f"sagas_roles_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            ddl.install(lambda statement: connection.execute(statement.encode()), 1, schema="our own")
            with pytest.raises(psycopg.errors.RaiseException, match="set search_path to their schema"):
                connection.execute(roles_sql())
            connection.execute('set search_path = "our own"')
            connection.execute(roles_sql())
            connection.execute("reset search_path; set session authorization sagas_application")
            connection.execute('select "our own".sagas_start_v1(%s)', [START])
            assert connection.execute('select key from "our own".sagas_saga').fetchall() == [("k",)]
            assert refused(connection, 'delete from "our own".sagas_log')
    finally:
        postgres_server.drop_database(name)
