"""Our side under SQLAlchemy: three local steps, each one ORM insert, in a schema of its own beside Django's tables.

`python -m tests.benchmarks.alchemy COUNT SECONDS` measures one backlog with one worker.
"""

from __future__ import annotations

import os
import sys
import time
from uuid import uuid4

from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from sagas import Saga, step
from sagas.testing.processes import Process, ProcessGroup
from sagas_sqlalchemy import Sagas
from tests.benchmarks.report import Measurement
from tests.benchmarks.scripts import ROOT, NotRun

UNTOUCHED = """select exists (select from sagas_outbox)
    and not exists (select from sagas_outbox where deliveries > 0)"""
WORKER = (sys.executable, "-m", "sagas.cli", "--app", "tests.benchmarks.alchemy:sagas", "worker")
URL = os.environ["ALCHEMY_URL"].replace("postgresql://", "postgresql+psycopg://", 1)


class Base(DeclarativeBase):
    """The application's tables."""


class Note(Base):
    """What a step inserts."""

    __tablename__ = "bench_note"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


engine = create_engine(URL)
Session = sessionmaker(engine, expire_on_commit=False)
sagas = Sagas(Session, metadata=Base.metadata, modules=["tests.benchmarks.alchemy"])


class Inserts(Saga[int], name="bench.alchemy", version=1):
    """Three local steps."""

    @step(compensate=None)
    def first(self) -> None:
        """Insert a line."""
        self.session.add(Note(text=f"note {self.input}"))

    @step(compensate=None)
    def second(self) -> None:
        """Insert a line."""
        self.session.add(Note(text=f"note {self.input}"))

    @step(pivot=True)
    def third(self) -> None:
        """Insert a line."""
        self.session.add(Note(text=f"note {self.input}"))


def asked(query: str) -> bool:
    """Ask the database a yes-or-no question."""
    with engine.connect() as connection:
        return bool(connection.execute(text(query)).scalar())


def wait_until_not(query: str, process: Process, *, every: float, seconds: float) -> None:
    """Look every so many seconds, as long as the process lives.

    Raises:
        NotRun: it ended, or the time was up.
    """
    end = time.monotonic() + seconds
    while asked(query):
        if process.poll() is not None or time.monotonic() > end:
            raise NotRun(str(process.failure("ended, or was not done in time")))
        time.sleep(every)


def main(count: int, seconds: float) -> None:
    """Measure one backlog."""
    Base.metadata.create_all(engine)
    prefix, begun = uuid4(), time.monotonic()
    for first in range(0, count, 100):
        with Session.begin() as session:
            for number in range(first, min(first + 100, count)):
                Inserts.start(number, key=f"{prefix}-{number}", using=session)
    starting = time.monotonic() - begun
    with ProcessGroup() as group:
        worker = group.start(WORKER, cwd=ROOT)
        wait_until_not(UNTOUCHED, worker, every=0.002, seconds=seconds)
        begun = time.monotonic()
        wait_until_not("select exists (select from sagas_outbox)", worker, every=0.01, seconds=seconds)
        took = time.monotonic() - begun
        worker.kill()
    done = f"select count(*) = {count} from sagas_saga where key like '{prefix}-%' and status = 'completed'"
    if not asked(done):
        raise NotRun("ours.alchemy: not all sagas were completed")
    notes = {"start_seconds": round(starting, 3)}
    print(Measurement(name="ours.alchemy", count=count, seconds=took, notes=notes).line())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
