"""`sagas --app module:runtime ...`: workers, relays and operators' commands where no framework has a command line."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    try:
        from sagas.cli.commands import sagas
    except ModuleNotFoundError as problem:
        if problem.name != "click":
            raise
        raise SystemExit("sagas: the command line needs click: pip install 'outbox-sagas[cli]'") from None
    sagas()
