"""The page about settings says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from sagas.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `([A-Z_]+)` \| (\S+) \| ([a-z ]+) \| (.+) \|$", re.MULTILINE)


def test_every_setting_is_on_the_page_with_its_default() -> None:
    """Each field of the dataclass once, in capitals, with unit and meaning; and nothing else."""
    rows = {name: (default, unit, meaning) for name, default, unit, meaning in ROW.findall(page())}
    assert set(rows) == {field.name.upper() for field in fields(Settings)}
    for field in fields(Settings):
        default, unit, meaning = rows[field.name.upper()]
        assert default == str(field.default), field.name
        assert (unit == "on or off") == isinstance(field.default, bool), field.name
        assert (unit == "seconds") == isinstance(field.default, float), field.name
        assert len(meaning) > 40, field.name


def test_the_example_is_accepted() -> None:
    """The dict shown at the top of the page."""
    (example,) = re.findall(r"^SAGAS = (\{.*\})$", page(), re.MULTILINE)
    Settings.of({name.lower(): value for name, value in eval(example).items()}, where="the page")


def test_every_check_is_described() -> None:
    """Each id that a check may give is on the page about checks, and no other."""
    folder = DOCS.parent / "integrations"
    code = "".join(path.read_text() for path in folder.glob("*/checks.py"))
    given = set(re.findall(r'id="(sagas\.[EW]\d+)"', code))
    assert given == set(re.findall(r"`(sagas\.[EW]\d+)`", (DOCS / "checks.md").read_text()))


def page() -> str:
    return (DOCS / "settings.md").read_text()
