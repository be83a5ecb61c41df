"""A RabbitMQ of our own, where one is installed: on free ports, in a directory of its own, ended with the test."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from celery import Celery
from kombu import Connection

from sagas.testing.launch import free_port
from sagas.testing.processes import Process, ProcessGroup
from tests.relay.plant import wait_until

SERVER = "lib/rabbitmq_server-*/sbin/rabbitmq-server"  # the one that does not ask for a user of the package
FOLDERS = (Path("/usr/lib/rabbitmq"), Path("/opt/rabbitmq"), Path("/usr/local/lib/rabbitmq"))
READY = 60.0  # seconds; Erlang starts slowly on a busy machine


class Rabbit:
    """A running RabbitMQ.

    Attributes:
        url: for Celery.
        process: the server's.
    """

    def __init__(self, port: int, process: Process) -> None:
        self.port, self.process = port, process
        self.url = f"amqp://guest:guest@127.0.0.1:{port}//"

    def depth(self, queue: str) -> int:
        """How many messages wait in a queue."""
        with closing(Connection(self.url)) as connection:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)


def find() -> tuple[Path, Path]:
    """The server's program, and Erlang's port mapper.

    Raises:
        pytest.skip.Exception: there is none on this machine.
    """
    mapper = shutil.which("epmd")
    found = [path for folder in FOLDERS for path in sorted(folder.glob(SERVER))]
    if not found or mapper is None:
        pytest.skip("NOT RUN: no RabbitMQ on this machine (apt-get install rabbitmq-server)")
    return found[-1], Path(mapper)


@contextmanager
def rabbitmq(directory: Path) -> Iterator[Rabbit]:
    """Start one, and end it with the block."""
    server, mapper = find()
    port, between, mapping = free_port(), free_port(), free_port()
    told = {
        "HOME": str(directory), "ERL_EPMD_PORT": str(mapping), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"sagas{port}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(between), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"), "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }  # fmt: skip
    (directory / "plugins").write_text("[].\n")
    with ProcessGroup(directory) as processes:
        processes.start([mapper, "-port", str(mapping)], name="epmd", env=told)
        wait_until(lambda: _listens(mapping), "Erlang's port mapper", READY)
        process = processes.start([server], name="rabbitmq", env=told)

        def ready() -> bool:
            if process.poll() is not None:
                raise process.failure("RabbitMQ ended instead of serving")
            return _answers(port)

        wait_until(ready, "RabbitMQ", READY)
        yield Rabbit(port, process)


def _listens(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.settimeout(1)
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    app = Celery("probe", broker=f"amqp://guest:guest@127.0.0.1:{port}//", set_as_current=False)
    try:
        with app.connection_for_write(connect_timeout=1) as connection:
            connection.connect()
            return True
    except Exception:
        return False
    finally:
        app.close()


__all__ = ["Rabbit", "rabbitmq"]
