"""The commands. What they do is in `sagas.operate_commands` and `sagas.serving`; here it is only asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sagas import plugging, serving, typed
from sagas.cli.bars import bar
from sagas.cli.init import init as look_over
from sagas.cli.runtime import Runtime, find_runtime, store_of
from sagas.commanding import JSON, Argument, Command, carry_out, visible
from sagas.desk import StoreDesk
from sagas.errors import SagaError
from sagas.operate_commands import COMMANDS
from sagas.rights import OPERATOR, RELAY, WORKER, explained

QUEUE = click.option("--queue", multiple=True, help="Serve only this queue; may be repeated.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--app", envvar="SAGAS_APP", metavar="MODULE:NAME",
    help="Where the runtime object is, such as shop.db:sagas. Also taken from SAGAS_APP.",
)  # fmt: skip
@click.pass_context
def sagas(context: click.Context, app: str | None) -> None:
    """Run workers and relays of sagas, look at sagas, and repair them.

    A saga is given by its id, or as name:key.
    """
    context.obj = app


@contextmanager
def _desk(app: str | None) -> Iterator[tuple[Runtime, StoreDesk]]:
    """The runtime and a desk on its store; errors of sagas become the command's last word."""
    if app is None:
        raise click.UsageError(
            "Missing option '--app': where the runtime object is, such as --app shop.db:sagas, or SAGAS_APP in the "
            "environment. A Django project has `manage.py sagas` instead; `sagas init` helps to set either up."
        )
    desk, before = None, typed.begin_with(f"sagas --app {app}")
    try:
        runtime = find_runtime(app)
        desk = StoreDesk(
            store_of(runtime, app), command=f"sagas --app {app}", remedy=runtime.remedy,
            definitions_file=runtime.definitions_file, problems=runtime.problems,
        )  # fmt: skip
        yield runtime, desk
    except SagaError as problem:
        raise click.ClickException(visible(str(problem))) from problem
    finally:
        typed.begin_with(before)
        if desk is not None:
            desk.close()


def _complain(line: str) -> None:
    click.echo(line, err=True)


def _logged() -> None:
    """Workers and relays say what happens, unless the application has set up logging of its own."""
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@sagas.command()
@click.option("--write", is_flag=True, help="Add what is missing to the files; nothing that is there is changed.")
@click.option("--celery", is_flag=True, help="Sagas are to run on Celery (Django).")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@click.pass_obj
def init(app: str | None, write: bool, celery: bool, as_json: bool) -> None:
    """Look over the project in this folder: what is set up, and the lines that are missing.

    Needs no --app, and works for Django projects too.
    """
    try:
        found = look_over(app, celery=celery)
        if as_json:
            if not plugging.tell_programs(found, write=write, say=click.echo):
                raise click.exceptions.Exit(1)
            return
        complaint = plugging.last_word(plugging.tell(found, write=write, say=click.echo))
    except SagaError as problem:
        raise click.ClickException(str(problem)) from problem
    if complaint:
        raise click.ClickException(complaint)


@sagas.command()
@QUEUE
@click.option("--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Bodies at once.")
@click.option("--until-idle", is_flag=True, help="End when nothing is due now, whatever is due later.")
@click.pass_obj
def worker(app: str | None, queue: tuple[str, ...], concurrency: int, until_idle: bool) -> None:
    """Claim and run sagas in this process, without a broker."""
    _logged()
    with _desk(app) as (runtime, desk):
        runtime.check(desk.command)
        with explained(desk, WORKER):
            desk.check_ready()
            desk.close()
            serving.work(runtime.store, queues=queue, concurrency=concurrency, until_idle=until_idle, say=click.echo)


@sagas.command()
@QUEUE
@click.option("--celery", metavar="MODULE:APP", help="The Celery app, as for celery -A; default: the runtime's.")
@click.pass_obj
def relay(app: str | None, queue: tuple[str, ...], celery: str | None) -> None:
    """Publish due rows to Celery workers."""
    _logged()
    with _desk(app) as (runtime, desk):
        publisher = runtime.publisher(celery)
        runtime.check(desk.command)
        with explained(desk, RELAY):
            desk.check_ready()
            desk.close()
            serving.relay(runtime.store, publisher, queues=queue, say=click.echo)


@sagas.command()
@click.option("--port", type=click.IntRange(min=0), default=9108, show_default=True, help="Where to listen.")
@click.option("--address", default="0.0.0.0", show_default=True, help="On which address.")
@click.pass_obj
def metrics(app: str | None, port: int, address: str) -> None:
    """Answer Prometheus, with metrics read from the database."""
    _logged()
    with _desk(app) as (runtime, desk):
        with explained(desk, OPERATOR):
            desk.check_ready()
        desk.close()
        serving.metrics(runtime.store, port=port, address=address, say=click.echo)


def _add(command: Command) -> None:
    """One command of the table that all command lines share."""

    def run(**given: Any) -> None:
        with _desk(click.get_current_context().obj) as (_, desk):
            ending = carry_out(command, lambda: desk, given, say=click.echo, complain=_complain, bar=bar)
        if ending is not None and ending.written:
            raise click.exceptions.Exit(1)
        if ending is not None:
            raise click.ClickException(ending.message)

    parameters = [_parameter(each) for each in (*command.arguments, JSON)]
    for name in (command.name, *command.also):
        hidden = name != command.name
        sagas.add_command(
            click.Command(name, callback=run, params=parameters, help=f"{command.help}.", hidden=hidden)
        )  # fmt: skip


def _parameter(argument: Argument) -> click.Parameter:
    if not argument.option:
        return click.Argument([argument.key], type=argument.type, nargs=-1 if argument.many else 1)
    if argument.type is bool:
        return click.Option([argument.name], is_flag=True, help=argument.help)
    default: Any = () if argument.many else argument.default
    given = {} if argument.required or default is None else {"default": default}  # click takes None for a value given
    return click.Option(
        [argument.name], type=argument.type, multiple=argument.many, required=argument.required, help=argument.help,
        **given,
    )  # fmt: skip


for each in COMMANDS:
    _add(each)
