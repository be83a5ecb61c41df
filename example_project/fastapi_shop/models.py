"""What the shop keeps, and the tables of sagas beside it."""

from __future__ import annotations

import uuid
from decimal import Decimal
from uuid import UUID

from sqlalchemy import Numeric
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sagas_sqlalchemy import HasSagas, sagas_tables


class Base(AsyncAttrs, DeclarativeBase):
    """The shop's tables."""


sagas_tables(Base.metadata)


class Order(HasSagas, Base):
    """What a customer ordered."""

    __tablename__ = "orders"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    item: Mapped[str]
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    status: Mapped[str] = mapped_column(default="placed")  # then accepted, and shipped or cancelled
