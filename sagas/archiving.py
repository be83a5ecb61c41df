"""The archive of pruned sagas, moved out of the database to a file of JSON Lines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

import msgspec

from sagas.errors import InvalidInput
from sagas.ports import Connection
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
BLOCK: Final = 65_536  # bytes read at a time
BEGINNING: Final = b'{"id" : "'  # of a line: see archive_batch.sql


def archived(connection: Connection) -> int:
    """How many sagas are in the archive."""
    ((found,),) = run(connection, query(PACKAGE, "archive_ahead"), {}).fetchall()
    return int(found)


def move_archive(connection: Connection, file: Path, *, keep: bool = False, limit: int = 100) -> Iterator[int]:
    """Append the archive to a file as JSON Lines, and empty it; yields the number of sagas in each batch.

    A batch is on disk before it leaves the database: a crash in between writes it twice, and loses nothing. The file is
    locked meanwhile.

    Args:
        connection: autocommit.
        file: where to; it is appended to.
        keep: leave the archive in the database as it is.
        limit: sagas in one batch.

    Raises:
        InvalidInput: the file cannot be written, somebody else moves the archive to it, or it is something else that
            does not end with a line.
    """
    try:
        with file.open("ab+") as out:
            _lock(file, out)
            _end_last_line(file, out)
            for ids, lines in _batches(connection, limit):
                out.write(lines)
                out.flush()
                os.fsync(out.fileno())
                if not keep:
                    run(connection, query(PACKAGE, "archive_drop"), {"ids": ids})
                yield len(ids)
    except OSError as problem:
        raise InvalidInput(f"{file}: cannot be written: {problem}", path="file") from problem


def _batches(connection: Connection, limit: int) -> Iterator[tuple[list[UUID], bytes]]:
    last: UUID | None = None
    while found := run(connection, query(PACKAGE, "archive_batch"), {"after": last, "limit": limit}).fetchall():
        last = found[-1][0]
        yield [row[0] for row in found], "".join(f"{line}\n" for _, line in found).encode()


def _lock(file: Path, out: BinaryIO) -> None:
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(f"{file}: somebody else is moving the archive to it; wait for that", path="file") from None


def _end_last_line(file: Path, out: BinaryIO) -> None:
    """Cut off a line that a crash has left half written: what it was about is still in the database."""
    size = out.seek(0, os.SEEK_END)
    if not size:
        _keep_name(file)
        return
    tail = _tail(out, size)
    if not tail:
        return
    begun = tail.rstrip(b"\0")  # which some file systems leave where nothing was written yet
    if _whole(tail):
        out.write(b"\n")
    elif begun.startswith(BEGINNING) or BEGINNING.startswith(begun):
        out.truncate(size - len(tail))
    else:
        raise InvalidInput(f"{file}: it is no archive: what it ends with was not written by this command", path="file")


def _tail(out: BinaryIO, size: int) -> bytes:
    """What is behind the last end of a line."""
    tail, place = b"", size
    while place and b"\n" not in tail:
        place = max(0, place - BLOCK)
        out.seek(place)
        tail = out.read(size - place)
    return tail.rpartition(b"\n")[2]


def _whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _keep_name(file: Path) -> None:
    """Have the name of a new file on disk too: what is only in the file is not found after a power failure."""
    folder = os.open(file.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
