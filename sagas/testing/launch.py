"""How the throw-away servers are started: programs, settings, ports, users, and when one is ready."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from sagas.testing.binaries import find_postgres, find_redis, make_server_directory, unprivileged_account
from sagas.testing.keeping import Account, Keeper, Process, ProcessFailed, proc_stat

READY_WITHIN = 30.0  # seconds
PORT_ATTEMPTS = 5  # another process may take a free port before our server does
SERVER_PORTS = range(15000, 32768)  # below the range that the kernel takes clients' ports from


@dataclass(kw_only=True)
class Launcher:
    """Starts one server program, again and again if asked, on the same data and port."""

    directory: Path  # removed at the end
    command: Callable[[int], Sequence[str | Path]]  # for a port
    answers: Callable[[int, int], bool]  # port, pid: whether that very process answers there
    shutdown_signal: int  # stop in good order
    end_signal: int  # stop at once; the data is removed anyhow
    account: Account | None = None
    cwd: Path
    keeper: Keeper
    port: int = 0
    process: Process | None = field(default=None)

    @property
    def log(self) -> Path:
        """What the server said."""
        return self.directory / "server.log"

    def start_somewhere(self) -> None:
        """Start the server on a free port.

        Raises:
            ProcessFailed: with the end of its log.
        """
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.port = free_port()
            try:
                self.start()
                return
            except ProcessFailed:
                if attempt == PORT_ATTEMPTS or "in use" not in self.log.read_text(errors="replace"):
                    raise

    def start(self) -> None:
        """Start the server on its port and wait until it answers."""
        self.process = self.keeper.start(
            self.command(self.port),
            output=self.log,
            env=server_environment(),
            cwd=self.cwd,
            account=self.account,
            end_signal=self.end_signal,
        )
        deadline = time.monotonic() + READY_WITHIN
        while not self.answers(self.port, self.process.pid):
            if self.process.poll() is not None:
                raise self.process.failure(f"ended with {self.process.poll()} instead of serving port {self.port}")
            if time.monotonic() > deadline:
                raise self.process.failure(f"does not answer on port {self.port} after {READY_WITHIN:g} s")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL the server and its children and wait until they are gone."""
        assert self.process is not None
        children = _children_of(self.process.pid)  # Postgres gives each a session of its own
        self.process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(map(_is_alive, children)):
            if time.monotonic() > deadline:
                raise self.process.failure(f"left children that outlive SIGKILL: {children}")
            time.sleep(0.005)


def postgres_launcher(*, fsync: bool) -> Launcher:
    """Prepare a Postgres: find it, make a data directory that its user owns, run `initdb`."""
    account = unprivileged_account()
    directory = make_server_directory(account, "sagas-postgres-")
    keeper = Keeper(directory)
    try:
        programs = find_postgres(account, directory)
        data = directory / "data"
        data.mkdir(mode=0o700)
        if account:
            os.chown(data, account.uid, account.gid)
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        made = keeper.start(
            [programs / "initdb", "-D", data, *options],
            output=directory / "initdb.log",
            env=server_environment(),
            cwd=data,
            account=account,
        )
        if made.wait(120) != 0:
            raise made.failure("could not make a data directory")
    except BaseException:
        keeper.close()
        raise
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "shared_buffers": "128MB",
        "max_connections": "200",
        "fsync": "on" if fsync else "off",
        "full_page_writes": "on" if fsync else "off",
    }

    def command(port: int) -> Sequence[str | Path]:
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [programs / "postgres", "-D", data, "-p", str(port), *options]

    def answers(port: int, pid: int) -> bool:
        pidfile = data / "postmaster.pid"  # names the one whose data this is, so that no other server answers for it
        try:
            with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=5) as connection:
                found = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return found == (str(data),) and pidfile.exists()

    return Launcher(
        directory=directory,
        command=command,
        answers=answers,
        shutdown_signal=signal.SIGINT,  # "fast": roll back what is open, then stop
        end_signal=signal.SIGQUIT,  # "immediate"
        account=account,
        cwd=data,
        keeper=keeper,
    )


def redis_launcher(*, maxmemory: str | None) -> Launcher:
    """Prepare a Redis that writes nothing to disk."""
    program = find_redis()
    directory = make_server_directory(None, "sagas-redis-")
    options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
    if maxmemory is not None:
        options += ["--maxmemory", maxmemory, "--maxmemory-policy", "noeviction"]

    def answers(port: int, pid: int) -> bool:
        try:
            return f"process_id:{pid}\r" in redis_command("127.0.0.1", port, "INFO", "server")
        except OSError:
            return False

    return Launcher(
        directory=directory,
        command=lambda port: [program, "--port", str(port), "--dir", directory, *options],
        answers=answers,
        shutdown_signal=signal.SIGTERM,
        end_signal=signal.SIGKILL,
        cwd=directory,
        keeper=Keeper(directory),
    )


def redis_command(host: str, port: int, *words: str, timeout: float = 5) -> str:
    """Send one command to a Redis without a password; needs no client library.

    Returns:
        The answer: a bulk string as it is, anything else as its first line.

    Raises:
        OSError: it cannot be reached, or does not answer within `timeout` seconds.
    """
    parts = [word.encode() for word in words]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            first = answer.readline().decode().strip()
            if first.startswith("$") and first != "$-1":
                return answer.read(int(first[1:])).decode()
            return first


def free_port() -> int:
    """Find a port of 127.0.0.1 that nobody uses now.

    Not one of those that the kernel gives to clients: while a server is down, one of its clients that
    connects again and again would sooner or later be given the server's port, and reach itself.
    """
    for port in random.sample(SERVER_PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("No free port found on 127.0.0.1")


def server_environment() -> dict[str, str]:
    """Nothing of ours that would change what the server does, such as PGDATA or a locale it does not have."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {"LC_ALL": "C", "TZ": "UTC", **kept}


def _children_of(pid: int) -> list[int]:
    """Process ids of the direct children; on Linux only."""
    everybody = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [one for one in everybody if proc_stat(one)[1:2] == [str(pid)]]


def _is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    return proc_stat(pid)[:1] not in ([], ["Z"])
