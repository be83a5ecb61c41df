"""Which problems of a client of Redis are the server's, and not a message's: it is not there, or takes no writes.

Clients have classes for some of its answers only, and other versions for others, so its own words are read too.
"""

from __future__ import annotations

import re
from typing import Final

CLASSES: Final = frozenset((
    "ConnectionError", "TimeoutError", "BusyLoadingError", "ReadOnlyError", "ClusterDownError", "OutOfMemoryError",
    "TryAgainError",
))  # fmt: skip
CODES: Final = frozenset((
    "OOM", "MISCONF", "NOREPLICAS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY",
    "UNKILLABLE",
))  # fmt: skip
AROUND: Final = re.compile(r"caused error: |because of: ")  # what a pipeline and a transaction say in front of it


def takes_no_writes(problem: BaseException | None) -> bool:
    """Whether a server cannot be reached or takes no writes now, whatever the message."""
    if problem is None:
        return False
    code = AROUND.split(str(problem))[-1].partition(" ")[0]
    return code in CODES or any(each.__name__ in CLASSES for each in type(problem).__mro__)
