"""The bank's HTTP face: JSON in, JSON out, keep-alive."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from example_project.bank.faults import Rule
from example_project.bank.ledger import Answer
from example_project.bank.service import Bank, Caller, LostReply

LARGEST_BODY = 64 * 1024


class BankServer(ThreadingHTTPServer):
    """One thread per connection.

    Args:
        address: host and port; port 0 picks a free one.
        bank: what answers.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], bank: Bank) -> None:
        super().__init__(address, Handler)
        self.bank = bank

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about callers who went away, which is what killed workers do."""


class Handler(BaseHTTPRequestHandler):
    """Reads a request, finds its route, writes the answer."""

    server: BankServer
    protocol_version = "HTTP/1.1"
    timeout = 120  # seconds a connection may be idle
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet

    def do_GET(self) -> None:
        """Questions."""
        self._answer()

    def do_POST(self) -> None:
        """Orders."""
        self._answer()

    def do_DELETE(self) -> None:
        """Ends of faults."""
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the ledger has it all."""

    def _answer(self) -> None:
        try:
            answer = self._route()
        except LostReply:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except (ValueError, TypeError) as error:
            answer = Answer(status=400, body={"error": str(error)})
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _route(self) -> Answer:
        body = self._body()
        path = urlsplit(self.path).path
        handle = ROUTES.get((self.command, path))
        if handle is None:
            return Answer(status=404, body={"error": f"no {self.command} {path}"})
        return handle(self, body)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= LARGEST_BODY:
            self.close_connection = True
            raise ValueError(f"a body of {length} bytes: at most {LARGEST_BODY}")
        body = json.loads(self.rfile.read(length) or b"{}")
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")
        return body

    def _caller(self) -> Caller:
        key = self.headers.get("Idempotency-Key")
        if not key:
            raise ValueError("header Idempotency-Key is missing")
        return Caller(key=key, client=self.headers.get("X-Client", ""))

    def _charge(self, body: dict[str, Any]) -> Answer:
        order = _text(body, "order")
        return self.server.bank.charge(self._caller(), amount=body.get("amount"), order=order)

    def _refund(self, body: dict[str, Any]) -> Answer:
        if ("charge_id" in body) == ("charge_key" in body):
            raise ValueError("a refund names either charge_id or charge_key")
        charge_id = _text(body, "charge_id") if "charge_id" in body else None
        charge_key = _text(body, "charge_key") if "charge_key" in body else None
        return self.server.bank.refund(self._caller(), charge_id=charge_id, charge_key=charge_key)

    def _find(self, body: dict[str, Any]) -> Answer:
        keys = parse_qs(urlsplit(self.path).query).get("key", [])
        if len(keys) != 1:
            raise ValueError("expected one ?key=")
        return Answer(status=200, body=self.server.bank.find(keys[0]))

    def _ledger(self, body: dict[str, Any]) -> Answer:
        return Answer(status=200, body=self.server.bank.statement())

    def _in_flight(self, body: dict[str, Any]) -> Answer:
        return Answer(status=200, body={"in_flight": self.server.bank.in_flight.report()})

    def _release(self, body: dict[str, Any]) -> Answer:
        released = self.server.bank.in_flight.release(number=body.get("arrival"), order=body.get("order"))
        return Answer(status=200, body={"released": released})

    def _faults(self, body: dict[str, Any]) -> Answer:
        return Answer(status=200, body={"faults": self.server.bank.script.report()})

    def _add_fault(self, body: dict[str, Any]) -> Answer:
        rules = [Rule.from_json(given) for given in body.get("faults", [body])]
        return Answer(status=201, body={"ids": [self.server.bank.script.add(rule) for rule in rules]})

    def _behave(self, body: dict[str, Any]) -> Answer:
        self.server.bank.behave()
        return Answer(status=200, body={})


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: expected a string that is not empty")
    return value


ROUTES: dict[tuple[str, str], Callable[[Handler, dict[str, Any]], Answer]] = {
    ("POST", "/charges"): Handler._charge,
    ("GET", "/charges"): Handler._find,
    ("POST", "/refunds"): Handler._refund,
    ("GET", "/ledger"): Handler._ledger,
    ("GET", "/in-flight"): Handler._in_flight,
    ("POST", "/release"): Handler._release,
    ("GET", "/faults"): Handler._faults,
    ("POST", "/faults"): Handler._add_fault,
    ("DELETE", "/faults"): Handler._behave,
}
