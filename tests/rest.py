"""People and answers for tests of the REST API."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from rest_framework.test import APIClient

from . import openapi

AGENTS = "/api/agents/v1/agents/"
RUNS = "/api/agents/v1/runs/"
APPROVALS = "/api/agents/v1/approvals/"


def person(username: str, *permissions: str, groups: tuple[str, ...] = ()) -> Any:
    """Somebody with these permissions of our app, in these groups."""
    user = get_user_model().objects.create_user(username, password="secret")
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="anvil_django", codename__in=permissions)
    )
    user.groups.set(Group.objects.get_or_create(name=name)[0] for name in groups)
    return user


class Client(APIClient):
    """A client that takes only answers which the OpenAPI document describes."""

    def request(self, **kwargs: Any) -> Any:
        response = super().request(**kwargs)
        self.operation = openapi.check(kwargs["REQUEST_METHOD"], kwargs["PATH_INFO"], response)
        return response


def client_of(user: Any) -> Client:
    """A client that is logged in as somebody."""
    client = Client()
    client.force_login(user)
    return client


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """The body of a problem, after checking what all problems have."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["detail"]
    return body


def errors(response: Any) -> dict[str, str]:
    """The fields of a 422 with the code of what is wrong with each."""
    return {error["field"]: error["code"] for error in problem(response, 422, "invalid")["errors"]}
