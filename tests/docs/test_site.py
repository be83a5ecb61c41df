"""The site: `make docs` builds it, strictly, and it needs nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reading import ROOT
from tests.docs.test_reference import NAMED

ASSET = re.compile(r"<(?:script|link|img)\b[^>]*?(?:src|href)=[\"']?(https?://[^\"'> ]+)")


def tables() -> list[str]:
    """Names of all tables that the schema makes."""
    files = (ROOT / "sagas" / "store" / "schema").glob("*.sql")
    return [name for path in files for name in re.findall(r"^create table (\w+)", path.read_text(), re.MULTILINE)]


@pytest.mark.slow
def test_the_site_is_built(tmp_path: Path) -> None:
    """With every link and anchor checked, and every page in the navigation; nothing comes from another server."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    foreign = {
        (page.name, address)
        for page in (tmp_path / "site").glob("*.html")
        for address in ASSET.findall(page.read_text())
    }
    assert not foreign
    assert "PlaceOrder" in (tmp_path / "site" / "about.html").read_text()
    api = (tmp_path / "site" / "api.html").read_text()
    assert "own_transaction" in api and "KeyConflict" in api
    reference = api + (tmp_path / "site" / "api-integrations.html").read_text()
    assert [name for name in NAMED if f'id="{name}"' not in reference] == [], "the reference shows what it names"
    schema = (tmp_path / "site" / "sql-schema.html").read_text()
    assert "due_at" in schema
    assert [table for table in tables() if f'id="{table}"' not in schema] == [], (
        "every table is listed with its columns"
    )
    assert "tutorial-django.html" in (tmp_path / "site" / "api.html").read_text(), "every page has the navigation"
