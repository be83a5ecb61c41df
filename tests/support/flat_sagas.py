"""Models and a saga for `tests.support.flat`: two local steps that write and read, and an external one between."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sagas import Saga, external_step, step
from sagas_sqlalchemy import HasSagas, sagas_tables


class Base(DeclarativeBase):
    pass


sagas_tables(Base.metadata)


class Note(HasSagas, Base):
    """What is written."""

    __tablename__ = "flat_note"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


@dataclass(frozen=True)
class Noted:
    """The input."""

    note: int
    number: int


class Flat(Saga[Noted], name="flat.flat", version=1):
    """Local, external, local."""

    @step(compensate=None)
    def first(self) -> int:
        mine = Note(text="first")
        self.session.add(mine)
        self.session.flush()
        found: int = mine.id
        return found

    @external_step(compensate=None)
    def second(self) -> str:
        return f"second {self.input.number}"

    @step(compensate=None)
    def third(self) -> None:
        self.session.get_one(Note, self.input.note).text = f"third after {self.second.result}"
