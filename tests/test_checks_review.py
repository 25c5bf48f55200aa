"""What ``manage.py check`` says about who may decide, and how they hear of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core import checks
from django.core.checks import Warning as CheckWarning

from . import cases
from .rest import person

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def bank() -> Iterator[None]:
    with cases.bank():
        yield


def found(code: str, *, databases: list[str] | None = None) -> list[Any]:
    """What ``manage.py check`` finds under one of our codes."""
    return [m for m in checks.run_checks(databases=databases) if m.id == f"anvil_django.{code}"]


GIVE_IT = (
    'Give the permission "anvil_django.decide_approval" to at least two people, '
    'or set ANVIL["FOUR_EYES"] = False.'
)
NOBODY = "Cases take four eyes, and nobody may decide approvals: no case could be decided."
ONE = (
    "Cases take four eyes, and only one active user may decide approvals: "
    "no case of a run that they started could be decided."
)


def warning(code: str, msg: str, hint: str) -> CheckWarning:
    return CheckWarning(msg, hint=hint, id=f"anvil_django.{code}")


@pytest.mark.django_db
def test_four_eyes_take_two_people_who_may_decide(django_user_model: Any) -> None:
    assert found("W003", databases=["default"]) == [warning("W003", NOBODY, GIVE_IT)]
    person("rita", "decide_approval")
    left = person("lars", "decide_approval")
    django_user_model.objects.filter(pk=left.pk).update(is_active=False)
    assert found("W003", databases=["default"]) == [warning("W003", ONE, GIVE_IT)]
    # By a group, or by being a superuser, is as good.
    deciders = Group.objects.create(name="Deciders")
    deciders.permissions.add(Permission.objects.get(codename="decide_approval"))
    person("tom", groups=("Deciders",))
    assert found("W003", databases=["default"]) == []
    deciders.delete()
    django_user_model.objects.create_superuser("root")
    assert found("W003", databases=["default"]) == []


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{"FOUR_EYES": False}, {"SUPERUSER_BYPASS": True}])
def test_one_person_is_enough_where_the_site_says_so(
    django_user_model: Any, settings: Any, given: dict[str, Any]
) -> None:
    settings.ANVIL = given
    django_user_model.objects.create_superuser("root")

    assert found("W003", databases=["default"]) == []


@pytest.mark.django_db
def test_reviewers_that_a_tool_names_exist() -> None:
    def about_the_teller() -> list[Any]:
        return [m for m in found("W004", databases=["default"]) if "'teller'" in m.msg]

    nobody = (
        "Create it, or correct the name. Until then nobody may decide its calls before they are escalated."
    )
    tellers = [
        warning(
            "W004",
            f"Tool {tool!r} of agent 'teller' has reviewers='Tellers', but there is no such group.",
            nobody,
        )
        for tool in ("wire", "close", "mail")
    ]
    managers = warning(
        "W004",
        "Tool 'close' of agent 'teller' has escalate_to='Managers', but there is no such group.",
        "Create it, or correct the name. Until then an escalation reaches nobody.",
    )
    audit = warning(
        "W004",
        "Tool 'audit' of agent 'teller' has reviewers='anvil_django.control_run', "
        "but there is no such permission.",
        nobody,
    )
    assert sorted(about_the_teller(), key=str) == sorted([*tellers, managers], key=str)
    Group.objects.create(name="Tellers")
    assert about_the_teller() == [managers]
    Group.objects.create(name="Managers")
    assert about_the_teller() == []
    Permission.objects.filter(codename="control_run").delete()
    assert about_the_teller() == [audit]


def test_a_check_that_may_not_ask_the_database_does_not() -> None:
    # Without the database mark, any query would fail this test.
    assert found("W003") == found("W004") == []


def test_before_the_tables_are_made_nothing_is_said(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ANVIL_TEST_DB": "sqlite",
        "ANVIL_TEST_DB_NAME": str(tmp_path / "empty.sqlite3"),
    }

    result = subprocess.run(
        [sys.executable, "manage.py", "check", "--database", "default"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (result.returncode, result.stdout) == (
        0,
        "System check identified no issues (0 silenced).\n",
    ), result.stderr


def test_emails_without_links_are_warned_of(settings: Any) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True}
    assert found("W002") == [
        warning(
            "W002",
            "ANVIL['NOTIFY_REVIEWERS'] is on without ANVIL['BASE_URL']: its e-mails lead to no case.",
            'Set ANVIL["BASE_URL"] to the scheme and host of the admin, such as "https://example.com".',
        )
    ]
    settings.ANVIL = {"NOTIFY_REVIEWERS": True, "BASE_URL": "https://example.com"}
    assert found("W002") == []
    settings.ANVIL = {}
    assert found("W002") == []


@pytest.mark.django_db
def test_settings_that_cannot_be_read_are_left_to_their_own_check(settings: Any) -> None:
    settings.ANVIL = {"FOUR_EYE": True}

    ids = {message.id for message in checks.run_checks(databases=["default"])}

    assert "anvil_django.E001" in ids
    assert not ids & {"anvil_django.W002", "anvil_django.W003", "anvil_django.W004"}
