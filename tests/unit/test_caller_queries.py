"""The statements of callers go through any driver: one text parameter, and nothing that a driver could take for one."""

from __future__ import annotations

import pytest

from sagas_outbox.queries import query


@pytest.mark.parametrize("name", ["start", "get", "request", "input_of", "results_of"])
def test_one_parameter_with_a_cast(name: str) -> None:
    """`%s` is there once, cast so that no driver guesses its type; other `%`, and `:` but for casts, are not."""
    sql = query("sagas.store", name)
    assert sql.count("(%s)::") == sql.count("%") == 1
    assert ":" not in sql.replace("::", "")
    assert sql.rstrip().split("from")[0].rstrip().endswith("::text")
