"""The bank as its auditors see it: script faults, watch, read the ledger; over HTTP like everything else."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sagas.testing.processes import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]


def open_bank(processes: ProcessGroup, *options: str) -> Desk:
    """Start a bank process and wait until it serves.

    Args:
        processes: where the bank is kept; it ends with them.
        options: of `python -m example_project.bank`.
    """
    process = processes.python("-m", "example_project.bank", *options, name="bank", cwd=ROOT)
    said = process.wait_for_output("\n", timeout=15)
    return Desk(said.split()[-1])


class Desk:
    """Talks to one bank.

    Args:
        url: where it listens.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = urlsplit(url).netloc

    def call(
        self, method: str, path: str, body: object = None, *, key: str | None = None, timeout: float = 30
    ) -> tuple[int, dict[str, Any]]:
        """One request on a connection of its own.

        Returns:
            Status and body of the answer.

        Raises:
            OSError, http.client.HTTPException: there was no answer.
        """
        connection = http.client.HTTPConnection(self._address, timeout=timeout)
        headers = {"Connection": "close"} | ({"Idempotency-Key": key} if key else {})
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def script(self, *faults: dict[str, Any]) -> None:
        """Append faults to the script.

        Raises:
            ValueError: the bank does not know such a fault.
        """
        status, body = self.call("POST", "/faults", {"faults": list(faults)})
        if status != 201:
            raise ValueError(f"the bank does not accept these faults: {body['error']}")

    def faults(self) -> list[dict[str, Any]]:
        """The script, with what each fault struck."""
        return list(self.call("GET", "/faults")[1]["faults"])

    def behave(self) -> None:
        """Drop the script and release what waits."""
        self.call("DELETE", "/faults")

    def in_flight(self) -> list[dict[str, Any]]:
        """What is being processed now, in order of arrival."""
        return list(self.call("GET", "/in-flight")[1]["in_flight"])

    def release(self, **which: Any) -> list[int]:
        """Let go what waits: `arrival=`, `order=`, or everything; returns arrival numbers."""
        return list(self.call("POST", "/release", which)[1]["released"])

    def ledger(self) -> dict[str, Any]:
        """Balances, entries, keys, duplicates."""
        return self.call("GET", "/ledger")[1]
