"""The servers, relays and workers of one run, and what is done to them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from example_project.bank.desk import Desk, open_bank
from sagas.testing.launch import free_port
from sagas.testing.processes import Process, ProcessFailed, ProcessGroup
from sagas.testing.proxy import Proxy
from sagas.testing.servers import postgres, redis

ROOT = Path(__file__).parents[2]
QUEUES = "default,shop,celery"
AHEAD, BEHIND = 7200.0, -5400.0  # seconds that clocks are wrong by
STARTED_WITHIN = 60.0


@dataclass(kw_only=True)
class Role:
    """A relay or worker that is there again when it was ended."""

    name: str
    argv: tuple[str, ...]
    ready: str  # what it says when it works
    env: dict[str, str]
    process: Process | None = None


class Scene:
    """One run's servers and processes; ends with the `with` block.

    Args:
        directory: where the processes write what they say.
        children: pool processes of each Celery worker.
    """

    def __init__(self, directory: Path, *, children: int = 2) -> None:
        self._stack = ExitStack()
        try:
            self.postgres = self._stack.enter_context(
                postgres(private=True, fsync=False)
            )  # a kill loses nothing without it
            self.redis = self._stack.enter_context(redis(private=True))
            self.processes = self._stack.enter_context(ProcessGroup(directory))
            self.bank: Desk = open_bank(self.processes, "--longest-wait", "3")
            self.url = self.postgres.create_database("chaos")
            self.database = self._stack.enter_context(Proxy(self.postgres.host, self.postgres.port))
            self.broker = self._stack.enter_context(Proxy(self.redis.host, self.redis.port))
            self._run("-m", "django", "migrate", "--verbosity=0", name="migrate").wait(60)
            self.not_run: list[str] = []
            self.pooler = self._pooler(directory)
            self.roles = self._roles(children)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- processes ---

    def start_all(self) -> None:
        """Start every role, and wait until all of them work."""
        for role in self.roles:
            self.start(role)
        for role in self.roles:
            assert role.process is not None
            role.process.wait_for_output(role.ready, STARTED_WITHIN)

    def start(self, role: Role) -> None:
        """Start a role, anew if it has been before."""
        role.process = self._run(*role.argv, name=role.name, **role.env)

    def ensure(self) -> list[str]:
        """Start again what has ended by itself; returns the names, and what each said last."""
        told = []
        for role in self.roles:
            if role.process is not None and (code := role.process.poll()) is not None:
                told.append(f"{role.name} (ended with {code}: {last_words(role.process.output())})")
                self.start(role)
        return told

    def pick(self, draw: float) -> Role:
        """The role that a draw from 0 to 1 means."""
        return self.roles[int(draw * len(self.roles))]

    def end_all(self) -> list[str]:
        """SIGTERM to all roles: each has to end in good order; returns what did not."""
        wrong = []
        for role in self.roles:
            if role.process is not None:
                role.process.terminate()
        for role in self.roles:
            with suppress(ProcessFailed):
                if role.process is None or role.process.wait(40) == 0:
                    continue
            wrong.append(f"{role.name} did not end in good order after SIGTERM: {role.process}")
        return wrong

    def _run(self, *words: str, name: str, **env: str) -> Process:
        return self.processes.python(*words, name=name, env=self.environment() | env, cwd=ROOT)

    def environment(self) -> dict[str, str]:
        """What a process of this run is told: the way to the servers leads through the proxies."""
        return {
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "DATABASE_URL": at_port(self.url, self.database.port),
            "REDIS_URL": at_port(self.redis.url, self.broker.port),
            "BANK_URL": self.bank.url,
            "PYTHONFAULTHANDLER": "1",
        }

    def _roles(self, children: int) -> list[Role]:
        relay = ("-m", "django", "sagas", "relay", "--app", "tests.chaos.celery_app")
        worker = ("-m", "django", "sagas", "worker", "--concurrency=2")
        celery = (
            "-m", "celery", "-A", "tests.chaos.celery_app", "worker", "-c", str(children), "-Q", QUEUES,
            "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING", "-n",
        )  # fmt: skip
        roles = [
            Role(name="relay", argv=relay, ready="serves", env={}),
            Role(name="relay-behind", argv=relay, ready="serves", env={"CHAOS_SKEW": str(BEHIND)}),
            Role(name="celery", argv=(*celery, "one@chaos"), ready="ready", env={}),
            Role(name="celery-ahead", argv=(*celery, "two@chaos"), ready="ready", env={"CHAOS_SKEW": str(AHEAD)}),
            Role(name="embedded", argv=worker, ready="serves", env={}),
        ]
        for role in roles[2:4]:
            role.argv = (*role.argv, "--loglevel=INFO")  # it says there that it is ready
        if self.pooler is not None:
            pooled = {"DATABASE_URL": at_port(self.url, self.pooler)}
            pooled["CHAOS_SAGAS"] = '{"PREPARED": false, "WAKE": false}'
            roles.append(Role(name="embedded-pooled", argv=worker, ready="serves", env=pooled))
        return roles

    def _pooler(self, directory: Path) -> int | None:
        """Start pgbouncer in transaction mode, before the proxy; None, and a note, where it is not installed."""
        program = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer")
        if program is None:
            self.not_run.append("pgbouncer in transaction mode: it is not installed (PGBOUNCER= names its program)")
            return None
        port = free_port()
        config = directory / "pgbouncer.ini"
        users = directory / "pgbouncer.users"
        users.write_text('"postgres" ""\n')
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.database.port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
            f"listen_port={port}\nunix_socket_dir=\nauth_type=trust\nauth_file={users}\npool_mode=transaction\n"
            "default_pool_size=8\nserver_login_retry=1\nignore_startup_parameters=extra_float_digits,options\n"
        )
        for path in (directory, config, users):
            path.chmod(0o755)
        as_user = ("-u", "nobody") if os.geteuid() == 0 else ()
        pooler = self.processes.start([program, *as_user, str(config)], name="pgbouncer")
        pooler.wait_for_output("process up", 15)
        return port


def last_words(output: str) -> str:
    """The last line that names an error, or the last line."""
    lines = output.strip().splitlines()
    errors = [line for line in lines[-200:] if "Error: " in line or "CRITICAL" in line]
    return " ".join((errors or lines)[-1:])[-200:]


def at_port(url: str, port: int) -> str:
    """The same address at another port of this machine."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))


def later(seconds: float, what: Callable[[], None]) -> threading.Timer:
    """Do something in so many seconds."""
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()
    return timer
