"""A saga with children is explored at its own steps; its children run like workers run them, and are undone with it."""

from __future__ import annotations

import pytest

from sagas import Saga, child_saga, external_step
from sagas.testing import explore
from sagas_django.models import SagaRow
from tests.explore.bank import world
from tests.explore.right import ORDER, THRICE, Ordered

pytestmark = pytest.mark.django_db


class Kid(Saga[Ordered], name="explore.kid", version=1):
    """The child."""

    @external_step(retry=THRICE)
    def act(self) -> int:
        return self.input.number

    @act.compensate(retry=THRICE)
    def back(self, result: int) -> None: ...


class Parent(Saga[Ordered], name="explore.parent", version=1):
    """Starts it, then does something."""

    kid = child_saga(Kid, input=lambda self: self.input, result=Kid.act)

    @external_step(retry=THRICE, compensate=None)
    def after(self) -> int:
        return self.kid.result


def test_children_end_as_their_parent_does() -> None:
    """In every story."""

    def together(run: object) -> None:
        ends = set(SagaRow.objects.exclude(name="explore.parent").values_list("status", flat=True))
        parent = SagaRow.objects.get(name="explore.parent").status
        assert parent != "completed" or ends == {"completed"}
        assert parent != "compensated" or not ends & {"completed", "running"}

    found = explore(Parent, ORDER, invariant=together, reset=world.reset)
    assert len(found.stories) > 3
