"""Immutable values that are cheap to hash, to compare and to change a field of."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec.structs import replace


class Value(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A frozen record."""

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return replace(self, **changes)
