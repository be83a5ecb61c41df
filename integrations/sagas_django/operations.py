"""Migration operations."""

from __future__ import annotations

from typing import Any

from django.db.migrations import RunSQL
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation

from sagas.store.schema_files import schema_sql


class RunSchema(RunSQL):
    """Runs one of the numbered SQL files, on Postgres only; other databases of the project are left alone.

    Args:
        number: which file.
        state_operations: what it means for Django's models.
    """

    def __init__(self, number: int, state_operations: list[Operation]) -> None:
        super().__init__(schema_sql(number), RunSQL.noop, state_operations=state_operations)
        self.number = number

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.number, self.state_operations], {}

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            raise IrreversibleError("the tables of sagas are not dropped by migrating backwards: drop them by hand")
