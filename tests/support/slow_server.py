"""The other side of many slow calls: an HTTP server on a loop of its own, which answers after a while."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import TracebackType
from urllib.parse import parse_qs, urlsplit


class SlowServer:
    """Answers `GET /charge?key=...&wait=...` with the key, after so many seconds, or once the test opens its gate.

    `wait=gate` waits until `open_gate()`. Counts calls by key, and how many it had at the same time.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.now = self.most = self.hung_up = 0
        self.arrived = threading.Condition()
        self._gate: asyncio.Event
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow-server", daemon=True)
        self.port = 0

    def __enter__(self) -> SlowServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def wait_for_calls(self, many: int, seconds: float = 20) -> None:
        """Wait until so many calls are here at the same time."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.now >= many, seconds), f"{self.now} calls of {many} came"

    def open_gate(self) -> None:
        """Answer all who wait at the gate."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._gate = asyncio.Event()
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1000))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = parse_qs(urlsplit((await reader.readuntil(b"\r\n\r\n")).split()[1].decode()).query)
        key, wait = asked["key"][0], asked["wait"][0]
        with self.arrived:
            self.calls[key] += 1
            self.now += 1
            self.most = max(self.most, self.now)
            self.arrived.notify_all()
        gone = asyncio.ensure_future(reader.read(1))
        answer = asyncio.ensure_future(self._gate.wait() if wait == "gate" else asyncio.sleep(float(wait)))
        try:
            await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            with self.arrived:
                self.now -= 1
                self.hung_up += not answer.done()
                self.arrived.notify_all()
            gone.cancel()
            answer.cancel()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(key)}\r\nConnection: close\r\n\r\n{key}".encode())
            writer.close()


async def call(port: int, key: str, wait: float | str) -> str:
    """One call of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET /charge?key={key}&wait={wait} HTTP/1.1\r\nHost: slow\r\n\r\n".encode())
        answer = await reader.read()
        return answer.rpartition(b"\r\n")[2].decode()
    finally:
        writer.close()
