"""What any integration has to keep, as pytest tests that it runs against itself.

    from sagas.testing.conformance import CallerSuite, Integration, Unit, WorkerSuite

    class TestCallers(CallerSuite):
        @pytest.fixture
        def integration(self) -> Iterator[Integration]:
            yield MyIntegration(url)

`CallerSuite` is about where sagas are started, `WorkerSuite` about local steps and workers. pytest collects what a
subclass called `Test...` inherits. docs/conformance.md says what an adapter has to offer.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in (
    "base", "bodies", "connections", "crashes", "families",
    "keys", "locks", "outside", "requests", "sending", "starting", "waking",
)))  # fmt: skip

from sagas.testing.conformance.adapter import Integration, Unit  # noqa: E402
from sagas.testing.conformance.bodies import BodySuite  # noqa: E402
from sagas.testing.conformance.connections import ConnectionSuite  # noqa: E402
from sagas.testing.conformance.crashes import CrashSuite  # noqa: E402
from sagas.testing.conformance.families import FamilySuite  # noqa: E402
from sagas.testing.conformance.keys import KeySuite  # noqa: E402
from sagas.testing.conformance.locks import LockSuite  # noqa: E402
from sagas.testing.conformance.requests import RequestSuite  # noqa: E402
from sagas.testing.conformance.sending import SendSuite  # noqa: E402
from sagas.testing.conformance.starting import StartSuite  # noqa: E402
from sagas.testing.conformance.waking import WakeSuite  # noqa: E402


class CallerSuite(StartSuite, KeySuite, SendSuite, RequestSuite, WakeSuite):
    """Everything about `start`, `get`, `send` and `cancel` on somebody's session or connection."""


class WorkerSuite(BodySuite, CrashSuite, LockSuite, FamilySuite, ConnectionSuite):
    """Everything about local steps, external steps, semantic locks, children and the connections of workers."""


__all__ = ["CallerSuite", "Integration", "Unit", "WorkerSuite"]
