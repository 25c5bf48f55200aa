"""A person at a browser, as far as the demo needs one: cookies, forms, and the CSRF token."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from example_project.shop.seed import Person

from .processes import DemoError


@dataclass
class Form:
    """The fields of a form as they would be sent, with the button that is pressed."""

    fields: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, str] = field(default_factory=dict)

    def pressed(self, **answers: str) -> dict[str, str]:
        """What is sent when its buttons' values and these answers go with it."""
        return {**self.fields, **self.buttons, **answers}


_NOT_TICKED = {"checkbox", "radio"}


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "form":
            self.forms.append(Form())
        elif not self.forms or not name or given.get("type") in _NOT_TICKED:
            return
        elif tag == "button" or given.get("type") == "submit":
            self.forms[-1].buttons.setdefault(name, value)
        elif tag in {"input", "textarea"}:
            self.forms[-1].fields.setdefault(name, value)


@dataclass
class Page:
    url: str
    status: int
    text: str

    def form_with(self, *names: str) -> Form:
        """The form that has fields of all these names."""
        parser = _Forms()
        parser.feed(self.text)
        for form in parser.forms:
            if all(name in form.fields for name in names):
                return form
        raise DemoError(f"{self.url} has no form with the fields {', '.join(names)}.")


class Browser:
    def __init__(self, site: str) -> None:
        self._site = site
        self._cookies = CookieJar()
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self._cookies))

    def get(self, path: str) -> Page:
        return self._send(Request(urljoin(self._site, path)))

    def post(self, path: str, fields: dict[str, Any]) -> Page:
        data = {"csrfmiddlewaretoken": self._token(), **fields}
        return self._send(Request(urljoin(self._site, path), urlencode(data, doseq=True).encode()))

    def post_json(self, path: str, value: Any) -> dict[str, Any]:
        """The JSON answer; anything but a success is an error."""
        headers = {"Content-Type": "application/json", "X-CSRFToken": self._token()}
        page = self._send(Request(urljoin(self._site, path), json.dumps(value).encode(), headers))
        if page.status >= 400:
            raise DemoError(f"POST {path} was answered with {page.status}: {page.text[:400]}")
        answer: dict[str, Any] = json.loads(page.text)
        return answer

    def log_in(self, path: str, person: Person) -> None:
        self.get(path)  # Sets the CSRF cookie.
        self.post(
            path, {"username": person.username, "password": person.password, "next": "/api-auth/login/"}
        )
        if "sessionid" not in {cookie.name for cookie in self._cookies}:
            raise DemoError(f"{person.username} could not log in at {path}.")

    def _send(self, request: Request) -> Page:
        request.add_header("Referer", self._site)
        try:
            with self._opener.open(request, timeout=30) as answer:
                return Page(answer.url, answer.status, answer.read().decode())
        except HTTPError as error:
            with error:
                return Page(request.full_url, error.code, error.read().decode(errors="replace"))

    def _token(self) -> str:
        return next((c.value or "" for c in self._cookies if c.name == "csrftoken"), "")
