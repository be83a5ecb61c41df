"""A real browser and a real web server. Where the machine has no chromium these tests are skipped, and say so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test.testcases import LiveServerThread

from tests.integration.conftest import quiet, shop, shop_url, world

__all__ = ["quiet", "shop", "shop_url", "world"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 20_000  # ms for anything to happen on a page


class Remote:
    """An object of playwright, used from another thread.

    Playwright keeps an event loop running in the thread that uses it, in which Django refuses to touch a database.
    """

    def __init__(self, thread: ThreadPoolExecutor, target: Any) -> None:
        self._thread, self._target = thread, target

    def __getattr__(self, name: str) -> Any:
        return self._run(lambda: getattr(self._target, name))

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._run(lambda: self._target(*given, **named))

    def _run(self, act: Callable[[], Any]) -> Any:
        return self._seen(self._thread.submit(act).result(3 * PATIENCE / 1000))

    def _seen(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._seen(each) for each in found]
        plain = found is None or isinstance(found, str | int | float | bool | dict)
        return found if plain else Remote(self._thread, found)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The machine's own chromium, without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"NOT RUN: no browser on this machine, looked for {', '.join(PROGRAMS)}")
    sync = pytest.importorskip("playwright.sync_api", reason="NOT RUN: playwright is not installed")
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which chromium refuses to root
    with ThreadPoolExecutor(1, thread_name_prefix="browser") as thread:
        playwright = Remote(thread, sync.sync_playwright)().start()
        try:
            chromium = playwright.chromium.launch(
                executable_path=program, args=[*sandbox, "--disable-dev-shm-usage"]
            )  # fmt: skip
            yield chromium
            chromium.close()
        finally:
            playwright.stop()


@pytest.fixture
def site(shop: str) -> Iterator[str]:
    """Address of the test project, served with its CSS from threads of this process."""
    server = LiveServerThread("127.0.0.1", StaticFilesHandler, connections_override={})
    server.daemon = True
    server.start()
    assert server.is_ready.wait(20)
    if server.error:
        raise server.error
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    """An empty tab; addresses are relative to the site."""
    context = browser.new_context(base_url=site)
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()
