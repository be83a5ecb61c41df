"""The shop's settings with waits short enough to watch. The summary shows every value that differs."""

from __future__ import annotations

from typing import Any

from example_project import settings as shop
from example_project.settings import *  # noqa: F403
from sagas.settings import Settings
from sagas.testing.faults import install_from_environment

BANK_TIMEOUT = 4.0
CHARGE_SETTLE_AFTER = 2.0

SAGAS = {**shop.SAGAS, "LEASE": 3.0, "HEARTBEAT": 0.5, "POLL": 0.5, "PUBLISH_WINDOW": 2.0}

install_from_environment()  # the relay that is to die stops where SAGAS_FAULT says


def shortened() -> list[str]:
    """Each value in which the demo differs from the shop, and what it is there."""
    there: dict[str, Any] = {field.upper(): value for field, value in _defaults().items()} | shop.SAGAS
    ours = {f"SAGAS[{name!r}]": (value, there[name]) for name, value in SAGAS.items() if value != there[name]}
    ours |= {
        name: (value, getattr(shop, name, None))
        for name, value in globals().items()
        if name.isupper() and name != "SAGAS" and value != getattr(shop, name, None)
    }
    return [f"{name} = {value} s (shop: {normal} s)" for name, (value, normal) in ours.items()]


def _defaults() -> dict[str, Any]:
    return {name: getattr(Settings(), name) for name in Settings.__dataclass_fields__}
