"""`make demo-up`: a shop that runs until it is stopped, whose admin can be used, and that leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from example_project.demo.up import minutes_of
from tests.integration.test_demo import LONGEST, Demo, still_there

Start = Callable[[str], Demo]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the demo with a limit in minutes; it ends with the test, however that ends."""
    begun: list[Demo] = []

    def start(minutes: str) -> Demo:
        begun.append(Demo(tmp_path / "up.txt", module="example_project.demo.up", DEMO_MINUTES=minutes))
        return begun[-1]

    yield start
    for demo in begun:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(30)


class Browser:
    """Reads pages and sends their forms; keeps cookies."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> str:
        with self._opener.open(self._address + path, timeout=30) as answer:
            return str(answer.read().decode())

    def send(self, path: str, page: str, **values: str) -> str:
        """Send the form of a page, with these values filled in; returns the page that follows."""
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
        with self._opener.open(self._address + path, urlencode([*hidden, *values.items()]).encode(), timeout=30) as a:
            return str(a.read().decode())


def wait_for(demo: Demo, look: Callable[[], str | None]) -> str:
    """What a look at the running demo finds, in time."""
    deadline = time.monotonic() + LONGEST
    while not (found := look()):
        assert demo.process.poll() is None, demo.output
        assert time.monotonic() < deadline, demo.output
        time.sleep(0.2)
    return found


def first_saga(browser: Browser, query: str) -> str | None:
    found = re.search(
        r'href="(/admin/sagas/sagarow/[0-9a-f-]{36}/change/)', browser.get(f"/admin/sagas/sagarow/{query}")
    )
    return found and found[1]


@pytest.mark.full  # tests/browser/test_demo_operator.py does more with it
def test_its_admin_can_be_used(start: Start) -> None:
    """Log in as printed, see orders with their sagas, retry one that is parked, see it end; Ctrl-C ends everything."""
    demo = start("10")
    demo.wait_for("orders come in")
    family = demo.family()
    address, user, password = re.findall(r"^  (?:admin|user|password) +(\S+)$", demo.output, re.MULTILINE)
    browser = Browser(address.removesuffix("/admin/"))
    login = "/admin/login/?next=/admin/"
    assert "Log out" in browser.send(login, browser.get(login), username=user, password=password)
    page = wait_for(demo, lambda: first_saga(browser, ""))
    saga = browser.get(page)
    about = re.search(r'href="(/admin/shop/order/[0-9a-f-]{36}/change/)"', saga)
    assert about and page in browser.get(about[1]), "the order shows its saga"
    stuck = wait_for(demo, lambda: first_saga(browser, "?status=parked"))
    buttons = re.findall(r'class="button sagas-ask" href="([^"]+)"', browser.get(stuck))
    retry = next(unescape(url) for url in buttons if "/retry/" in url)
    assert any("/abort/" in url for url in buttons)
    after = browser.send("/admin/sagas/sagarow/ask/retry/", browser.get(retry), reason="the bank is back")
    assert "Retry is asked for" in after
    wait_for(demo, lambda: ("sagas-status-compensated" in browser.get(stuck) and "done") or None)
    assert f"admin:{user}" in browser.get(stuck)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.process.wait(30) == 0, demo.output
    assert "stopped" in demo.output and "Traceback" not in demo.output
    assert len(family) > 10 and still_there(family) == []


@pytest.mark.full
def test_it_ends_by_itself(start: Start) -> None:
    """After `DEMO_MINUTES`, which are over here by the time everything runs."""
    demo = start("0.01")
    demo.wait_for("admin     http://")
    family = demo.family()
    assert demo.process.wait(LONGEST) == 0, demo.output
    assert "minutes are over" in demo.output and still_there(family) == []


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "1e9"])
def test_a_wrong_limit(text: str) -> None:
    """The message says what to write."""
    with pytest.raises(ValueError, match=re.escape(f"DEMO_MINUTES={text!r}: a number above 0")):
        minutes_of(text)


def test_nothing_is_started_under_a_wrong_limit(start: Start) -> None:
    """It says so at once."""
    demo = start("soon")
    assert demo.process.wait(LONGEST) == 2
    assert "DEMO_MINUTES='soon'" in demo.output and "starting" not in demo.output
