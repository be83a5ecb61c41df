"""What the admin says can be translated, and is: nothing a person reads is left in English."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.utils import translation
from django.utils.translation import trans_real

import sagas_django
from sagas.registry import registry
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

OURS = Path(sagas_django.__file__).parent
LIST = "/admin/sagas/sagarow/"
HIDDEN = re.compile(r"<(script|style|code|pre|svg|time|head|noscript)\b.*?</\1>|<!--.*?-->", re.DOTALL)
FIELD = re.compile(r"<(?:input|option|select|button)\b[^>]*>")  # what they hold is for the program, a label apart
LABEL = re.compile(r"type=\"submit\"[^>]*?(value=\"[^\"]*\")|((?:title|placeholder|aria-label)=\"[^\"]*\")")
SAID = re.compile(r">([^<>]+)<|\b(?:title|placeholder|aria-label|value)=\"([^\"]*)\"")
ZONE = re.compile(r"\b[A-Z]\w+/[A-Z]\w+|\bUTC\b")  # of time
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WORD = re.compile(r"[A-Za-z]{3,}")
MARKED = re.compile(r"⟦[^⟦⟧]*⟧")
DATA = {  # names of the test's own, and what the log says
    "a", "book", "charge", "confirm", "root", "test", "trip", "default", "left", "right", "started",
    "ConnectionError", "reply", "its outcome is unknown, and no further attempt may begin",
}  # fmt: skip


class Pseudo:
    """A language in which every text is itself, in brackets; it keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def gettext(self, message: str) -> str:
        """One text; Django puts its context in front."""
        self.asked.add(message)
        return f"⟦{message.rpartition(trans_real.CONTEXT_SEPARATOR)[2]}⟧"

    def ngettext(self, singular: str, plural: str, number: int) -> str:
        """Singular or plural."""
        self.asked.update((singular, plural))
        return f"⟦{(singular if number == 1 else plural).rpartition(trans_real.CONTEXT_SEPARATOR)[2]}⟧"

    def language(self) -> str:
        """Its code."""
        return "eo"

    to_language = language


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pseudo]:
    """Every text of this thread in brackets."""
    language = Pseudo()
    before = getattr(trans_real._active, "value", None)
    trans_real._active.value = language
    yield language
    if before is None:
        del trans_real._active.value
    else:
        trans_real._active.value = before


def english(html: str) -> set[str]:
    """Texts of a page that did not go through the translation: with words that are not between brackets."""
    shown = FIELD.sub(lambda field: f"<{' '.join(a or b for a, b in LABEL.findall(field[0]))}>", HIDDEN.sub("", html))
    texts = (" ".join(unescape(text or other).split()) for text, other in SAID.findall(shown))
    return {text for text in texts if WORD.search(_outside(text))}


def _outside(text: str) -> str:
    """Without what is between brackets, however deep, and without data."""
    while text != (text := MARKED.sub("", text)):
        pass
    text = ZONE.sub("", ID.sub("", text))
    for word in sorted(DATA | declared(), key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(word)}\b", "", text)
    return text


def test_every_word_of_the_pages_is_translated(pseudo: Pseudo, shop: str, world: World) -> None:
    """Lists, a saga's page, dashboard, failures, pauses, locks, forms; what is left is data."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip)
    drain()
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = f"{LIST}{run.id}"
    left: dict[str, set[str]] = {}
    for url in (
        LIST, f"{LIST}dashboard/", f"{LIST}failures/", f"{LIST}pauses/", f"{LIST}locks/", f"{page}/change/",
        f"{page}/redo/", f"{page}/decide/mark_done/charge/", f"{LIST}ask/retry/?saga={run.id}",
        "/admin/sagas/schedulerow/",
    ):  # fmt: skip
        answer = client.get(url)
        assert answer.status_code == 200, url
        left[url] = english(answer.content.decode())
    assert {url: texts for url, texts in left.items() if texts} == {}
    assert len(pseudo.asked) > 200


def test_what_is_left_in_english_is_noticed() -> None:
    """The test above has teeth."""
    assert english("<p>Retry</p><p>⟦Retry⟧</p>") == {"Retry"}
    assert english('<input type="submit" value="Ask">') == {"Ask"}
    assert english('<a title="Go there">⟦x⟧</a><input type="hidden" value="abcdef">') == {"Go there"}


def declared() -> set[str]:
    """Names of definitions and queues that are listed: those of whichever tests have been loaded."""
    definitions = list(registry.definitions())
    steps = [step for each in definitions for step in each.plan.steps]
    queues = {step.queue for step in steps} | {step.undo.queue for step in steps if step.undo}
    return queues | {each.plan.name for each in definitions}


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="NOT RUN: GNU gettext is not installed")
def test_makemessages_finds_the_words(tmp_path: Path) -> None:
    """A translator's file is made by Django's own command, without a warning, from modules and templates alike."""
    there = tmp_path / "sagas_django"
    shutil.copytree(OURS, there, ignore=shutil.ignore_patterns("__pycache__"))
    (there / "locale").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "django", "makemessages", "--locale", "eo", "--no-obsolete"],
        cwd=there, capture_output=True, text=True, timeout=60,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "", "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0 and "warning" not in done.stderr.lower(), done.stdout + done.stderr
    said = (there / "locale" / "eo" / "LC_MESSAGES" / "django.po").read_text()
    assert [part for part in ("admin_", "wording.py", ".html") if part not in said] == []
    found = {
        "".join(re.findall(r'"(.*)"', part)) for part in re.findall(r'^msgid (".*"(?:\n".*")*)', said, re.MULTILINE)
    }
    assert len(found) > 200 and {"to be settled", "%(span)s ago"} <= found
    lines = re.sub(r'(msgid "to be settled"\nmsgstr) ""', r'\1 "por aranĝi"', said)
    (there / "locale" / "eo" / "LC_MESSAGES" / "django.po").write_text(lines)
    subprocess.run(
        ["msgfmt", "-o", "django.mo", "django.po"], cwd=there / "locale" / "eo" / "LC_MESSAGES", check=True, timeout=60
    )
    trans_real._translations.pop("eo", None)
    try:
        with override_settings(LOCALE_PATHS=[there / "locale"], USE_I18N=True), translation.override("eo"):
            assert translation.gettext("to be settled") == "por aranĝi", "a project's own catalogue comes first"
    finally:
        trans_real._translations.pop("eo", None)
