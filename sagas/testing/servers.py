"""A real Postgres and a real Redis for as long as a `with` block lasts.

    with postgres() as pg, redis() as broker:
        psycopg.connect(pg.create_database("shop"))

They listen on free ports of 127.0.0.1, keep everything in a temporary directory, and end with the
process that started them, however that ends. `DATABASE_URL` and `REDIS_URL` in the environment
mean servers of your own: these are used as they are and cannot be killed or stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from sagas.testing.keeping import Process
from sagas.testing.launch import READY_WITHIN, Launcher, postgres_launcher, redis_command, redis_launcher


class NotOurServer(RuntimeError):
    """It was given by DATABASE_URL or REDIS_URL, so it is somebody's: it is not killed, paused or stopped."""


class Server:
    """A server process of ours, or the address of somebody else's.

    Attributes:
        host: where it listens.
        port: the same, also after `restart()`.
    """

    def __init__(self, host: str, port: int, launcher: Launcher | None) -> None:
        self.host = host
        self.port = port
        self._launcher = launcher

    @property
    def pid(self) -> int:
        """Process id of the server, the postmaster of Postgres."""
        return self._process.pid

    def log(self) -> str:
        """What the server said so far."""
        return self._process.output()

    def kill(self) -> None:
        """End it and its children by SIGKILL, and wait until they are gone. `restart()` brings it back."""
        self._ours.kill()

    def pause(self) -> None:
        """Freeze it by SIGSTOP: the kernel still accepts connections, nobody answers (Postgres: new ones only)."""
        self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._process.resume()

    def shut_down(self) -> None:
        """Stop it in good order. `restart()` brings it back."""
        if self._process.poll() is None:
            self._process.send_signal(self._ours.shutdown_signal)
            self._process.wait(READY_WITHIN)

    def restart(self) -> None:
        """Stop it in good order if it runs, and start it again: same data (Redis keeps none), same port."""
        self.shut_down()
        self._ours.start()

    def stop(self) -> None:
        """End it for good and remove its data. Safe to call twice; somebody else's server is left alone."""
        if self._launcher is not None:
            self._launcher.keeper.close()

    @property
    def _ours(self) -> Launcher:
        if self._launcher is None:
            raise NotOurServer(f"{type(self).__name__} at {self.host}:{self.port}: {NotOurServer.__doc__}")
        return self._launcher

    @property
    def _process(self) -> Process:
        process = self._ours.process
        assert process is not None
        return process


class Postgres(Server):
    """A Postgres server. The superuser of ours is `postgres`, without a password.

    Attributes:
        dsn: URL of a database to connect to first; of ours, `postgres`.
    """

    def __init__(self, dsn: str, launcher: Launcher | None = None) -> None:
        address = urlsplit(dsn)
        super().__init__(address.hostname or "127.0.0.1", address.port or 5432, launcher)
        self.dsn = dsn

    def url(self, database: str) -> str:
        """URL of one of its databases."""
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its URL.

        Args:
            name: its name.
            template: database to clone; nobody may be connected to it.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._administer(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists; whoever is connected to it is cut off."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


class Redis(Server):
    """A Redis or Valkey server.

    Attributes:
        url: URL of its database 0.
    """

    def __init__(self, url: str, launcher: Launcher | None = None) -> None:
        address = urlsplit(url)
        super().__init__(address.hostname or "127.0.0.1", address.port or 6379, launcher)
        self.url = url

    def command(self, *words: str, timeout: float = 5) -> str:
        """Send one command to a server without a password; see `redis_command`."""
        return redis_command(self.host, self.port, *words, timeout=timeout)

    def flushall(self) -> None:
        """Make it forget everything.

        Raises:
            RuntimeError: it refused; the message is its own.
        """
        if (answer := self.command("FLUSHALL")) != "+OK":
            raise RuntimeError(f"Redis at {self.host}:{self.port} refused FLUSHALL: {answer}")


@contextmanager
def postgres(*, fsync: bool = True, private: bool = False) -> Iterator[Postgres]:
    """Run a Postgres server.

    Args:
        fsync: whether a commit waits for the disk. Without it a killed server still loses nothing; a power cut does.
        private: start one of our own even where DATABASE_URL is set, because it is to be killed.

    Raises:
        NoServerFound: there are no programs to run.
        ProcessFailed: it did not start; the message shows its log.
    """
    if (given := os.environ.get("DATABASE_URL")) and not private:
        yield Postgres(given)
        return
    with _started(postgres_launcher(fsync=fsync)) as launcher:
        yield Postgres(f"postgresql://postgres@127.0.0.1:{launcher.port}/postgres", launcher)


@contextmanager
def redis(*, maxmemory: str | None = None, private: bool = False) -> Iterator[Redis]:
    """Run a Redis server that writes nothing to disk.

    Args:
        maxmemory: its memory limit, such as "10mb"; a full one refuses writes.
        private: start one of our own even where REDIS_URL is set, because it is to be killed.

    Raises:
        NoServerFound: there is no program to run.
        ProcessFailed: it did not start; the message shows its log.
    """
    if (given := os.environ.get("REDIS_URL")) and not private:
        yield Redis(given)
        return
    with _started(redis_launcher(maxmemory=maxmemory)) as launcher:
        yield Redis(f"redis://127.0.0.1:{launcher.port}/0", launcher)


@contextmanager
def _started(launcher: Launcher) -> Iterator[Launcher]:
    try:
        launcher.start_somewhere()
        yield launcher
    finally:
        launcher.keeper.close()
