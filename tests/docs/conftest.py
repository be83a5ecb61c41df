"""Fixtures of the tests that run the documentation."""

from __future__ import annotations

from tests.integration.conftest import quiet, shop, shop_url, time_machine, world

__all__ = ["quiet", "shop", "shop_url", "time_machine", "world"]
