"""The proxy does to a connection what its fault says, and goes on as before afterwards."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from sagas.testing.proxy import BlackHole, CutAfter, CutAt, Delay, Pass, Proxy, Reset
from sagas.testing.servers import Postgres


class Echo:
    """A server that says back what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.heard += data
                    connection.sendall(data)
            except OSError:
                pass  # the proxy reset us: that is its work


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        yield connection


def knock(proxy: Proxy) -> bytes:
    """Connect and wait for an answer."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        return connection.recv(1)


def test_pass_hands_on_both_ways_and_the_end(client: socket.socket, proxy: Proxy) -> None:
    """Without a fault nothing is lost, however much, and an end on one side arrives at the other."""
    much = b"x" * 3_000_000
    threading.Thread(target=client.sendall, args=(much,), daemon=True).start()
    answer = b""
    while len(answer) < len(much):
        answer += client.recv(1_000_000)
    assert answer == much
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    assert proxy.accepted == 1


def test_reset_ends_open_and_new_connections(client: socket.socket, proxy: Proxy) -> None:
    """A reset is seen as such, not as a polite end."""
    proxy.fault = Reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionResetError):
        knock(proxy)
    proxy.fault = Pass()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as healed:
        healed.sendall(b"x")
        assert healed.recv(1) == b"x"


def test_black_hole_swallows_until_it_ends(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    """Accepted, never answered; what was held back lands late, as from a network that was cut."""
    proxy.fault = BlackHole()
    client.sendall(b"held")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert echo.heard == b"hello"
    client.settimeout(5)
    proxy.fault = Pass()
    assert client.recv(4) == b"held"


def test_black_hole_of_answers_lets_the_work_be_done(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    """The request arrives, the reply does not: the outcome is unknown to the client only."""
    proxy.fault = BlackHole(only_answers=True)
    client.sendall(b" work")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert echo.heard == b"hello work"
    proxy.fault = Reset()
    client.settimeout(5)
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_cut_after_counts_answered_bytes_from_now(client: socket.socket, proxy: Proxy) -> None:
    """An answer may be cut in the middle."""
    proxy.fault = CutAfter(answer_bytes=3)
    client.sendall(b"12345")
    assert client.recv(3) == b"123"
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_delay_holds_each_direction_back(client: socket.socket, proxy: Proxy) -> None:
    """There and back take twice the delay."""
    proxy.fault = Delay(seconds=0.1)
    begun = time.monotonic()
    client.sendall(b"x")
    assert client.recv(1) == b"x"
    assert time.monotonic() - begun >= 0.2


def test_a_server_that_is_down_looks_like_a_reset(proxy: Proxy, echo: Echo) -> None:
    """The proxy accepts before it knows; a client must not wait on it for ever."""
    echo.listener.shutdown(socket.SHUT_RDWR)
    echo.listener.close()
    with pytest.raises(ConnectionResetError):
        knock(proxy)


def test_postgres_behind_the_proxy_loses_an_acknowledgement(postgres_server: Postgres) -> None:
    """A commit whose answer is cut off is committed all the same: the case that record() must survive."""
    with Proxy(postgres_server.host, postgres_server.port) as proxy:
        through = psycopg.conninfo.make_conninfo(postgres_server.dsn, host="127.0.0.1", port=proxy.port)
        table = f"proxy_{proxy.port}"
        with psycopg.connect(postgres_server.dsn, autocommit=True) as direct:
            direct.execute(f"CREATE TABLE {table} (i int)")
            connection = psycopg.connect(through)
            connection.execute(f"INSERT INTO {table} VALUES (1)")
            proxy.fault = CutAfter(answer_bytes=0)
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
            connection.close()
            assert direct.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
            direct.execute(f"DROP TABLE {table}")


@pytest.mark.parametrize("answered", [False, True])
def test_cut_at_words_strikes_once(proxy: Proxy, echo: Echo, answered: bool) -> None:
    """Whoever says the words, in whatever pieces, is cut off: before they arrive, or before their answer does."""
    proxy.fault = CutAt(words=b"commit", answered=answered)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(b"begin; com")
        assert connection.recv(100) == b"begin; com"
        connection.sendall(b"mit;")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert echo.heard == b"begin; com" + (b"mit;" if answered else b"")
    assert proxy.fault == Pass()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as healed:
        healed.sendall(b"commit")
        assert healed.recv(6) == b"commit"
