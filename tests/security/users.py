"""The users of the database that everybody is in a test run under the roles, and making them in a database."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

ROLES: Final = (
    "sagas_application", "sagas_worker", "sagas_relay", "sagas_operator", "sagas_repairer", "sagas_pruner",
    "sagas_reader",
)  # fmt: skip
WEB, WORKER, RELAY = "suite_web", "suite_worker", "suite_relay"
OPERATOR, REPAIRER, PRUNER = "suite_operator", "suite_repairer", "suite_pruner"
USERS: Final = {  # each is granted what docs/security.md says, and no more
    WEB: ("sagas_application",),
    WORKER: ("sagas_worker",),
    RELAY: ("sagas_relay", "sagas_application"),  # it looks after schedules
    OPERATOR: ("sagas_operator", "pg_read_all_stats"),  # `doctor` sees everybody's transactions
    REPAIRER: ("sagas_repairer",),
    PRUNER: ("sagas_pruner",),
}
COMMANDS: Final = {  # of `sagas ...`; the others are an operator's
    "worker": WORKER, "relay": RELAY, "rebuild": REPAIRER, "restored": REPAIRER, "reconcile": REPAIRER, "prune": PRUNER,
    "archive": PRUNER,
}  # fmt: skip
FOR_BODIES: Final = """do $$ declare each record; everybody text := '{users}'; begin
    for each in select c.oid::regclass as name, c.relkind from pg_class c
            where c.relkind in ('r', 'S') and c.relnamespace = 'public'::regnamespace
            and c.relname not like 'sagas\\_%' loop
        execute format('grant all on %s %s to %s', case each.relkind when 'r' then 'table' else 'sequence' end,
            each.name, everybody);
    end loop;
end $$"""  # the application's own tables are its own matter
LATER: Final = """alter default privileges in schema public grant all on tables to {users};
    alter default privileges in schema public grant all on sequences to {users}"""  # tables that a test makes
HOMES: Final = """select n.nspname, has_table_privilege('sagas_worker', c.oid, 'insert') from pg_class c
    join pg_namespace n on n.oid = c.relnamespace where c.relname = 'sagas_log' and c.relkind = 'r'"""

seen: Counter[str] = Counter()  # how often somebody became which user
_known: set[tuple[str, ...]] = set()  # databases that have been looked at


def for_bodies(*users: str) -> bytes:
    """What lets bodies, and the application, use the application's own tables."""
    return FOR_BODIES.format(users=", ".join(users)).encode()


def forget_roles(owner: psycopg.Connection[Any]) -> None:
    """Take back what was granted in this database. The roles are the server's: other databases may use them."""
    for role in ROLES:
        owner.execute(f"drop owned by {role}".encode())


def with_user(url: str, user: str) -> str:
    """The URL of a database for another user, who needs no password on a server of ours."""
    address = urlsplit(url)
    place = address.netloc.rpartition("@")[2]
    return urlunsplit(address._replace(netloc=f"{quote(user)}@{place}"))


def prepare(schema: str | None = None, **where: Any) -> None:
    """See that a database has the roles and users, if it has our tables; it is looked at once.

    Args:
        schema: of the tables that are meant.
        where: arguments of `psycopg.connect` for the owner.
    """
    place = (str(schema), *(str(where.get(name)) for name in ("host", "port", "dbname")))
    if place in _known:
        return
    with psycopg.connect(**where, autocommit=True) as owner:
        if grant(owner):
            _known.add(place)


def prepare_url(url: str, schema: str | None = None) -> None:
    """The same for a URL of any driver."""
    scheme, _, rest = url.partition("://")
    if scheme.startswith("postgres"):
        prepare(schema, **psycopg.conninfo.conninfo_to_dict(f"postgresql://{rest}"))


def grant(owner: psycopg.Connection[Any]) -> bool:
    """Make the roles and users; whether there are tables of ours at all."""
    from sagas.store.schema_files import roles_sql

    for role in ROLES:
        make(owner, sql.SQL("create role {}").format(sql.Identifier(role)))
    homes = owner.execute(HOMES).fetchall()
    for home, granted in homes:
        if not granted:
            with owner.transaction():
                owner.execute(sql.SQL("set local search_path to {}").format(sql.Identifier(home)))
                owner.execute(roles_sql().encode())
    for user, roles in USERS.items():
        make(owner, sql.SQL("create role {} login").format(sql.Identifier(user)))
        owner.execute(f"grant {', '.join(roles)} to {user}".encode())
    owner.execute(for_bodies(*USERS))
    owner.execute(LATER.format(users=", ".join(USERS)).encode())
    return bool(homes)


def make(owner: psycopg.Connection[Any], statement: sql.Composed) -> None:
    """Make a role that may be there already; roles are the server's."""
    with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        owner.execute(statement)
