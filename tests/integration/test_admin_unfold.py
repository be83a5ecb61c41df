"""The admin pages under another theme."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def test_every_page_renders_under_unfold(fresh_database: str) -> None:
    """In a process of its own, since a theme is chosen when Django starts: with its styles and with ours."""
    pytest.importorskip("unfold", reason="NOT RUN: django-unfold is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.unfold_pages"], env={**os.environ, "DATABASE_URL": fresh_database},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(pages) == 8
    right = {"status": 200, "unfold": True, "ours": True, "sagas": True}
    assert [page for page in pages if page != {"url": page["url"], **right}] == []
