"""The engine, the sessions, and the sagas behind them."""

from __future__ import annotations

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from example_project.fastapi_shop.models import Base
from sagas_sqlalchemy import Sagas

LEASE = float(os.environ.get("LEASE", "30"))  # seconds until somebody takes over from a worker that died

engine = create_async_engine(os.environ["DATABASE_URL"])  # postgresql+asyncpg://user:password@localhost/shop
Session = async_sessionmaker(engine, expire_on_commit=False)
sagas = Sagas(
    Session,
    metadata=Base.metadata,
    modules=["example_project.fastapi_shop.sagas"],
    settings={"lease": LEASE, "heartbeat": LEASE / 6},
)
