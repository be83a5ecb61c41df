"""`sagas init`: what a project has to have, what of it is there, and the lines that are missing. Integrations look;
here it is told, and written where that was asked for. Nothing that exists is ever overwritten: lines go to the end of
a file, or into a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sagas.commanding import as_json
from sagas.errors import ConfigurationError

Say = Callable[[str], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that a project has to have."""

    what: str  # in words, such as "'sagas_django' in INSTALLED_APPS"
    there: bool
    file: Path | None = None  # where `lines` belong
    lines: str = ""  # what is missing, to be written at the end of `file`
    remedy: str = ""  # what a person has to do, where no lines can help


def tell(findings: Iterable[Finding], *, write: bool, say: Say) -> list[Finding]:
    """Say what is there and what is not; write what is missing, if that was asked for.

    Args:
        findings: looked for one after the other, so that what is written is there for the next one.
        write: add missing lines to their files.
        say: writes a line for people.

    Returns:
        What is still missing.
    """
    missing: list[Finding] = []
    for found in findings:
        if found.there:
            say(f"ok       {found.what}")
        elif found.file is not None and found.lines and write:
            append(found.file, found.lines)
            say(f"written  {found.what}: {found.file}")
        else:
            missing.append(found)
            say(f"missing  {found.what}")
            for line in _advice(found):
                say(f"         {line}")
    return missing


def tell_programs(findings: Iterable[Finding], *, write: bool, say: Say) -> bool:
    """The same as one JSON object, as every command writes it with `--json`; returns whether all is there."""
    seen: list[Finding] = []
    said: list[str] = []
    missing = tell(_noted(findings, seen), write=write, say=said.append)
    found = [{"what": each.what, "there": each not in missing, "file": each.file} for each in seen]
    say(as_json({"ok": not missing, "data": found, "said": said, "error": last_word(missing)}))
    return not missing


def _noted(findings: Iterable[Finding], seen: list[Finding]) -> Iterator[Finding]:
    for found in findings:
        seen.append(found)
        yield found


def _advice(found: Finding) -> Iterable[str]:
    if found.remedy:
        yield from found.remedy.splitlines()
    if found.lines:
        where = f"at the end of {found.file}" if found.file and found.file.exists() else f"as {found.file}"
        yield f"{where}:" if found.file else "like this:"
        yield ""
        yield from (f"    {line}".rstrip() for line in found.lines.rstrip().splitlines())
        yield ""


def append(file: Path, lines: str) -> None:
    """Write lines at the end of a file, as it ends its own; it is made if it is not there.

    Raises:
        ConfigurationError: it cannot be written; it is what it was.
    """
    there = file.exists()
    before = file.read_bytes() if there else b""
    end = "\r\n" if b"\r\n" in before else "\n"
    gap = [] if not before else [""] if before.endswith(b"\n") else ["", ""]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as out:
            out.write("".join(f"{line}{end}" for line in (*gap, *lines.rstrip().splitlines())).encode())
    except OSError as problem:
        with suppress(OSError):
            os.truncate(file, len(before)) if there else file.unlink()
        raise ConfigurationError(f"{file} cannot be written: {problem.strerror}") from problem


def last_word(missing: Sequence[Finding]) -> str | None:
    """What the command ends with, if it has failed."""
    if not missing:
        return None
    said = f"{len(missing)} {'thing is' if len(missing) == 1 else 'things are'} missing, see above"
    if not any(found.file and found.lines for found in missing):
        return said
    return f"{said}. `init --write` adds the lines that are shown; nothing that is there is changed"


SAGA = '''"""Sagas, beside the models that they are about."""

from dataclasses import dataclass

from sagas import Saga, external_step, step


@dataclass(frozen=True)
class Placed:
    order_id: int


class PlaceOrder(Saga[Placed], name="{package}.place_order", version=1):
    """Started where the order is made, in the same transaction:

    {start}
    """

    @step(compensate=None)  # local: one transaction with its log entry
    def accept(self) -> None: ...

    @external_step  # somebody else's system: hand it self.idempotency_key
    def charge(self) -> str:
        return f"charge for {{self.idempotency_key}}"

    @charge.compensate
    def refund(self, charge: str) -> None: ...

    @step(pivot=True)  # nothing is undone from here on
    def confirm(self) -> None: ...
'''
