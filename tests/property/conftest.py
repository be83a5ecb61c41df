"""Fixtures of the property tests that need a database."""

from tests.integration.conftest import other_database, quiet, shop, shop_url, world

__all__ = ["other_database", "quiet", "shop", "shop_url", "world"]
