"""Run the bank: `python -m example_project.bank --port 0 --port-file bank.port`."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path

from example_project.bank.http import BankServer
from example_project.bank.ledger import Ledger
from example_project.bank.service import Bank


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    options = _options()
    bank = Bank(Ledger(options.store), key_ttl=options.key_ttl, longest_wait=options.longest_wait)
    with BankServer((options.host, options.port), bank) as server:
        port = server.server_address[1]
        for number in (signal.SIGTERM, signal.SIGINT):
            # shutdown() waits for serve_forever(), which this very thread runs.
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"bank listens on http://{options.host}:{port}", flush=True)
        if options.port_file is not None:
            _write(options.port_file, str(port))
        server.serve_forever(poll_interval=0.1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m example_project.bank", description="A bank that can misbehave.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--port-file", type=Path, help="written with the port once the bank listens")
    parser.add_argument("--store", default=":memory:", help="SQLite file that survives a restart")
    parser.add_argument("--key-ttl", type=float, default=86_400.0, help="seconds idempotency keys are honoured")
    parser.add_argument("--longest-wait", type=float, default=60.0, help="seconds after which a hang or hold ends")
    return parser.parse_args()


def _write(path: Path, text: str) -> None:
    """All of the text or no file, for whoever waits for it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    main()
