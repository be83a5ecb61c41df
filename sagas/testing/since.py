"""When the present test began: sagas that were committed before are somebody else's, and the kit leaves them alone."""

from __future__ import annotations

import time

_began = time.time()  # of this import, until a test says that it begins


def begin() -> None:
    """A test begins now."""
    global _began
    _began = time.time()


def began() -> float:
    """When the present test began, or this process came to know of tests: seconds since 1970, by this host's clock."""
    return _began
