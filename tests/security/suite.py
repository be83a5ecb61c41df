"""Which tests of other folders run under the roles, by groups that can be run one at a time, and which cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
GROUPS: Final = {  # patterns below tests/
    "conformance": ("conformance",),
    "kit": ("kit",),
    "cases": ("cases",),
    "messages": ("messages",),
    "relay": ("relay",),
    "sqlalchemy": ("sqlalchemy",),
    "deploys": ("deploys", "ticking"),
    "chaos": ("chaos",),
    "faults": tuple(f"faults/test_{name}.py" for name in ("kills", "celery_kills", "messages", "outages")),
    "integration-a-c": ("integration/test_[a-c]*.py",),
    "integration-d-l": ("integration/test_[d-l]*.py",),
    "integration-m-r": ("integration/test_[m-r]*.py",),
    "integration-s-z": ("integration/test_[s-z]*.py",),
}
SLICE: Final = (  # of `make test`: callers, workers, what undoes and waits, operators, pages of the admin
    "integration/test_signals.py", "integration/test_schedules_operate.py", "integration/test_admin_signals.py",
)  # fmt: skip
COUNTS: Final = "statements, round trips or bytes are counted, and taking on a role is a statement"
COMPARES: Final = "compares databases down to their grants, and only one of them has the roles"
OWN: Final = "the test connects as a role of its own, which was granted nothing of ours"
SUPERUSER: Final = "a body ends its own session, which is a superuser's here, with a role taken on"
TENANT: Final = "a body writes to a table of another schema, which nobody has granted to a worker"
EXCEPT: Final = {
    "integration/test_cost.py::test_a_plain_saga_writes_no_more_than_it_needs": COUNTS,
    "integration/test_cost.py::test_round_trips_of_external_steps": COUNTS,
    "integration/test_cost.py::test_round_trips_of_local_steps": COUNTS,
    "integration/test_cost.py::test_round_trips_of_savepoints": COUNTS,
    "integration/test_worker_statements.py::test_a_hundred_rows_take_no_more_statements_than_one_plus_two": COUNTS,
    "sqlalchemy/test_callers_session.py::test_one_statement_and_nothing_else": COUNTS,
    "sqlalchemy/test_callers_session.py::test_a_pending_subject_gets_its_key_and_nothing_else_is_flushed": COUNTS,
    "sqlalchemy/test_callers_session.py::test_an_expired_subject_is_not_loaded": COUNTS,
    "integration/test_schema.py::test_models_describe_the_tables": COMPARES,
    "integration/test_schema.py::test_all_ways_give_the_same_database": COMPARES,
    "sqlalchemy/test_local_steps.py::test_a_connection_lost_in_a_body": SUPERUSER,
    "sqlalchemy/test_local_neighbours.py::test_the_error_of_a_connection_that_is_cut": SUPERUSER,
    "sqlalchemy/test_local_past.py::test_a_tenant_of_a_body_is_not_its_neighbours": TENANT,
    "integration/test_schedules_operate.py::test_what_the_database_says_is_told": SUPERUSER,
    "cases/beyond/test_advice.py::test_an_alias_that_assumes_a_role": OWN,
}


def words(*patterns: str) -> list[str]:
    """What pytest is told for these patterns."""
    paths = [str(path) for pattern in patterns for path in sorted(TESTS.glob(pattern))]
    return [*paths, *(f"--deselect=tests/{name}" for name in EXCEPT)]
