"""When the present test began: sagas that were committed before are somebody else's, and the kit leaves them alone."""

from __future__ import annotations

from uuid import UUID

import uuid_utils

NODE = (1 << 76) - 1  # what in an id of version 7 is not its time, but for the version


def _now() -> UUID:
    """No id of a saga that is started from now on is below, whatever the clock says that a test may have moved."""
    return UUID(int=uuid_utils.uuid7().int & ~NODE)


_began = _now()  # of this import, until a test says that it begins


def begin() -> None:
    """A test begins now."""
    global _began
    _began = _now()


def began() -> UUID:
    """When the present test began, or this process came to know of tests, as an id of version 7."""
    return _began
