"""How commands are typed where this process runs, for messages that name one."""

from __future__ import annotations

from typing import Final

PLAIN: Final = "sagas"

_begins = PLAIN


def begin_with(words: str, *, unless_known: bool = False) -> str:
    """Say what commands begin with here, such as `sagas --app shop.db:sagas`; returns what was said before.

    Args:
        words: it.
        unless_known: keep what was said before.
    """
    global _begins
    before = _begins
    if not (unless_known and before != PLAIN):
        _begins = words
    return before


def typed(command: str) -> str:
    """A command such as `show ID`, as one would type it."""
    return f"{_begins} {command}"
