"""Typed client of the bank, over the standard library's HTTP.

It never sends a request twice on its own: whether to try again is the saga's decision, which counts attempts and
looks first. Each thread has its own connection; a forked child never uses its parent's.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import threading
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

from sagas import NOT_DONE, NotDone, Refused, Undecided


class BankError(Exception):
    """The bank gave no usable answer; whether the money moved is unknown."""


class BankClient:
    """Calls one bank.

    Args:
        url: such as "http://127.0.0.1:8001".
        timeout: seconds to wait for the connection, and for each part of an answer.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"bank URL {url!r}: expected http://host:port")
        self._host = parts.hostname
        self._port = parts.port or 80
        self._timeout = timeout
        self._local = threading.local()

    def charge(self, amount: Decimal, *, order: str, idempotency_key: str) -> str:
        """Take the money for an order.

        Returns:
            The bank's id of the charge.

        Raises:
            Refused: the bank says that it did not and will not take the money.
            BankError: no answer, or one that does not tell.
        """
        status, body = self._call(
            "POST", "/charges", {"amount": f"{amount:.2f}", "order": order}, idempotency_key=idempotency_key
        )
        if status in (402, 410):
            raise Refused(str(body.get("error")))
        return str(_expect("charge", (201,), status, body)["id"])

    def find_charge(self, idempotency_key: str) -> str | NotDone:
        """What became of the charge that was sent under a key.

        Returns:
            The id of the charge, or `NOT_DONE`.

        Raises:
            Undecided: the bank is still at it.
            BankError: no answer.
        """
        status, body = self._call("GET", f"/charges?key={quote(idempotency_key, safe='')}")
        match _expect("find charge", (200,), status, body)["state"]:
            case "done":
                return str(body["id"])
            case "absent":
                return NOT_DONE
            case state:
                raise Undecided(f"the bank says {state!r} of charge {idempotency_key!r}")

    def refund(self, charge_id: str, *, idempotency_key: str) -> None:
        """Pay one charge back; doing it twice does it once.

        Raises:
            BankError: no answer, or the bank knows no such charge.
        """
        status, body = self._call("POST", "/refunds", {"charge_id": charge_id}, idempotency_key=idempotency_key)
        _expect("refund", (200, 201), status, body)

    def void(self, charge_key: str, *, idempotency_key: str) -> None:
        """Pay back whatever was charged under a key, and have the bank refuse what may still arrive under it.

        Raises:
            BankError: no answer.
        """
        status, body = self._call("POST", "/refunds", {"charge_key": charge_key}, idempotency_key=idempotency_key)
        _expect("void", (200, 201), status, body)

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        self._connection().close()

    def _call(
        self, method: str, path: str, body: dict[str, str] | None = None, *, idempotency_key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One request, one answer."""
        headers = {"Content-Type": "application/json", "X-Client": str(os.getpid())}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        connection = self._connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise BankError(f"bank: {method} {path}: {type(error).__name__}: {error}; outcome unknown") from error
        except BaseException:
            # An interrupted exchange leaves an answer behind that the next request would take for its own.
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's connection, or a new one when there is none that can be used again."""
        pid = os.getpid()
        owned: tuple[int, http.client.HTTPConnection] | None = getattr(self._local, "owned", None)
        if owned is not None and owned[0] == pid:
            if _is_idle(owned[1]):
                return owned[1]
            owned[1].close()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        self._local.owned = (pid, connection)
        return connection


def _is_idle(connection: http.client.HTTPConnection) -> bool:
    """Whether the connection is open and quiet: anything to read now is its end or a stray answer."""
    if connection.sock is None:
        return True  # closed by us; request() opens it again
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _expect(what: str, expected: tuple[int, ...], status: int, body: dict[str, Any]) -> dict[str, Any]:
    if status not in expected:
        raise BankError(f"bank: {what}: answered {status}: {body.get('error')}")
    return body
