"""Draws the table of commands in `cli.md` from their parser: `python docs/draw_commands.py`. A test compares them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from sagas.cli.commands import sagas

PAGE = Path(__file__).parent / "cli.md"
BEGIN = "<!-- Written by `docs/draw_commands.py` from the parser; a test compares them. Do not edit. -->\n"
END = "<!-- end -->\n"


def table() -> str:
    """Every command with its arguments and options, in Markdown."""
    return "\n".join(["| command | options | what it does |", "|---|---|---|", *rows(), ""])


def rows() -> Iterator[str]:
    """A line for each."""
    context = click.Context(sagas)
    for name in sagas.list_commands(context):
        command = sagas.get_command(context, name)
        assert command is not None
        words = [name, *(_argument(each) for each in command.params if isinstance(each, click.Argument))]
        options = [f"`{each.opts[0]}`" for each in command.params if isinstance(each, click.Option)]
        does = command.get_short_help_str(limit=300).rstrip(".")
        listed = ", ".join(each for each in options if each != "`--json`")
        yield f"| `{' '.join(words)}` | {listed} | {does[:1].lower()}{does[1:]} |"


def _argument(argument: click.Argument) -> str:
    shown = argument.metavar or (argument.name or "").upper()
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def drawn(text: str) -> str:
    """The page with a new table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
    sys.stdout.write(f"{PAGE} is written\n")
