"""All that is checked, and all that is taken away to see whether that would be noticed."""

from __future__ import annotations

from typing import Final

from tests.modelcheck import mutations_guard, sagas
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.mutations_waits import OF_WAITS
from tests.modelcheck.sagas_beside import OF_BESIDE, beside
from tests.modelcheck.sagas_family import OF_FAMILY, family
from tests.modelcheck.sagas_locks import OF_LOCKS, locking
from tests.modelcheck.sagas_resolved import OF_RESOLVED, resolved
from tests.modelcheck.sagas_waits import waiting
from tests.modelcheck.scenario import Scenario

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *mutations_guard.MUTATIONS,
    *OF_WAITS,
    *OF_BESIDE,
    *OF_LOCKS,
    *OF_RESOLVED,
    *OF_FAMILY,
)


def scenarios() -> tuple[Scenario, ...]:
    """What is checked in every test run: in each world at most so many faults in one run."""
    return (*sagas.scenarios(), *waiting(), *beside(), *locking(), *resolved(), *family())
