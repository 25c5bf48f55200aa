"""What must hold wherever hostile content has come in: it is shown as text, and no log repeats it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from anvil_django import exactjson
from anvil_django.models import Approval, Run
from anvil_django.testing.history_rules import violations

from .admin.teller import logged_in
from .admin.teller import person as staff
from .hostile import ATTRIBUTE, TAG
from .rest import APPROVALS, RUNS, client_of
from .rest import Client as RestClient

RUN_LIST, CASE_LIST = "admin:anvil_django_run_changelist", "admin:anvil_django_approval_changelist"


class _Page(HTMLParser):
    """Finds what no page of ours has of its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._script = tag in {"script", "style"}
        names = {name for name, _ in attrs}
        if tag == TAG or ATTRIBUTE in names:
            self.found.append(self.get_starttag_text() or tag)
        self.found += [
            f"{name}={value}"
            for name, value in attrs
            if name in {"href", "src", "action"}
            and (value or "").strip().lower().startswith(("javascript:", "data:"))
        ]

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and "hostile" in data:
            self.found.append(data)


def markup_of_content(html: str) -> list[str]:
    """The elements, attributes, links and scripts of a page that can only come from hostile content."""
    page = _Page()
    page.feed(html)
    page.close()
    return page.found


def page_is_safe(client: Client, url: str) -> None:
    """The page is shown, and nothing on it is markup that came from content."""
    response = client.get(url)
    assert response.status_code == 200, (url, response.status_code)
    assert markup_of_content(response.content.decode()) == [], url


def shown_everywhere(run_id: str) -> None:
    """The admin's pages and the REST API show the run and its cases."""
    run = Run.objects.get(run_id=run_id)
    cases = list(Approval.objects.filter(run=run))
    user = staff("looking", "view_run", "view_approval", "control_run", "decide_approval")
    admin, api = logged_in(user), client_of(user)
    for url in (
        reverse(RUN_LIST),
        f"{reverse(CASE_LIST)}?status=all",
        reverse("admin:anvil_django_run_change", args=[run.pk]),
        *(reverse("admin:anvil_django_approval_change", args=[case.pk]) for case in cases),
    ):
        page_is_safe(admin, url)
    history = (f"{RUNS}{run_id}/{part}/" for part in ("checkpoint", "messages", "calls"))
    for url in (RUNS, f"{RUNS}{run_id}/", *history, f"{APPROVALS}?status=all"):
        assert api.get(url).status_code == 200, url
    user.delete()


def send(client: RestClient, url: str, body: Any, **headers: str) -> Any:
    """POST the body as JSON in ASCII, which can hold half a character."""
    return client.generic("POST", url, json.dumps(body), content_type="application/json", **headers)


def requests_are_valid(requests: list[Any]) -> None:
    """Every request keeps the API's rules, and begins with all that the one before it sent."""
    before: list[Any] = []
    for request in requests:
        assert violations(request) == []
        messages = request["messages"]
        assert exactjson.dumps(messages[: len(before)]) == exactjson.dumps(before)
        before = messages


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No log of ours at INFO and above has a word of the content; all of it says "hostile" somewhere."""
    caplog.set_level(logging.INFO)
    yield
    ours = [r.getMessage() for r in caplog.get_records("call") if r.name.startswith("anvil_django")]
    assert [line for line in ours if "hostile" in line] == []
