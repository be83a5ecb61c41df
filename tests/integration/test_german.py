"""The admin in German: the catalogue that comes along is whole, up to date with its source, and used."""

from __future__ import annotations

import gettext
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

import sagas_django
from sagas_django import core_words, wording
from tests.integration.test_translations import LIST, OURS, english
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

CATALOGUE = Path(sagas_django.__file__).parent / "locale" / "de" / "LC_MESSAGES"
TOOLS = pytest.mark.skipif(shutil.which("xgettext") is None, reason="NOT RUN: GNU gettext is not installed")
ENOUGH = 0.9  # of the words of today: who adds one need not speak German
ALIKE = {  # in both languages
    "Definition", "Filter", "Id", "Log", "Name", "Outbox", "Queues", "Saga", "Sagas", "Status", "Traceback",
    "\u203a Sagas",
}  # fmt: skip


def run(*command: str, cwd: Path) -> str:
    """Run to the end, and return what was said."""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "", "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def words(file: Path) -> dict[object, str]:
    """What a compiled catalogue holds, but for its head."""
    with file.open("rb") as opened:
        found = gettext.GNUTranslations(opened)
    return {key: text for key, text in vars(found)["_catalog"].items() if key}


def test_makemessages_is_told_of_the_words_of_the_core() -> None:
    """They are no literals where they are translated, so that it would pass them over."""
    lists = (
        wording.STATUS, wording.STEP_STATUS, wording.DIRECTION, wording.SOURCE, wording.KIND, wording.REQUEST,
        wording.DOES, wording.STUCK, wording.WHY, wording.NEXT,
    )  # fmt: skip
    assert {str(text) for text in core_words.WORDS} == {str(text) for each in lists for text in each.values()}


@TOOLS
def test_what_is_used_is_what_can_be_read(tmp_path: Path) -> None:
    """`django.mo` is made from `django.po` (`msgfmt -o django.mo django.po`), whose blanks are those of its source."""
    run("msgfmt", "--check-format", "-o", str(tmp_path / "django.mo"), "django.po", cwd=CATALOGUE)
    assert words(tmp_path / "django.mo") == words(CATALOGUE / "django.mo")


@TOOLS
def test_nearly_every_word_has_a_translation(tmp_path: Path) -> None:
    """`makemessages --locale de --no-obsolete --no-location`, as a translator runs it, finds little that is new."""
    there = tmp_path / "sagas_django"
    shutil.copytree(OURS, there, ignore=shutil.ignore_patterns("__pycache__", "*.mo"))
    options = ("--locale", "de", "--no-obsolete", "--no-location")
    run(sys.executable, "-m", "django", "makemessages", *options, cwd=there)
    place = there / "locale" / "de" / "LC_MESSAGES"
    run("msgfmt", "-o", "django.mo", "django.po", cwd=place)
    new = run("msgattrib", "--untranslated", "--no-obsolete", "django.po", cwd=place).count("\nmsgid ")
    done = len(words(place / "django.mo"))
    assert done / (done + new) > ENOUGH, f"{new} words of integrations/sagas_django have no translation in {CATALOGUE}"


def test_pages_in_german(shop: str, world: World) -> None:
    """Nothing that these pages say in English is left in it, but names and words that are the same."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run_ = begin(Trip)
    drain()
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    for url in (LIST, f"{LIST}{run_.id}/change/", f"{LIST}ask/retry/?saga={run_.id}", f"{LIST}dashboard/"):
        said = {}
        for language in ("en", "de"):
            with translation.override(language):
                said[language] = english(client.get(url).content.decode())
        assert len(said["de"]) > 30 and said["en"] & said["de"] <= ALIKE, url
    with translation.override("de"):
        assert "Wiederholen" in client.get(f"{LIST}{run_.id}/change/").content.decode()
