"""Somebody on call who has never seen the code, in a real browser, with the running demo: relay, Celery, bank and all.

With `SAGAS_SCREENSHOTS` set to a folder the pictures of the documentation are taken anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE
from tests.integration.test_demo import Demo
from tests.integration.test_demo_up import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]
ROOT = Path(__file__).parents[2]
LIST = "/admin/sagas/sagarow/"
SIZE = {"width": 1100, "height": 800}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """The demo, left running."""
    found = Demo(tmp_path / "up.txt", module="example_project.demo.up", DEMO_MINUTES="5")
    found.wait_for("orders come in")
    yield found
    if found.process.poll() is None:
        found.process.terminate()
        found.process.wait(30)


@pytest.fixture
def tab(browser: Any, demo: Demo) -> Iterator[Any]:
    """A tab in which the operator that the demo printed has logged in."""
    address, user, password = (
        re.search(pattern, demo.output)[1]  # type: ignore[index]
        for pattern in (r"admin +(http://\S+?)/admin/", r"user +(\S+)", r"password +(\S+)")
    )
    context = browser.new_context(base_url=address, viewport=SIZE, device_scale_factor=1)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto("/admin/")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    yield page
    context.close()


def picture(tab: Any, name: str, *, height: int = 800) -> None:
    """A picture for the documentation, where they are wanted."""
    if folder := os.environ.get("SAGAS_SCREENSHOTS"):
        tab.set_viewport_size({**SIZE, "height": height})
        tab.screenshot(path=str(Path(folder) / f"{name}.png"), animations="disabled")
        tab.set_viewport_size(SIZE)


def test_find_a_stuck_order_read_why_repair_it_and_see_it_finish(tab: Any, demo: Demo) -> None:
    """From the dashboard to the order that needs a person, to the reason, to the repair, to the end; nothing is typed
    but the reason."""
    wait_for(demo, lambda: "yes" if _parked(tab) else None)
    tab.goto(f"{LIST}dashboard/")
    assert "outcome is unknown" in tab.inner_text("[aria-labelledby=board-trouble]") or "compensation failed" in (
        tab.inner_text("[aria-labelledby=board-trouble]")
    )
    assert tab.locator("[aria-labelledby=board-processes] tbody tr").count() >= 2, "a relay and workers are there"
    picture(tab, "admin-dashboard", height=1000)
    tab.emulate_media(color_scheme="dark")
    picture(tab, "admin-dashboard-dark", height=1000)
    tab.emulate_media(color_scheme="light")

    command = re.search(r"terminal +(.+)$", demo.output, re.MULTILINE)
    assert command is not None, "what to type in a terminal is printed as well"
    listed = subprocess.run(command[1], shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "compensation failed" in listed.stdout and "sagas show ID" in listed.stdout

    tab.click("[aria-labelledby=board-trouble] tbody th a")
    assert "parked" in tab.inner_text(".sagas-facts")
    node = tab.locator(".sagas-node-parked")
    assert node.count() == 1 and "charge" in node.text_content(), "the graph shows where it is stuck"
    assert "500" in tab.inner_text("#step-charge .sagas-error") or "error" in tab.inner_text("#step-charge").lower()
    picture(tab, "admin-saga", height=1100)

    page = tab.url
    tab.goto(f"{LIST}failures/")
    assert "answered #" in tab.inner_text(".sagas-group"), "numbers are left out, so that the same error is one group"
    picture(tab, "admin-failures", height=460)
    tab.goto(page)

    tab.click("a.sagas-ask:has-text('Retry')")
    assert "goes on where it parked" in tab.inner_text("#content-main")
    tab.fill("#id_reason", "the bank is back")
    picture(tab, "admin-confirm", height=560)
    tab.click(".submit-row input[type=submit]")
    assert "Retry is asked for" in tab.wait_for_selector(".messagelist").inner_text()

    def finished() -> str | None:
        tab.reload()
        return tab.inner_text(".sagas-facts") if "compensated" in tab.inner_text(".sagas-facts") else None

    wait_for(demo, finished)
    assert "the bank is back" in tab.inner_text(".sagas-timeline") and tab.locator("a.sagas-ask").count() == 0


def _parked(tab: Any) -> bool:
    tab.goto(f"{LIST}?status=parked")
    return bool(tab.locator("#result_list tbody tr").count())
