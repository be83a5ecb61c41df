"""Peer: DBOS workflows of three datasource steps, each one ORM insert with SQLAlchemy.

Run by the peers' own Python: `dbos_local.py DATABASE_URL COUNT SECONDS`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version

from dbos import DBOS, SQLAlchemyDatasource
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase): ...


class Note(Base):
    __tablename__ = "bench_note"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


def main(url: str, count: int, seconds: float) -> None:
    """Start `count` workflows, fewer if that takes longer than `seconds`, and wait for all of them."""
    sqlalchemy_url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    Base.metadata.create_all(create_engine(sqlalchemy_url))
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    source = SQLAlchemyDatasource.create(sqlalchemy_url)

    @source.transaction(isolation_level="READ COMMITTED")  # as ours; its default, SERIALIZABLE, is slower
    def insert(number: int) -> None:
        source.sql_session().add(Note(text=f"note {number}"))

    @DBOS.workflow()
    def three_inserts(number: int) -> None:
        for _ in range(3):
            insert(number)

    DBOS.launch()
    for number in range(5):  # connections and prepared statements are not what is measured
        DBOS.start_workflow(three_inserts, number).get_result()
    begun = time.monotonic()
    handles = []
    for number in range(count):
        handles.append(DBOS.start_workflow(three_inserts, number))
        if time.monotonic() - begun > seconds:
            break
    for handle in handles:
        handle.get_result()
    took = time.monotonic() - begun
    line = {"name": "dbos.datasource", "count": len(handles), "seconds": took, "per_second": len(handles) / took}
    print(json.dumps({**line, "dbos": version("dbos")}), flush=True)
    os._exit(0)  # its executor threads would hold the process for seconds


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
