"""What checks the documentation finds what it is meant to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.commands import problems
from tests.docs.reader import agrees
from tests.docs.reading import OWN_TEST, PAGES, ROOT, Block, blocks, to_run
from tests.docs.test_blocks import unreadable


@pytest.mark.parametrize(
    "line",
    [
        "python manage.py sagas lst",
        "python manage.py sagas show",
        "manage.py sagas list --stauts parked",
        "sagas --app shop.db:sagas wroker",
        "sagas --app shop.db:sagas worker --concurency 4",
        "make tset",
        "pip install '/path/to/this/clone[djnago]'",
        "pip install 'outbox-sagas[django]'",
        "celery -A mysite wroker",
        "celery -A mysite worker --concurency 4",
        "cd /srv && python manage.py migrte",
        "nosuchprogram --help",
    ],
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    """Programs, subcommands, options, extras, targets."""
    assert list(problems(line))


@pytest.mark.parametrize(
    "line",
    [
        "python manage.py sagas worker > worker.log 2>&1 & echo $! > worker.pid",
        "SAGAS_TEST_BINARIES=wheels make test",
        "/srv/shop/.venv/bin/celery -A mysite worker -Q celery,payments --concurrency 4",
        "manage.py sagas drain docs.versions 1 --wait 600 && echo 'its class may go'",
    ],
)
def test_a_right_one_is_let_pass(line: str) -> None:
    """As they are on the pages."""
    assert not list(problems(line))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("pyton", "x = 1"),
        ("python", "x ="),
        ("console", "ls"),
        ("bash", "if true"),
        ("yaml", "command: [python, manage.py, sagas, wroker]"),
        ("ini", "[Service]\nExecStart=/srv/celery -A mysite wroker"),
        ("dockerfile", 'CMD ["make", "tset"]'),
    ],
)
def test_a_wrong_block_is_noticed(language: str, text: str) -> None:
    """In any language, an unknown one included."""
    assert list(unreadable(Block(page=ROOT / "README.md", line=1, language=language, text=text)))


def test_a_new_page_does_not_escape(tmp_path: Path) -> None:
    """It is found by being there, and its Python is to be run."""
    assert set(PAGES) >= set((ROOT / "docs").rglob("*.md"))
    page = tmp_path / "new.md"
    page.write_text("# New\n\n```python\nraise RuntimeError\n```\n\n````python\nx = 1\n````\n")
    assert [block.text for block in blocks(page)] == ["raise RuntimeError\n", "x = 1\n"]
    assert to_run(page) == blocks(page) and page.name not in OWN_TEST


def test_output_with_gaps() -> None:
    """`...` is anything, spaces are as they come, and what is shown has to be there."""
    assert agrees("status  id\ncompleted  01a  order-1\n", "status ...\ncompleted ... order-1")
    assert not agrees("completed  01a  order-2\n", "completed ... order-1")
    assert not agrees("x completed", "completed")
