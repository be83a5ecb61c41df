"""`manage.py sagas ...`: run workers and relays, look at sagas, repair them."""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from sagas.errors import SagaError
from sagas_django import operate
from sagas_django.store import DjangoStore


class Command(BaseCommand):
    help = "Runs workers and relays of sagas, shows sagas, and repairs them."
    requires_system_checks = ("sagas",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, metavar="command")

        def command(name: str, help: str) -> ArgumentParser:
            added: ArgumentParser = commands.add_parser(name, help=help)
            added.add_argument("--database", default=DEFAULT_DB_ALIAS, help="alias of the database (default: default)")
            return added

        worker = command("worker", "claim and run sagas in this process, without a broker")
        worker.add_argument("--queue", action="append", default=[], help="serve only this queue; may be repeated")
        worker.add_argument("--concurrency", type=int, default=8, help="bodies at the same time (default: 8)")
        worker.add_argument("--until-idle", action="store_true", help="end as soon as nothing is due")
        relay = command("relay", "publish due rows to Celery workers")
        relay.add_argument("--queue", action="append", default=[], help="serve only this queue; may be repeated")
        relay.add_argument("--app", help="the Celery app, as for celery -A; default: the one the project has set")
        listing = command("list", "list sagas, newest first")
        listing.add_argument("--status", action="append", default=[])
        listing.add_argument("--name")
        listing.add_argument("--limit", type=int, default=50)
        command("show", "one saga: its steps and its log").add_argument("saga", help="id, or name:key")
        for name, help in (
            ("cancel", "ask for a saga to be undone"),
            ("retry", "resume a parked saga, or make a waiting one due now"),
            ("abort", "close a parked saga as it is"),
        ):
            asking = command(name, help)
            asking.add_argument("saga", help="id, or name:key")
            asking.add_argument("--reason", required=True, help="stored in the saga's log")
        verify = command("verify", "fold every log and compare it with the saga rows")
        verify.add_argument("saga", nargs="*", help="id, or name:key; default: all")

        rebuild = command("rebuild", "make saga and outbox rows again from the log, after they were lost")
        rebuild.add_argument("saga", nargs="*", help="id, or name:key; default: every saga whose rows disagree")

    def handle(self, *args: Any, command: str, **options: Any) -> None:
        try:
            getattr(self, f"_{command}")(**options)
        except SagaError as problem:
            raise CommandError(str(problem)) from problem

    def _worker(self, *, database: str, queue: list[str], concurrency: int, until_idle: bool, **_: Any) -> None:
        from sagas.embedded import Embedded

        if concurrency < 1:
            raise CommandError(f"--concurrency {concurrency}: at least 1")
        operate.check_ready(database)
        worker = Embedded(DjangoStore(database), queues=queue, concurrency=concurrency)
        signal.signal(signal.SIGTERM, worker.stop)
        signal.signal(signal.SIGINT, worker.stop)
        self.stdout.write(f"worker {worker.worker.holder} serves {', '.join(queue) or 'all queues'} of {database!r}")
        self.stdout.flush()
        worker.run(until_idle=until_idle)

    def _relay(self, *, database: str, queue: list[str], app: str | None, **_: Any) -> None:
        from sagas.pace import shared_paces
        from sagas_celery.app import celery_app
        from sagas_celery.publisher import CeleryPublisher
        from sagas_outbox.relay import Relay

        operate.check_ready(database)
        store = DjangoStore(database)
        publisher = CeleryPublisher(celery_app(app), database, timeout=store.settings.publish_timeout)
        relay = Relay(store.connect, publisher, store.settings, queues=queue, paces=shared_paces)
        signal.signal(signal.SIGTERM, relay.stop)
        signal.signal(signal.SIGINT, relay.stop)
        self.stdout.write(f"relay {relay.holder} serves {', '.join(queue) or 'all queues'} of {database!r}")
        self.stdout.flush()
        relay.run()

    def _list(self, *, database: str, status: list[str], name: str | None, limit: int, **_: Any) -> None:
        for line in operate.listing(database, statuses=status, name=name, limit=limit):
            self.stdout.write(line)

    def _show(self, *, database: str, saga: str, **_: Any) -> None:
        for line in operate.description(database, saga):
            self.stdout.write(line)

    def _cancel(self, **options: Any) -> None:
        self._ask("cancel", **options)

    def _retry(self, **options: Any) -> None:
        self._ask("retry", **options)

    def _abort(self, **options: Any) -> None:
        self._ask("abort", **options)

    def _ask(self, kind: str, *, database: str, saga: str, reason: str, **_: Any) -> None:
        found = operate.ask(database, saga, kind, reason)
        self.stdout.write(
            f"{kind} of saga {found.name} {found.id} (was {found.status}) is in the outbox of {database!r}"
        )

    def _rebuild(self, *, database: str, saga: list[str], **_: Any) -> None:
        changed, problems = operate.rebuilding(database, saga, self.stdout.write, self.stderr.write)
        self.stdout.write(f"{changed} sagas rebuilt, {problems} problems")
        if problems:
            raise CommandError(f"{problems} sagas could not be rebuilt, listed above; nothing of them was changed")

    def _verify(self, *, database: str, saga: list[str], **_: Any) -> None:
        seen, problems = operate.verification(database, saga, self.stderr.write)
        self.stdout.write(f"{seen} sagas verified, {problems} problems")
        if problems:
            raise CommandError(f"{problems} problems, listed above; the log is the truth")
