"""A reader who follows a page: writes its files into an empty folder and types its commands into a shell."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sagas.testing.processes import ProcessGroup
from tests.docs.reading import ROOT, Block, blocks

LONGEST: Final = 60.0  # seconds until a command says what the page says
LOOKS: Final = (
    "cut ",
    "grep ",
    "cat ",
    "ls ",
    "python manage.py sagas list",
    "python manage.py sagas show",
    "sagas --app",
)
SKIPPED: Final = (
    "python3 -m venv ",
    ". .venv/",
    "pip install ",
    "export ",
    "createdb",
)  # what the test itself provides


@dataclass(frozen=True, kw_only=True)
class Typed:
    """One command of a page, and what it is said to print."""

    command: str
    output: str

    @property
    def only_looks(self) -> bool:
        """Whether it may be typed again until it says so: a reader is slower than the worker."""
        return self.command.startswith(LOOKS) or (self.command.startswith("curl ") and "-X POST" not in self.command)


def commands(block: Block) -> Iterator[Typed]:
    """The commands of a console block, with the output shown under each."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Typed(command=command, output=output.strip("\n"))


class Reader:
    """One reader, one folder.

    Args:
        folder: an empty one.
        env: what the reader has exported.
        processes: whoever is started is one of these, so that nobody is left behind.
        replacing: what to write and type instead of a text of the page, such as the port.
    """

    def __init__(
        self, folder: Path, env: Mapping[str, str], processes: ProcessGroup, replacing: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self._processes, self._replacing = folder, processes, replacing or {}
        tools = folder.with_name(f"{folder.name}-tools")
        tools.mkdir()
        for name, code in _tools().items():
            (tools / name).write_text(code)
            (tools / name).chmod(0o755)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._env = {**env, "PATH": path, "PYTHONUNBUFFERED": "1"}

    def follow(self, page: str) -> int:
        """Do all that a page says. Returns how many commands were typed."""
        typed = 0
        for block in blocks(ROOT / "docs" / page):
            if block.language == "python":
                self.write(block)
            elif block.language == "console":
                for each in commands(block):
                    typed += self.type(each)
        return typed

    def write(self, block: Block) -> None:
        """Put a block at the end of the file that it names."""
        assert block.file, f"{block.place}: says nowhere which file it is"
        place = self.folder / block.file
        place.parent.mkdir(parents=True, exist_ok=True)
        text = self._mine(block.text)
        with place.open("a") as file:
            file.write(f"\n\n{text}" if place.stat().st_size else text)

    def type(self, each: Typed) -> bool:
        """Type one command, again and again where that does no harm, until it says what the page says."""
        if each.command.startswith(SKIPPED):
            return False
        deadline = time.monotonic() + LONGEST
        while True:
            code, said = self._run(each.command)
            if code == 0 and agrees(said, each.output):
                return True
            assert each.only_looks and time.monotonic() < deadline, (
                f"$ {each.command}\nended with {code} and said\n{said}\ninstead of\n{each.output}\n{self._logs()}"
            )
            time.sleep(0.5)

    def _run(self, command: str) -> tuple[int, str]:
        command = self._mine(command)
        process = self._processes.start(
            ["bash", "-c", "unset DJANGO_SETTINGS_MODULE ${!PYTEST_*}\n" + command],
            name=command.split()[0].rpartition("/")[2],
            env=self._env,
            cwd=self.folder,
        )
        return process.wait(LONGEST), process.output()

    def _mine(self, text: str) -> str:
        for old, new in self._replacing.items():
            text = text.replace(old, new)
        return text

    def _logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("[a-z]*.log"))
        )


def agrees(said: str, shown: str) -> bool:
    """Whether a command said what the page shows: `...` is whatever, as in a doctest; nothing shown is anything."""
    if not shown:
        return True
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in shown.split("..."))
    return re.fullmatch(pattern, " ".join(said.split()), re.DOTALL) is not None


def _tools() -> dict[str, str]:
    """Programs that the machine may lack, or that this environment has under another name."""
    found = {"sagas": f'#!/bin/sh\nexec {sys.executable} -m sagas.cli "$@"\n'}
    if shutil.which("curl") is None:
        found["curl"] = f"#!{sys.executable}\n{CURL}"
    return found


CURL: Final = """
import sys, urllib.request
words = sys.argv[1:]
options = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at] in ("-X", "-d", "-H")}
address = next(word for word in words if word.startswith("localhost"))
request = urllib.request.Request(f"http://{address}", method=options.get("-X", "GET"),
    headers=dict([options["-H"].split(": ")]) if "-H" in options else {}, data=options.get("-d", "").encode() or None)
sys.stdout.write(urllib.request.urlopen(request, timeout=60).read().decode())
"""
