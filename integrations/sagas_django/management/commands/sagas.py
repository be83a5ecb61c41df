"""`manage.py sagas ...`: run workers and relays, look at sagas, repair them."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from sagas import plugging, serving
from sagas.cli.bars import bar
from sagas.commanding import JSON, Argument, carry_out, visible
from sagas.errors import SagaError
from sagas.operate_commands import COMMANDS
from sagas.rights import WORKER, explained
from sagas_django.checks import insist_on_celery
from sagas_django.conf import publishers
from sagas_django.operate import DjangoDesk
from sagas_django.plugging import look
from sagas_django.store import DjangoStore

SERVING = ("worker", "relay", "metrics")  # what runs; everything else only looks, or asks


class Command(BaseCommand):
    help = "Runs workers and relays of sagas, shows sagas, and repairs them."
    requires_system_checks = ("sagas",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, metavar="command")

        def command(name: str, help: str, also: tuple[str, ...] = ()) -> ArgumentParser:
            added: ArgumentParser = commands.add_parser(name, help=help, aliases=also)
            added.add_argument("--database", default=DEFAULT_DB_ALIAS, help="alias of the database (default: default)")
            return added

        worker = command("worker", "claim and run sagas in this process, without a broker")
        worker.add_argument("--queue", action="append", default=[], help="serve only this queue; may be repeated")
        worker.add_argument("--concurrency", type=int, default=8, help="bodies at the same time (default: 8)")
        worker.add_argument(
            "--until-idle", action="store_true", help="end when nothing is due now, whatever is due later"
        )
        relay = command("relay", "publish due rows to Celery workers")
        relay.add_argument("--queue", action="append", default=[], help="serve only this queue; may be repeated")
        relay.add_argument("--app", help="the Celery app, as for celery -A; default: the one the project has set")
        init = command("init", "look over this project: what is set up, and the lines that are missing")
        init.add_argument("--write", action="store_true", help="add what is missing to the files")
        init.add_argument("--celery", action="store_true", help="sagas are to run on Celery")
        init.add_argument("--json", action="store_true", help="write JSON, for programs")
        metrics = command("metrics", "answer Prometheus, with metrics read from the database")
        metrics.add_argument("--port", type=int, default=9108, help="where to listen (default: 9108)")
        metrics.add_argument("--address", default="0.0.0.0", help="on which address (default: 0.0.0.0)")
        for each in COMMANDS:
            parser_of = command(each.name, each.help, each.also)
            for argument in (*each.arguments, JSON):
                _add(parser_of, argument)

    def execute(self, *args: Any, **options: Any) -> Any:
        if options.get("command") not in SERVING:  # one has to be able to look at what a check complains about
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Look into the database that is served: left out, it would be none, and from Django 6.1 on all of them."""
        return {"tags": self.requires_system_checks, "databases": [options["database"]]}

    def handle(self, *args: Any, command: str, **options: Any) -> None:
        try:
            if command in (*SERVING, "init"):
                getattr(self, f"_{command}")(**options)
            else:
                self._operate(command, options)
        except SagaError as problem:
            raise CommandError(visible(str(problem))) from problem

    def _operate(self, name: str, options: dict[str, Any]) -> None:
        """One command of the table that all command lines share."""
        (command,) = [each for each in COMMANDS if name in (each.name, *each.also)]
        try:
            ending = carry_out(
                command, lambda: DjangoDesk(options["database"]), options, say=self._say, complain=self.stderr.write,
                bar=bar,
            )  # fmt: skip
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
            sys.exit(1)
        if ending is not None and ending.written:
            sys.exit(1)
        if ending is not None:
            raise CommandError(ending.message)

    def _worker(self, *, database: str, queue: list[str], concurrency: int, until_idle: bool, **_: Any) -> None:
        desk = DjangoDesk(database)
        desk.check_ready()
        with explained(desk, WORKER):
            serving.work(
                DjangoStore(database), queues=queue, concurrency=concurrency, until_idle=until_idle, say=self._say
            )  # fmt: skip

    def _relay(self, *, database: str, queue: list[str], app: str | None, **_: Any) -> None:
        from sagas_celery.app import celery_app
        from sagas_celery.publisher import CeleryPublisher

        DjangoDesk(database).check_ready()
        store = DjangoStore(database)
        found = celery_app(app)
        insist_on_celery(found)
        publisher = CeleryPublisher(
            found, database, timeout=store.settings.publish_timeout, publishers=publishers()
        )  # fmt: skip
        serving.relay(store, publisher, queues=queue, say=self._say)

    def _metrics(self, *, database: str, port: int, address: str, **_: Any) -> None:
        DjangoDesk(database).check_ready()
        serving.metrics(DjangoStore(database), port=port, address=address, say=self._say)

    def _init(self, *, write: bool, celery: bool, json: bool, **_: Any) -> None:
        found = look(Path.cwd(), celery=celery)
        if json:
            if not plugging.tell_programs(found, write=write, say=self._say):
                sys.exit(1)
            return
        complaint = plugging.last_word(plugging.tell(found, write=write, say=self._say))
        if complaint:
            raise CommandError(complaint)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _add(parser: ArgumentParser, argument: Argument) -> None:
    if argument.type is bool:
        parser.add_argument(argument.name, action="store_true", help=argument.help)
    elif argument.many and argument.option:
        parser.add_argument(argument.name, action="append", default=[], help=argument.help)
    elif argument.many:
        parser.add_argument(argument.name, nargs="*", help=argument.help)
    elif argument.option:
        parser.add_argument(
            argument.name, type=argument.type, required=argument.required, default=argument.default, help=argument.help
        )
    else:
        parser.add_argument(argument.name, type=argument.type, help=argument.help)
