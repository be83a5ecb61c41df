"""Whether commands in the documentation are ones that exist: programs, subcommands, options, extras and make targets.

They are parsed by the parsers of the programs themselves, not run.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import click
from django.core.management import CommandError, get_commands, load_command_class

from tests.docs.reading import ROOT

OTHERS: Final = frozenset(  # nothing of ours; whether their options are right is not looked at
    {
        "alembic", "apt-get", "cat", "cd", "cp", "createdb", "curl", "cut", "docker", "echo", "export", "git", "grep",
        "kill", "kubectl", "ls", "mkdir", "mkdocs", "nox", "psql", "pytest", "rm", "sed", "sleep", "source", "sudo",
        "systemctl", "timeout", "tr", "uvicorn", "wc", ".",
    }
)  # fmt: skip
ENDS: Final = frozenset({"&&", "||", "|", ";", "&"})
ASSIGNED: Final = re.compile(r"\w+=.*", re.DOTALL)
REDIRECTION: Final = re.compile(r"[<>]+")
COPIED: Final = re.compile(r"\s\d>&\d")


def problems(line: str) -> Iterator[str]:
    """What is wrong with one command line."""
    for words in simple_commands(line):
        program, arguments = words[0], words[1:]
        if program.endswith("/python") or program in ("python", "python3"):
            program, arguments = _python(arguments)
        check = CHECKS.get(program.rpartition("/")[2])
        if check is not None:
            yield from (f"{shlex.join(words)}: {problem}" for problem in check(arguments))
        elif program not in OTHERS:
            yield f"{program}: nobody here knows this program; add it to {__name__} if it is none of ours"


def simple_commands(line: str) -> list[list[str]]:
    """The commands between `&&`, `|` and the like, without assignments and redirections in front of and behind them."""
    lexer = shlex.shlex(COPIED.sub(" ", line), posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    commands: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        if word in ENDS:
            commands.append([])
        elif REDIRECTION.fullmatch(word):
            redirected = True
        elif redirected:
            redirected = False
        elif commands[-1] or not ASSIGNED.fullmatch(word):
            commands[-1].append(word)
    return [words for words in commands if words]


def _python(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The program that `python ...` stands for."""
    if arguments[:1] == ["-m"]:
        name = {"sagas.cli": "sagas"}.get(arguments[1], arguments[1])
        return (name, arguments[2:]) if name in CHECKS else ("echo", ())
    if arguments and arguments[0].rpartition("/")[2] == "manage.py":
        return "manage.py", arguments[1:]
    return "echo", ()


def _manage(arguments: Sequence[str]) -> Iterator[str]:
    name, *given = arguments
    if name not in get_commands():
        yield "there is no such management command"
        return
    # an alias is the reader's own: the parser knows only those of the tests
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    try:
        parser.parse_args(["default" if before == "--database" else word for before, word in pairwise(["", *given])])
    except (CommandError, SystemExit) as problem:
        yield str(problem)


def _sagas(arguments: Sequence[str]) -> Iterator[str]:
    from sagas.cli.commands import sagas

    if list(arguments) in (["--help"], []):
        return
    try:
        with sagas.make_context("sagas", list(arguments), resilient_parsing=False) as context:
            words = [*context._protected_args, *context.args]
            name, command, rest = sagas.resolve_command(context, words)
            assert command is not None
            command.make_context(name, rest, parent=context)
    except click.ClickException as problem:
        yield problem.format_message()


def _celery(arguments: Sequence[str]) -> Iterator[str]:
    from celery.bin.celery import celery

    words = list(arguments)
    if words[:1] == ["-A"]:
        del words[:2]
    command: Any = celery.commands.get(words[0])
    if command is None:
        yield f"celery has no command {words[0]}"
        return
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    yield from (f"no option {word}" for word in words[1:] if word.startswith("-") and word.split("=")[0] not in known)


def _make(arguments: Sequence[str]) -> Iterator[str]:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    yield from (f"no target {word}" for word in arguments if "=" not in word and word not in targets)


def _pip(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if word.startswith("outbox-sagas"):
            yield "it is in no package index yet: install /path/to/this/clone"
        found = re.fullmatch(r"(?:/path/to/this/clone|\./wheels/[\w.-]+\.whl)\[(.+)\]", word)
        for extra in found[1].split(",") if found else ():
            if extra not in extras():
                yield f"no extra {extra!r}"


@lru_cache
def extras() -> frozenset[str]:
    """Those of pyproject.toml."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])


CHECKS: Final[Mapping[str, Callable[[Sequence[str]], Iterator[str]]]] = {
    "manage.py": _manage, "django-admin": _manage, "django": _manage, "sagas": _sagas, "celery": _celery,
    "make": _make, "pip": _pip,
}  # fmt: skip
