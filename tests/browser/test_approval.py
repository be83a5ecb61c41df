"""Approving in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Semaphore
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import User

from sagas.states import Status
from sagas_django import admin_signal
from sagas_django.models import OutboxRow
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

LIST = "/admin/sagas/sagarow/"


@pytest.fixture
def tab(page: Any, shop: str) -> Iterator[Any]:
    """A tab in which an operator has logged in."""
    User.objects.create_superuser("root", password="secret")
    page.goto("/admin/")
    page.fill("#id_username", "root")
    page.fill("#id_password", "secret")
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    yield page
    User.objects.all().delete()


def test_approval_by_double_click(tab: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the list to the form and back; both clicks are in the server at once, and one signal is sent."""
    run = begin(Reviewed)
    drain()
    arrived, go, once = Semaphore(0), Event(), admin_signal.once

    def held(*given: Any) -> bool:
        arrived.release()
        assert go.wait(20)
        return once(*given)

    monkeypatch.setattr(admin_signal, "once", held)
    tab.goto(LIST)
    assert "review waits for a signal until" in tab.inner_text("#result_list")
    tab.click("#result_list th a")
    tab.click("a.sagas-ask:has-text('Signal review')")
    tab.fill("#id_reason", "papers are right")
    tab.click(".submit-row input[type=submit]")
    assert tab.locator("#id_value_ok:invalid").count() == 1, "the browser itself asks for yes or no"
    tab.select_option("#id_value_ok", label="Yes")
    tab.fill("#id_value_note", "welcome")
    box = tab.locator(".submit-row input[type=submit]").bounding_box()
    button = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    try:
        tab.mouse.click(*button)
        assert arrived.acquire(timeout=20)
        tab.mouse.click(*button)
        assert arrived.acquire(timeout=20), "the browser sent the form once only"
    finally:
        go.set()
    assert "The signal review is sent" in tab.wait_for_selector(".messagelist").inner_text()
    assert (OutboxRow.objects.filter(kind="signal").count(), AdminLog.objects.count()) == (1, 1)
    drain()
    assert Reviewed.get(key="a").status == Status.COMPLETED
    tab.reload()
    timeline = tab.inner_text(".sagas-timeline")
    assert "admin:root" in timeline and "papers are right" in timeline
    assert tab.locator("a.sagas-ask").count() == 0
    assert f"{run.id}/change/" in tab.url
