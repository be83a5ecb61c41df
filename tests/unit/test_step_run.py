"""What the worker tells a body about the steps of its saga."""

from __future__ import annotations

from uuid import uuid4

from sagas import COMPENSATE, Saga, Unknown, external_step
from sagas.body import Body
from sagas.events import Attempt, Direction
from sagas.keys import idempotency_key
from sagas.states import State, Status
from sagas.store.rows import Delivery


class Pay(Saga[int], name="test.step_run.pay", version=1):
    """Take money; undo it by the key it was asked for under."""

    @external_step(on_unknown=COMPENSATE)
    def charge(self) -> str:
        return self.idempotency_key

    @charge.compensate
    def void(self, charge: str | Unknown) -> None: ...


def test_the_key_of_the_step_itself_is_known_while_it_is_undone() -> None:
    """A compensation has a key of its own, and can still name the key of what it undoes."""
    delivery = Delivery(
        id=1, token=1, kind="step", queue="default", saga_id=uuid4(), name="test.step_run.pay", version=1, key="k",
        state=State(Status.COMPENSATING, 3), attempt=Attempt(step="charge", direction=Direction.UNDO),
    )  # fmt: skip
    assert delivery.attempt is not None
    body = Body(delivery=delivery, definition=Pay, attempt_event=delivery.attempt, limit=1000)
    body.idempotency_key = idempotency_key(delivery.saga_id, "charge", "undo")
    run = Pay._for_run(body)
    assert run.charge.idempotency_key == idempotency_key(delivery.saga_id, "charge", "do")
    assert run.charge.idempotency_key != run.idempotency_key
