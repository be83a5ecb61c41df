"""Processes that tests start log in as users who have no more than their role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sagas.testing.processes import Process, ProcessGroup
from tests.security.users import COMMANDS, OPERATOR, WEB, WORKER, prepare_url, seen, with_user

OWNERS = ("migrate", "check", "test", "pytest", "createsuperuser", "shell")  # who make tables, or only look
WEBS = ("uvicorn", "runserver", "gunicorn", "fastapi")
AROUND = ("tests.chaos",)  # it starts the processes that are to have roles


def user_of(argv: Sequence[str | Path]) -> str | None:
    """Who a process is, by its command line; None: the owner."""
    words = [str(word) for word in argv]
    if any(word in OWNERS for word in words) or any("'migrate'" in word or word.endswith(".tables") for word in words):
        return None
    if "celery" in words:
        return WORKER
    if "sagas" in words[:-1]:
        return COMMANDS.get(words[words.index("sagas") + 1], OPERATOR)
    return WEB if any(word in WEBS for word in words) else WORKER


def around(argv: Sequence[str | Path]) -> list[str | Path]:
    """A program that starts the processes does so as this one would."""
    words = list(argv)
    for at, word in enumerate(words):
        if word in AROUND and words[at - 1] == "-m":
            seen["program whose processes have users"] += 1
            return [*words[:at], "tests.security.within", *words[at:]]
    return words


def start_as(start: Any) -> Any:
    """`ProcessGroup.start`, which tells the process another user of its database."""

    def started(
        group: ProcessGroup, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, **rest: Any
    ) -> Process:
        told, user = dict(env or {}), user_of(argv)
        if user is not None and (url := told.get("DATABASE_URL")):
            prepare_url(url)
            told["DATABASE_URL"] = with_user(url, user)
            seen[f"process of {user}"] += 1
        process: Process = start(group, around(argv), env=told, **rest)
        return process

    return started
