"""`python -m tests.security.within MODULE ...`: runs a module that starts processes, each of which has its role."""

from __future__ import annotations

import runpy
import sys

from sagas.testing.processes import ProcessGroup
from tests.security.children import start_as
from tests.security.users import seen

if __name__ == "__main__":
    ProcessGroup.start = start_as(ProcessGroup.start)  # type: ignore[method-assign]
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    finally:
        if not seen:
            sys.exit("no process has taken on a role")
