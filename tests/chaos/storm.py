"""Makes things go wrong, as planned, and says what it did; at the end it makes all good again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg

from sagas.testing.processes import ProcessFailed
from sagas.testing.proxy import BlackHole, CutAfter, CutAt, Delay, Fault, Pass, Proxy, Reset
from tests.chaos.plan import Strike
from tests.chaos.scene import Role, Scene, later


class Storm:
    """Carries out strikes in a thread of its own.

    Args:
        scene: what suffers.
        strikes: in order of time.

    Attributes:
        done: a line for each strike so far.
        unasked: what ended without being told to, and was started again.
    """

    def __init__(self, scene: Scene, strikes: Sequence[Strike]) -> None:
        self.scene, self.strikes = scene, strikes
        self.done: list[str] = []
        self.unasked: list[str] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._rage, name="storm", daemon=True)
        self._over = threading.Event()
        self._frozen: dict[str, Role] = {}
        self._lock = threading.Lock()  # of roles and of what is frozen

    def start(self, since: float) -> None:
        """Begin; `since` is the beginning by the monotonic clock."""
        self._since = since
        self._thread.start()

    def end(self) -> None:
        """Stop, and make all good: nothing frozen, every server and process there, no fault in the network."""
        self._over.set()
        self._thread.join(60)
        self.scene.database.fault, self.scene.broker.fault = Pass(), Pass()
        with self._lock:
            for role in list(self._frozen.values()):
                self._thaw(role)
            self._redis("CONFIG", "SET", "maxmemory", "0")
            self._note(f"calm; started again: {', '.join(self.scene.ensure()) or 'nothing'}")

    def watch(self) -> None:
        """Start again what has ended by itself meanwhile, as a supervisor does."""
        with self._lock:
            if ended := self.scene.ensure():
                self.unasked += ended
                self._note(f"started again: {', '.join(ended)}")

    def _rage(self) -> None:
        try:
            for strike in self.strikes:
                if self._over.wait(max(0, self._since + strike.at - time.monotonic())):
                    return
                self._note(f"{strike} {getattr(self, f'_{strike.blow}')(strike) or ''}".rstrip())
                self.watch()
        except BaseException as error:
            self.error = error

    def _note(self, line: str) -> None:
        self.done.append(f"[{time.monotonic() - self._since:6.1f}] {line}")

    # --- processes ---

    def _kill(self, strike: Strike) -> str:
        with self._lock:
            role = self.scene.pick(strike.draw)
            self._frozen.pop(role.name, None)
            if role.process is not None:
                role.process.kill()
            self.scene.start(role)
        return role.name

    def _kill_child(self, strike: Strike) -> str:
        with self._lock:
            roles = [role for role in self.scene.roles if role.name.startswith("celery") and role.process]
            parents = [role.process.pid for role in roles if role.process]
            children = sorted(pid for parent in parents for pid in children_of(parent))
            if not children:
                return "(no child)"
            pid = children[int(strike.draw * len(children))]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"one of {len(children)}"

    def _freeze(self, strike: Strike) -> str:
        with self._lock:
            role = self.scene.pick(strike.draw)
            if role.process is None or role.process.poll() is not None or role.name in self._frozen:
                return "(gone)"
            with suppress(ProcessFailed):
                role.process.pause()
            self._frozen[role.name] = role
        later(strike.seconds, lambda: self._thaw_later(role))
        return role.name

    def _thaw_later(self, role: Role) -> None:
        with self._lock:
            self._thaw(role)

    def _thaw(self, role: Role) -> None:
        if self._frozen.pop(role.name, None) and role.process is not None:
            role.process.resume()

    def _roll(self, strike: Strike) -> str:
        with self._lock:
            role = self.scene.pick(strike.draw)
            if role.process is None or role.name in self._frozen:
                return "(gone)"
            leaver = role.process
            leaver.terminate()
            self.scene.start(role)
        return role.name

    # --- Postgres ---

    def _postgres_kill(self, strike: Strike) -> None:
        self.scene.postgres.kill()
        self.scene.postgres.restart()

    def _postgres_reset(self, strike: Strike) -> None:
        self._for(self.scene.database, Reset(), strike.seconds)

    def _postgres_hang(self, strike: Strike) -> None:
        self._for(self.scene.database, BlackHole(), strike.seconds * 2)

    def _postgres_deaf(self, strike: Strike) -> None:
        self._for(self.scene.database, BlackHole(only_answers=True), strike.seconds, then=Reset())

    def _postgres_slow(self, strike: Strike) -> None:
        self._for(self.scene.database, Delay(seconds=0.05), strike.seconds)

    def _postgres_cut(self, strike: Strike) -> None:
        self._for(self.scene.database, CutAfter(answer_bytes=int(50 + strike.draw * 3000)), strike.seconds / 2)

    def _commit_lost(self, strike: Strike) -> None:
        self._for(self.scene.database, CutAt(words=b"COMMIT"), strike.seconds)

    def _commit_unheard(self, strike: Strike) -> None:
        self._for(self.scene.database, CutAt(words=b"COMMIT", answered=True), strike.seconds)

    def _terminate(self, strike: Strike) -> str:
        with psycopg.connect(self.scene.url, autocommit=True) as connection:
            found = connection.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = 'chaos'"
                " and pid <> pg_backend_pid() and backend_type = 'client backend' and pid %% 3 = %s",
                [int(strike.draw * 3)],
            ).fetchone()
        return f"{found[0] if found else 0} sessions"

    # --- Redis ---

    def _redis_flush(self, strike: Strike) -> None:
        self._redis("FLUSHALL")

    def _redis_kill(self, strike: Strike) -> None:
        self.scene.redis.kill()
        self.scene.redis.restart()

    def _redis_hang(self, strike: Strike) -> None:
        self._for(self.scene.broker, BlackHole(), strike.seconds * 2)

    def _redis_full(self, strike: Strike) -> None:
        self._redis("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        self._redis("CONFIG", "SET", "maxmemory", "1200000")
        self._over.wait(strike.seconds)
        self._redis("CONFIG", "SET", "maxmemory", "0")

    def _redis(self, *words: str) -> None:
        with suppress(OSError):
            self.scene.redis.command(*words)

    def _for(self, proxy: Proxy, fault: Fault, seconds: float, then: Fault | None = None) -> None:
        proxy.fault = fault
        self._over.wait(seconds)
        if then is not None:
            proxy.fault = then
        proxy.fault = Pass()


def children_of(pid: int) -> list[int]:
    """The direct children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
