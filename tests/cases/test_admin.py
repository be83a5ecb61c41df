"""Incidents of operators and what they were shown."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client

from sagas import engine
from sagas.sensitive import MASK
from sagas.states import Status
from sagas_celery.publisher import message
from sagas_django.models import OutboxRow
from tests.shop.payloads import Order as Payment
from tests.shop.payloads import Vaulted
from tests.shop.sagas import Everything, Kinds, Trip
from tests.shop.world import World
from tests.support.stories import Aside, begin, drain, entries, log_of, outbox
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")
PAN = "4111111111111111"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def admin() -> Iterator[Client]:
    """A superuser's browser."""
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def test_ad02_a_request_made_twice_acts_once(world: World) -> None:
    """Two retries at the same moment, and one from a stale page after the saga moved on: the parked step begins once
    more, the others are logged as ignored, and a completed step is never begun again.

    From the command line; the admin's forms also carry a nonce, see `tests/integration/test_admin_actions.py`.
    """
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip)
    drain()
    assert Trip.get(key="a").status == Status.PARKED

    def retry() -> None:
        call_command("sagas", "retry", "test.trip:a", reason="the bank is back")

    for each in [Aside(retry), Aside(retry)]:
        each.join()
    assert OutboxRow.objects.filter(saga_id=run.id, kind="retry").count() == 2
    run_together()
    assert [(row.kind, row.step) for row in outbox(run)] == [("step", "charge")]
    drain()
    assert (Trip.get(key="a").status, len(world.of("charge"))) == (Status.COMPLETED, 4)
    before = log_of(run)
    with pytest.raises(CommandError, match="changes nothing"):
        retry()
    with transaction.atomic():  # who looked before the saga moved on
        engine.request("test.trip", "retry", key="a", reason="from a stale page")
    drain()
    assert (log_of(run), len(world.of("charge")), outbox(run)) == (before, 4, [])
    assert sum(line.startswith("retried") for line in before) == 2


def test_ad05_payloads_stay_out_of_messages_and_logs(
    world: World, admin: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A card number is in neither the broker's message nor anybody's log, though step, error and result hold it; the
    admin, for those who may see it, shows markup as text. What is declared as sensitive is masked: see the next."""
    begin(Kinds, input=Everything(text=PAN + SCRIPT, extra={"pan": PAN}))
    [row] = OutboxRow.objects.all()
    assert PAN not in str(message("default", [(row.id, row.token)]))
    world.plan("charge", ValueError(f"declined: {PAN} {SCRIPT}"), Everything(text=f"{PAN}\x00"))
    with caplog.at_level(logging.DEBUG):
        drain()
        call_command("sagas", "list", verbosity=0)
    saga = Kinds.get(key="a")
    assert saga.status == Status.PARKED
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("sagas"))
    assert PAN not in ours
    page = admin.get(f"/admin/sagas/sagarow/{saga.id}/change/").content.decode()
    assert PAN in page
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page


def test_ad05_what_is_declared_sensitive_is_masked(
    world: World, admin: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A card number declared as sensitive, repeated by a step in its error: neither the broker's message, nor logs, nor
    the stored error and traceback, nor pages of the admin, nor the command line show it, and markup is text."""

    def declined(run: Vaulted) -> None:
        raise ConnectionError(f"declined: {run.input.card} {SCRIPT}")

    run = begin(Vaulted, input=Payment(card=PAN))
    [row] = OutboxRow.objects.all()
    broker = str(message("default", [(row.id, row.token)]))
    world.plan("charge", declined, declined, declined)
    with caplog.at_level(logging.DEBUG):
        drain()
    assert Vaulted.get(key="a").status == Status.PARKED
    logged = "\n".join(logging.Formatter().format(each) for each in caplog.records if each.name.startswith("sagas"))
    errors = [entry.data["error"] for entry in entries(run) if "error" in entry.data]
    assert len(errors) == 3 and all(f"declined: {MASK} {SCRIPT}" == error["message"] for error in errors)
    page = admin.get(f"/admin/sagas/sagarow/{run.id}/change/").content.decode()
    listed = admin.get("/admin/sagas/sagarow/").content.decode()
    out = io.StringIO()
    call_command("sagas", "show", str(run.id), stdout=out)
    assert MASK in page and MASK in out.getvalue() and "declined" in page
    for text in (broker, logged, str(errors), page, listed, out.getvalue()):
        assert PAN not in text
    assert SCRIPT not in page and "&lt;script&gt;" in page
