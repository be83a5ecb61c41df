"""A TCP proxy that misbehaves on demand: put it between a client and a real server.

with Proxy(server.host, server.port) as proxy:
    connect_to(proxy.port)
    proxy.fault = BlackHole()        # at run time, for open connections too
    proxy.fault = Pass()
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

CHUNK = 65536
LINGER_RESET = struct.pack("ii", 1, 0)  # close sends RST instead of FIN


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Hand everything on."""


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Refuse new connections with a reset, and reset the open ones."""


@dataclass(frozen=True, kw_only=True)
class BlackHole:
    """Accept connections and bytes, and answer nothing: a network that is cut.

    What it holds back arrives late, when the fault is changed to another; set `Reset` to lose it for good.
    """

    only_answers: bool = False  # requests pass: the work is done, and nobody hears of it


@dataclass(frozen=True, kw_only=True)
class CutAfter:
    """Hand on this many bytes of each connection's answers, counted from now, then reset it."""

    answer_bytes: int


@dataclass(frozen=True, kw_only=True)
class CutAt:
    """Reset the connection on which a client says these words, once; then hand on as before."""

    words: bytes
    answered: bool = False  # the server hears them and does what they say, and its answer is lost


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Hold back every piece of data, in each direction, for this many seconds."""

    seconds: float


Fault = Pass | Reset | BlackHole | CutAfter | CutAt | Delay


class Link:
    """One client's connection and ours to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.answered = 0  # bytes handed back under the present fault
        self.asked = b""  # the end of what the client said
        self.doomed = False  # the next answer is lost, and the connection with it
        self.over = False
        self._directions = 2

    def direction_ended(self) -> None:
        """Count one of the two directions as ended; close the sockets after the second."""
        self._directions -= 1
        if self._directions == 0 and not self.over:
            self.over = True
            self.client.close()
            self.server.close()

    def reset(self) -> None:
        """End both sides at once; each sees a reset."""
        self.over = True
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it, and tells the peer nothing
            end.close()


class Proxy:
    """Listens on a free port of 127.0.0.1 and hands on to `host:port`, through the present `fault`.

    Attributes:
        port: where it listens.
        accepted: connections accepted so far.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._fault: Fault = Pass()
        self._links: list[Link] = []
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._closed = False
        self._run(self._accept)

    @property
    def fault(self) -> Fault:
        """What happens to connections now; assign to change it, for open ones too."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        with self._changed:
            self._fault = fault
            self._links = [link for link in self._links if not link.over]
            for link in self._links:
                link.answered = 0
                if isinstance(fault, Reset):
                    link.reset()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening and reset every connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.fault = Reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, body: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=body, args=arguments, name=f"proxy:{self.port}", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._run(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        """Join a new client to the server; one that is down looks like a reset."""
        server = socket.socket()
        link = Link(client, server)
        try:
            server.settimeout(10)
            server.connect(self._target)
            for end in (client, server):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            link.reset()
            return
        with self._changed:
            if isinstance(self._fault, Reset):
                link.reset()
                return
            self._links.append(link)
        self._run(self._pump, link, client, server, False)
        self._run(self._pump, link, server, client, True)

    def _pump(self, link: Link, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        """Hand one direction on until it ends; then tell the other side that it did."""
        try:
            while data := source.recv(CHUNK):
                self._hand_on(link, sink, data, answers)
            self._hold(link, answers)  # the news of an end is held back as data is
            if not link.over:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            link.reset()
        finally:
            with self._changed:
                link.direction_ended()

    def _hand_on(self, link: Link, sink: socket.socket, data: bytes, answers: bool) -> None:
        fault = self._hold(link, answers)
        if answers and link.doomed:
            link.reset()
            return
        if isinstance(fault, CutAt) and not answers and self._strikes(fault, link, data) and not fault.answered:
            link.reset()
            return
        if answers and isinstance(fault, CutAfter) and link.answered + len(data) >= fault.answer_bytes:
            sink.sendall(data[: fault.answer_bytes - link.answered])
            link.reset()
            return
        sink.sendall(data)
        if answers:
            link.answered += len(data)

    def _strikes(self, fault: CutAt, link: Link, data: bytes) -> bool:
        """Whether the words are said now, by whatever pieces they come in; the fault is over then."""
        said = link.asked + data
        link.asked = said[-len(fault.words) + 1 :] if len(fault.words) > 1 else b""
        if fault.words not in said:
            return False
        with self._changed:
            self._fault, link.doomed = Pass(), fault.answered
        return True

    def _hold(self, link: Link, answers: bool) -> Fault:
        """Wait while the fault holds this direction back; returns the fault that let it go."""
        with self._changed:
            while not link.over and (patience := _patience(self._fault, answers)) != 0:
                if not self._changed.wait(patience):
                    break  # delayed for long enough
            return self._fault


def _patience(fault: Fault, answers: bool) -> float | None:
    """Seconds for which the fault holds this direction back; None: until it is another."""
    if isinstance(fault, Delay):
        return fault.seconds
    if isinstance(fault, BlackHole) and (answers or not fault.only_answers):
        return None
    return 0
