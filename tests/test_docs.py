"""docs/approvals.md says what the code says, and its blocks are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from anvil_django import steps
from anvil_django.models import Approval
from anvil_django.signals import approval_decided, approval_requested
from anvil_django.states import AGREEING, ApprovalKind, ApprovalStatus, Channel, Verdict
from anvil_django.testing import ScriptedMessagesAPI

from . import cases
from .rest import person

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT = (DOCS / "approvals.md").read_text()
BLOCKS = dict(re.findall(r"```python\n# ([^\n]+)\n(.*?)```", TEXT, re.DOTALL))


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading by their first cell."""
    part = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"
    ]
    return {row[0].strip("`"): row[1:] for row in rows[2:]}


def block(label: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(BLOCKS[label], f"approvals.md ({label})", "exec", dont_inherit=True), names)
    return names


def test_every_kind_state_and_verdict_is_in_its_table() -> None:
    assert set(table("Why somebody is asked")) == {str(kind) for kind in ApprovalKind}
    assert set(table("States")) == {str(status) for status in ApprovalStatus}
    verdicts = table("Verdicts")
    assert set(verdicts) == {str(verdict) for verdict in Verdict}
    kinds = {kind for row in verdicts.values() for kind in row[0].split(", ")}
    assert kinds == {str(kind) for kind in ApprovalKind}
    assert not {"rejected", "unknown", "expired"} & {str(verdict) for verdict in AGREEING}
    assert all(f"`{channel}`" in TEXT for channel in Channel)


def test_the_sentences_are_those_that_the_model_is_told() -> None:
    assert [row[0] for row in table("What the model is told").values()] == [
        steps.REJECTED,
        steps.EXPIRED,
        steps.UNKNOWN,
        steps.DECLINED,
        steps.MISMATCH,
        steps.EDITED,
    ]


@pytest.mark.django_db(transaction=True)
def test_a_chat_hears_of_a_case_and_decides_it(messages_api: ScriptedMessagesAPI, settings: Any) -> None:
    settings.ANVIL = {"BASE_URL": "https://example.com"}
    rita, paul = person("rita", "decide_approval"), person("paul")
    chat, pressed = block("chat/receivers.py"), block("chat/buttons.py")["pressed"]
    try:
        with cases.bank():
            approval = cases.ask(messages_api)
            refused = pressed(approval.pk, True, "", paul)
            no_reason = pressed(approval.pk, False, "", rita)
            decided = pressed(approval.pk, True, "", rita)
    finally:
        approval_requested.disconnect(chat["ask"])
        approval_decided.disconnect(chat["report"])

    link = f"https://example.com/admin/anvil_django/approval/{approval.pk}/change/"
    assert chat["posted"] == [
        f"Case {approval.pk}: teller wants deploy. {link}",
        f"Case {approval.pk}: approved by rita.",
    ]
    assert refused == "You need the permission “Can decide approvals”."
    assert no_reason == "Give a reason for the rejection; it is told to the agent."
    assert decided == f"Case {approval.pk} is approved."
    assert Approval.objects.get().status == "approved"


def test_links_lead_to_files() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (DOCS / target).is_file(), (page.name, target)
