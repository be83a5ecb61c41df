"""Makes the tables, for a trial. An application has a migration for that: see docs/sqlalchemy.md."""

from __future__ import annotations

import asyncio

from example_project.fastapi_shop.db import engine
from example_project.fastapi_shop.models import Base


async def create() -> None:
    """Make what is not there yet: the shop's tables, and those of sagas with their functions."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(create())
