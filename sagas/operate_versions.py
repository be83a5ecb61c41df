"""Versions of definitions on the command line: what is here and under way, what was released, draining, replaying."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from sagas import machine, operate_data, ports, releases
from sagas.commanding import Talk
from sagas.desk import Desk
from sagas.errors import ConfigurationError, InvalidInput
from sagas.operate import find, one_line, saga_cells, table
from sagas.registry import registry
from sagas.replay import Replay, replay

HEAD = ("name", "version", "fingerprint", "open", "oldest", "note")
MOST_LEFT = 20  # sagas that `drain` names
LOOK_AGAIN = 1.0  # seconds


@dataclass(kw_only=True, slots=True)
class Under:
    """Sagas of one version that have not ended."""

    count: int = 0
    oldest: datetime | None = None
    changed: int = 0  # of these, those that were started with other steps


def definitions(desk: Desk, talk: Talk) -> None:
    """Say every definition that this process has, or that has open sagas, as a table."""
    desk.check_ready()
    under, notes = _under_way(desk), _release_notes(desk.definitions_file)
    here = {(each.saga_name, each.saga_version): each for each in registry.definitions()}
    lines, data = [HEAD], []
    for name, version in sorted(here.keys() | under.keys()):
        definition, found = here.get((name, version)), under.get((name, version), Under())
        said = [notes.get((name, version), "")] if definition else ["not in this process: its sagas wait"]
        if definition and found.changed:
            said.append(f"its steps were changed: {found.changed} sagas wait")
        oldest = "" if found.oldest is None else f"{desk.words.age(found.oldest)} ago"
        fingerprint, note = definition.fingerprint() if definition else "", "; ".join(filter(None, said))
        lines.append((name, str(version), fingerprint, str(found.count), oldest, note))
        data.append({
            "name": name, "version": version, "fingerprint": fingerprint or None, "open": found.count,
            "oldest": found.oldest, "changed": found.changed, "note": note,
        })  # fmt: skip
    talk.give(data)
    talk.all(table(lines))


def _under_way(desk: Desk) -> dict[tuple[str, int], Under]:
    here = {(each.saga_name, each.saga_version): each.fingerprint() for each in registry.definitions()}
    found: defaultdict[tuple[str, int], Under] = defaultdict(Under)
    for row in desk.rows("operate_definitions", {}):
        place = (row.name, row.version)
        under = found[place]
        under.count += row.unfinished
        under.oldest = row.oldest if under.oldest is None else min(under.oldest, row.oldest)
        if row.definition not in ("", here.get(place)):
            under.changed += row.unfinished
    return found


def _release_notes(path: Path | None) -> dict[tuple[str, int], str]:
    if path is None or not path.exists():
        return {}
    return {
        (each.name, each.version): "changed since its release" if each.changed else "not released yet"
        for each in releases.differences(releases.read(path), registry.definitions())
    }


def check(desk: Desk, path: Path | None, talk: Talk) -> str:
    """Compare the code with the file of released definitions; returns what to do, nothing if they agree.

    Args:
        desk: says where the file is, unless
        path: is given.
        talk: is told each difference.
    """
    file = _file(desk, path)
    found = list(releases.differences(releases.read(file), registry.definitions()))
    talk.give({"file": str(file), "differences": [asdict(each) for each in found]})
    talk.all(each.message for each in found)
    if not found:
        talk.say(f"{len(list(registry.definitions()))} definitions are as {file} says")
        return ""
    missing = "" if file.exists() else f"; there is no {file} yet, `{desk.command} definitions --release` writes it"
    return f"{len(found)} of the definitions are not as they were released{missing}"


def release(desk: Desk, path: Path | None, talk: Talk) -> None:
    """Write what is new into the file of released definitions.

    Args:
        desk: says where the file is, unless
        path: is given.
        talk: is told what was written.

    Raises:
        ConfigurationError: a released definition was changed, or the file cannot be written.
    """
    file = _file(desk, path)
    new = list(releases.release(file, registry.definitions()))
    talk.give({"file": str(file), "released": [{"name": each.name, "version": each.version} for each in new]})
    talk.all(f"{each.name} version {each.version} is released" for each in new)
    talk.say(f"{file} is up to date; commit it together with the code")


def _file(desk: Desk, path: Path | None) -> Path:
    file = path or desk.definitions_file
    if file is None:
        raise ConfigurationError(
            "nobody says where the file of released definitions is: pass --file, or set SAGAS['DEFINITIONS_FILE'] "
            "(without it, it is saga_definitions.json in BASE_DIR)"
        )
    return file


def drain(desk: Desk, name: str, version: int, *, wait: float, talk: Talk) -> str:
    """Wait until no saga of a version is open; returns what is left, nothing if it is drained.

    Args:
        desk: where.
        name: of the definition.
        version: of the definition.
        wait: seconds to wait at most.
        talk: is told what is left, and why each waits.

    Raises:
        InvalidInput: nobody knows such a version, or the time is none.
    """
    if not 0 <= wait < math.inf:
        raise InvalidInput(f"--wait {wait}: seconds, from 0 on", path="wait")
    desk.check_ready()
    end, told = time.monotonic() + wait, -1
    while True:
        (left,) = desk.rows("operate_version_left", {"name": name, "version": version})
        if not left.unfinished:
            _check_known(desk, name, version, known=left.known)
            talk.give({"name": name, "version": version, "open": 0, "sagas": []})
            talk.say(f"{name} version {version} is drained: none of its sagas is open in {desk.name!r}")
            return ""
        if time.monotonic() >= end:
            break
        if told != left.unfinished:
            talk.say(f"{left.unfinished} sagas of {name} version {version} are open")
            told = left.unfinished
        time.sleep(min(LOOK_AGAIN, max(end - time.monotonic(), 0.0)))
    found = desk.sagas(name=name, version=version, unfinished=True, limit=MOST_LEFT)
    talk.give({
        "name": name, "version": version, "open": left.unfinished, "sagas": operate_data.sagas(desk, found),
    })  # fmt: skip
    talk.all(table(saga_cells(desk, found)))
    if left.unfinished > len(found):
        talk.say(f"and {left.unfinished - len(found)} more")
    return f"{left.unfinished} sagas of {name} version {version} are open in {desk.name!r}; keep its class"


def _check_known(desk: Desk, name: str, version: int, *, known: bool) -> None:
    """A slip of the pen is not a drained version."""
    file = desk.definitions_file
    released = {} if file is None else releases.read(file)
    if known or version in registry.versions(name) or str(version) in released.get(name, {}):
        return
    versions = ", ".join(map(str, registry.versions(name)))
    raise InvalidInput(
        f"{name} version {version}: neither this process nor {desk.name!r} has ever had it"
        + (f"; there is version {versions}" if versions else f"; `{desk.command} definitions` lists what there is"),
        path="name",
    )


def replaying(desk: Desk, wanted: str, talk: Talk) -> str:
    """Read the log of a saga with today's code; returns what is wrong, nothing if it fits.

    Args:
        desk: where.
        wanted: the saga: its id, or name:key.
        talk: is told each entry, with its differences.

    Raises:
        UnknownSaga: this process does not have the saga's definition.
    """
    saga = find(desk, wanted)
    with desk.connect() as connection:
        try:
            found = replay(connection, saga.id, ports.store(desk.name).settings.payloads)
        except (ValueError, msgspec.MsgspecError) as problem:
            return f"saga {saga.id}: its log cannot be read: {problem}; run `{desk.command} verify {saga.id}`"
    talk.give(_replay_data(found, saga.id))
    return _replayed(desk, found, saga.id, talk.say)


def _replay_data(found: Replay, id: object) -> dict[str, Any]:
    return {
        "saga": id, "fits": found.fits, "changed": found.changed, "not_opened": list(found.locked),
        "leads_to": found.state.status.value,
        "next": [{"step": each.step, "direction": each.direction.value} for each in found.next],
        "entries": [
            {"seq": line.entry.seq, "kind": line.entry.kind, "step": line.entry.step, "attempt": line.entry.attempt,
             "differences": list(line.differences)}
            for line in found.lines
        ],
    }  # fmt: skip


def _replayed(desk: Desk, found: Replay, id: object, say: Callable[[str], Any]) -> str:
    words, misfits = desk.words, 0
    for line in found.lines:
        attempt = f"attempt {line.entry.attempt}" if line.entry.attempt else ""
        parts = (f"{words.word(words.KIND, line.entry.kind):<22}", line.entry.step or "", attempt)
        say(f"{line.entry.seq:>5}  {'  '.join(part for part in parts if part)}".rstrip())
        for each in line.differences:
            misfits += 1
            say(f"    ! {one_line(each)}")
    if found.locked:
        say(f"not looked at, since it cannot be opened here: entry {', '.join(map(str, found.locked))}")
    ahead = ", ".join(f"{each.step} ({words.word(words.DIRECTION, each.direction)})" for each in found.next)
    say(f"leads to {words.word(words.STATUS, found.state.status)}; next: {ahead or 'nothing'}")
    if found.fits:
        say(f"fits: today's {found.head.name} version {found.head.version} would have written this log")
        return ""
    today = f"today's {found.head.name} version {found.head.version}"
    complaints = [f"{today} differs in {misfits} places, marked !"] if misfits else []
    complaints += [_changed(found)] if found.changed else []
    return f"saga {id}: {'; '.join(complaints)}"


def _changed(found: Replay) -> str:
    """What a log need not show: the steps are others, perhaps further on than the saga has come."""
    waits = "" if machine.finished(found.state) else ", so that no worker goes on with it: deploy the former code"
    return (
        f"the steps of {found.head.name} version {found.head.version} were changed without a new version since "
        f"it was started (fingerprint {found.head.definition} then, {found.today} today){waits}"
    )
