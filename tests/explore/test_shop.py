"""The example shop explored, as its own tests do it: in a process of its own, by Django's test runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagas.testing.processes import ProcessGroup

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_the_shops_own_tests_pass(process_group: ProcessGroup, fresh_database: str) -> None:
    """Its saga bears every fault, and a refund that forgets the shipping fee is named in the shortest story."""
    tests = process_group.python(
        "-m", "django", "test", "example_project.shop", "--noinput", name="shop",
        env={"DATABASE_URL": fresh_database, "DJANGO_SETTINGS_MODULE": "example_project.settings"}, cwd=ROOT,
    )  # fmt: skip
    if tests.wait(120) != 0:
        raise tests.failure("the shop's tests failed")
