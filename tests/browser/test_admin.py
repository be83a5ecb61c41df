"""The admin's actions in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Semaphore
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as AdminLog
from django.contrib.auth.models import User

from sagas.engine import SagaRun
from sagas_django import admin_actions, asking
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, outbox

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


def parked(world: World, key: str = "a") -> SagaRun:
    """A trip that parked over its charge."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip, key)
    drain()
    return run


def requests(run: SagaRun) -> list[str]:
    return [row.kind for row in outbox(run) if row.step is None]


def message(tab: Any) -> str:
    """What the page says about what was just asked."""
    return str(tab.wait_for_selector(".messagelist").inner_text())


def test_a_double_click_asks_once(tab: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both submissions of the form are in the server at the same time before either is answered."""
    run = parked(world)
    arrived, go, ask_each = Semaphore(0), Event(), asking.ask_each

    def held(*given: Any) -> Any:
        arrived.release()
        assert go.wait(20)
        return ask_each(*given)

    monkeypatch.setattr(admin_actions, "ask_each", held)
    tab.goto(f"{LIST}{run.id}/change/")
    tab.click("a.sagas-ask:has-text('Retry')")
    tab.fill("#id_reason", "the bank is back")
    box = tab.locator(".submit-row input[type=submit]").bounding_box()
    button = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    try:
        tab.mouse.click(*button)
        assert arrived.acquire(timeout=20)
        tab.mouse.click(*button)
        assert arrived.acquire(timeout=20), "the browser sent the form once only"
    finally:
        go.set()
    assert "Retry is asked for" in message(tab)
    assert (requests(run), AdminLog.objects.count()) == (["retry"], 1)
    assert f"{run.id}/change/" in tab.url
    drain()
    tab.reload()
    assert "completed" in tab.inner_text(".sagas-facts") and tab.locator("a.sagas-ask").count() == 0


def test_many_from_the_list(tab: Any, world: World) -> None:
    """Tick, pick, give a reason; the message says what was done, and the list is as it was."""
    runs = [parked(world, f"k{number}") for number in range(3)]
    tab.goto(f"{LIST}?status=parked")
    for run in runs[:2]:
        tab.check(f"input.action-select[value='{run.id}']")
    tab.select_option("select[name=action]", label="Ask for: Abort")
    tab.click("button[name=index]")
    assert "cannot be taken back" in tab.inner_text("#content-main")
    tab.click(".submit-row input[type=submit]")
    assert tab.locator("#id_reason:invalid").count() == 1, "the browser itself asks for a reason"
    tab.fill("#id_reason", "given up")
    tab.click(".submit-row input[type=submit]")
    assert "of 2 sagas" in message(tab) and "status=parked" in tab.url
    assert [requests(run) for run in runs] == [["abort"], ["abort"], []]


def test_buttons_can_be_read(tab: Any, world: World) -> None:
    """In light and dark, on a narrow screen too: inside the page, and not in the colour that is behind them."""
    run = parked(world)
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": 420, "height": 800})
        tab.goto(f"{LIST}{run.id}/change/")
        for link in tab.locator("a.sagas-ask").all():
            box = link.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 420 and box["height"] >= 24
            colours = link.evaluate("e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]")
            assert colours[0] != colours[1]


def test_the_dashboard_keeps_itself_up_to_date(tab: Any, world: World) -> None:
    """A saga that parks appears without anybody's doing, unless the box is not ticked."""
    tab.goto(f"{LIST}dashboard/")
    assert "No saga is parked." in tab.inner_text("#content-main")
    tab.evaluate("document.querySelector('[data-sagas-live]').dataset.marked = 'the same page'")
    run = parked(world)
    tab.wait_for_selector(f"a[href='{LIST}{run.id}/change/']")
    assert tab.locator("[data-marked]").count() == 1, "it was not loaded anew"


def test_the_dashboard_without_script(browser: Any, tab: Any, site: str, world: World) -> None:
    """All of it is there, and the box that would do nothing is not."""
    run = parked(world)
    context = browser.new_context(
        base_url=site, java_script_enabled=False, storage_state=tab.context.storage_state()
    )  # fmt: skip
    plain = context.new_page()
    plain.goto(f"{LIST}dashboard/")
    assert plain.locator(f"a[href='{LIST}{run.id}/change/']").count() == 1
    assert not plain.locator("#sagas-live").is_visible() and plain.locator("a:has-text('Load again')").is_visible()
    context.close()


def test_drawings_can_be_read_in_light_and_dark(tab: Any, world: World) -> None:
    """Text of the graph stands out from its box, whatever the theme; every node can be reached with the keyboard."""
    run = parked(world)
    contrast = """e => {
        const rgb = text => text.match(/[\\d.]+/g).map(Number);
        const page = rgb(getComputedStyle(document.body).backgroundColor);
        const box = rgb(getComputedStyle(e.querySelector('rect')).fill), part = box.length > 3 ? box[3] : 1;
        const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = c => c.slice(0, 3).map(v => linear(v / 255))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = light([0, 1, 2].map(i => box[i] * part + page[i] * (1 - part)));
        const text = light(rgb(getComputedStyle(e.querySelector('text')).fill));
        return (Math.max(behind, text) + 0.05) / (Math.min(behind, text) + 0.05);
    }"""
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        tab.goto(f"{LIST}{run.id}/change/")
        nodes = tab.locator(".sagas-node").all()
        assert len(nodes) == 3
        assert min(node.evaluate(contrast) for node in nodes) >= 4.5, "WCAG AA"
    tab.focus(".sagas-drawing")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.getAttribute('href')") == "#step-book"
