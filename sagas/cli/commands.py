"""The commands. What they do is in `sagas.operate_commands` and `sagas.serving`; here it is only asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sagas import serving
from sagas.cli.runtime import Runtime, find_runtime
from sagas.desk import StoreDesk
from sagas.errors import SagaError
from sagas.operate_commands import COMMANDS, Argument, Command, Talk

QUEUE = click.option("--queue", multiple=True, help="Serve only this queue; may be repeated.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--app", required=True, envvar="SAGAS_APP", metavar="MODULE:NAME",
    help="Where the runtime object is, such as shop.db:sagas. Also taken from SAGAS_APP.",
)  # fmt: skip
@click.pass_context
def sagas(context: click.Context, app: str) -> None:
    """Run workers and relays of sagas, look at sagas, and repair them.

    A saga is given by its id, or as name:key.
    """
    context.obj = app


@contextmanager
def _desk(app: str) -> Iterator[tuple[Runtime, StoreDesk]]:
    """The runtime and a desk on its store; errors of sagas become the command's last word."""
    desk = None
    try:
        runtime = find_runtime(app)
        desk = StoreDesk(
            runtime.store, command=f"sagas --app {app}", remedy=runtime.remedy,
            definitions_file=runtime.definitions_file,
        )  # fmt: skip
        yield runtime, desk
    except SagaError as problem:
        raise click.ClickException(str(problem)) from problem
    finally:
        if desk is not None:
            desk.close()


def _complain(line: str) -> None:
    click.echo(line, err=True)


def _logged() -> None:
    """Workers and relays say what happens, unless the application has set up logging of its own."""
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@sagas.command()
@QUEUE
@click.option("--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Bodies at once.")
@click.option("--until-idle", is_flag=True, help="End as soon as nothing is due.")
@click.pass_obj
def worker(app: str, queue: tuple[str, ...], concurrency: int, until_idle: bool) -> None:
    """Claim and run sagas in this process, without a broker."""
    _logged()
    with _desk(app) as (runtime, desk):
        desk.check_ready()
        desk.close()
        serving.work(runtime.store, queues=queue, concurrency=concurrency, until_idle=until_idle, say=click.echo)


@sagas.command()
@QUEUE
@click.option("--celery", metavar="MODULE:APP", help="The Celery app, as for celery -A; default: the runtime's.")
@click.pass_obj
def relay(app: str, queue: tuple[str, ...], celery: str | None) -> None:
    """Publish due rows to Celery workers."""
    _logged()
    with _desk(app) as (runtime, desk):
        publisher = runtime.publisher(celery)
        desk.check_ready()
        desk.close()
        serving.relay(runtime.store, publisher, queues=queue, say=click.echo)


def _add(command: Command) -> None:
    """One command of the table that all command lines share."""

    def run(**given: Any) -> None:
        with _desk(click.get_current_context().obj) as (_, desk):
            complaint = command.run(desk, given, Talk(say=click.echo, complain=_complain))
            if complaint:
                raise click.ClickException(complaint)

    parameters = [_parameter(each) for each in command.arguments]
    sagas.add_command(click.Command(command.name, callback=run, params=parameters, help=f"{command.help}."))


def _parameter(argument: Argument) -> click.Parameter:
    if not argument.option:
        return click.Argument([argument.key], type=argument.type, nargs=-1 if argument.many else 1)
    if argument.type is bool:
        return click.Option([argument.name], is_flag=True, help=argument.help)
    return click.Option(
        [argument.name], type=argument.type, multiple=argument.many, required=argument.required, help=argument.help,
        default=() if argument.many else argument.default,
    )  # fmt: skip


for each in COMMANDS:
    _add(each)
