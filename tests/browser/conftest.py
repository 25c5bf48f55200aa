"""A real browser, and a server with a strict Content-Security-Policy for it.

Without a browser or without Playwright the tests are skipped; ``ANVIL_BROWSER_REQUIRED=1`` makes that a
failure. The browser is ``ANVIL_BROWSER``, or the first ``chromium`` or ``google-chrome`` on the path. With
``ANVIL_SCREENSHOTS=docs/screenshots`` the tests also take the pictures of the docs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = os.environ.get("ANVIL_BROWSER_REQUIRED") == "1"
SIZE = {"width": 1440, "height": 900}

TOO_WIDE = """
[document.documentElement, ...document.querySelectorAll("#changelist .results, .anvil-panel, .anvil-case")]
    .filter(part => part.scrollWidth > part.clientWidth + 1)
    .map(part => part.tagName + "." + part.className)
"""

Shoot = Callable[[str], None]


def _missing(reason: str) -> None:
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


# Not for the session: while Playwright's synchronous API is open, an event loop runs in this thread, and no
# later test of the same process could run one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed: pip install --group browser")
    found = os.environ.get("ANVIL_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        _missing(
            f"There is no browser: none of {', '.join(BROWSERS)} is on the path, ANVIL_BROWSER is unset."
        )
    # Playwright's synchronous API runs an event loop in this thread, in which Django refuses its ORM.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with sync_playwright() as playwright:
            # Containers have no room in /dev/shm and no user namespaces for the sandbox.
            options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
            started = playwright.chromium.launch(executable_path=found, headless=True, args=options)
            yield started
            started.close()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def site(browser: Any, transactional_db: None) -> Iterator[str]:
    """The address of a server that sends the policy."""
    middleware = [*settings.MIDDLEWARE, "tests.browser.csp.StrictPolicyMiddleware"]
    with override_settings(MIDDLEWARE=middleware):
        server = LiveServer("localhost")
        yield server.url
        server.stop()


@pytest.fixture(params=["light"])
def page(request: pytest.FixtureRequest, browser: Any, site: str) -> Iterator[Any]:
    """A page of a fresh browser; whatever the policy or a script complains of fails the test at its end."""
    complaints: list[str] = []
    context = browser.new_context(
        base_url=site, viewport=SIZE, color_scheme=request.param, locale="en-US", reduced_motion="reduce"
    )
    opened = context.new_page()
    opened.set_default_timeout(20_000)

    def heard(said: Any) -> None:
        # A browser asks for an icon that no site of ours has.
        is_icon = str(said.location.get("url", "")).endswith("/favicon.ico")
        if said.type in {"error", "warning"} and not is_icon:
            complaints.append(said.text)

    opened.on("console", heard)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert complaints == []


def until(page: Any, expression: str) -> None:
    """Wait until a JavaScript expression is true; Playwright's own waiting needs an ``eval`` in the page."""
    for _look in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


@pytest.fixture
def shoot(page: Any) -> Shoot:
    """Take a picture for the docs, if they are asked for."""
    folder = os.environ.get("ANVIL_SCREENSHOTS")

    def take(name: str) -> None:
        # Whatever the picture is for, nothing on a page may be cut off at its side.
        assert page.evaluate(TOO_WIDE) == [], f"{name} is too wide"
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return take
