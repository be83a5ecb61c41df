"""A replica that lags: a physical copy of a server as it is at one moment, taken while it runs."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import psycopg

from sagas.testing.servers import Postgres

LEFT_OUT = {"postmaster.pid", "postmaster.opts", "pg_wal", "pg_stat_tmp", "pg_replslot"}


def copy(primary: Postgres, standby: Postgres) -> None:
    """Put what the one server has now into the other, which is not started.

    By the low-level backup functions, which every Postgres has: not every installation has `pg_basebackup`.
    """
    source, target = _data(primary), _data(standby)
    standby.shut_down()
    with psycopg.connect(primary.dsn, autocommit=True) as connection:
        connection.execute("select pg_backup_start('copy', true)")
        _copy(source, target, LEFT_OUT)
        row = connection.execute("select labelfile from pg_backup_stop(false)").fetchone()
        assert row is not None
    _copy(source / "pg_wal", target / "pg_wal", set())  # up to that moment at least; what is after it goes on a little
    (target / "backup_label").write_text(row[0])
    (target / "recovery.signal").touch()  # so that it takes over, on a timeline of its own, at the end of what it has
    with (target / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    _own(target)


def _data(server: Postgres) -> Path:
    return server._ours.directory / "data"


def _copy(source: Path, target: Path, left_out: set[str]) -> None:
    """Files may vanish meanwhile: they are not needed then."""
    for old in target.iterdir() if target.exists() else ():
        if old.name not in left_out or old.name == "pg_wal":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for folder, folders, files in os.walk(source):
        if Path(folder) == source:
            folders[:] = [each for each in folders if each not in left_out]
        place = target / Path(folder).relative_to(source)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in files:
            if not (Path(folder) == source and name in left_out):
                with suppress(FileNotFoundError):
                    shutil.copy(Path(folder) / name, place / name)
    for name in left_out & {"pg_stat_tmp", "pg_replslot"}:
        (target / name).mkdir(mode=0o700, exist_ok=True)


def _own(target: Path) -> None:
    owner = target.stat()
    for folder, _, files in os.walk(target):
        for each in (Path(folder), *(Path(folder) / name for name in files)):
            os.chown(each, owner.st_uid, owner.st_gid)
