"""Who hears of a case, when and how: signals after the commit, and e-mails without what the model wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core import mail
from django.db import transaction

from anvil_django import approvals, notifications, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.errors import AlreadyDecidedError
from anvil_django.models import Approval, Decision
from anvil_django.signals import approval_decided, approval_requested
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from . import cases
from .cases import ask
from .rest import person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def bank() -> Iterator[None]:
    with cases.bank():
        yield


@pytest.fixture
def listen() -> Iterator[Callable[[Any], list[dict[str, Any]]]]:
    """What is sent on a signal from now on: the keywords of each sending."""
    connected: list[tuple[Any, Any]] = []

    def start(signal: Any) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []

        def receiver(**kwargs: Any) -> None:
            kwargs["in_transaction"] = transaction.get_connection().in_atomic_block
            heard.append(kwargs)

        signal.connect(receiver)
        connected.append((signal, receiver))
        return heard

    yield start
    for signal, receiver in connected:
        signal.disconnect(receiver)


Listen = Callable[[Any], list[dict[str, Any]]]


@pytest.fixture
def rita() -> Any:
    return person("rita", "decide_approval", groups=("Tellers",))


# Signals.


def test_a_case_is_announced_after_the_commit(messages_api: ScriptedMessagesAPI, listen: Listen) -> None:
    heard = listen(approval_requested)

    approval = ask(messages_api)

    (sent,) = heard
    assert set(sent) == {"signal", "sender", "approval", "in_transaction"}
    assert (sent["sender"], sent["approval"], sent["in_transaction"]) == (Approval, approval, False)
    assert (sent["approval"].run.run_id, sent["approval"].call.name) == ("r1", "deploy")


def test_a_call_in_doubt_is_announced(messages_api: ScriptedMessagesAPI, listen: Listen) -> None:
    heard = listen(approval_requested)

    ask(messages_api, "mail")

    assert [sent["approval"].kind for sent in heard] == ["in_doubt"]


def test_a_decision_is_announced_after_the_commit(
    messages_api: ScriptedMessagesAPI, rita: Any, listen: Listen
) -> None:
    approval = ask(messages_api)
    heard = listen(approval_decided)

    approvals.reject(approval, user=rita, reason="No.")

    (sent,) = heard
    assert set(sent) == {"signal", "sender", "approval", "decision", "in_transaction"}
    assert (sent["sender"], sent["in_transaction"]) == (Approval, False)
    assert (sent["approval"].pk, sent["approval"].status) == (approval.pk, "rejected")
    assert sent["decision"] == Decision.objects.get()
    assert (sent["decision"].reviewer, sent["decision"].reason) == ("rita", "No.")


def test_each_decision_of_a_quorum_is_announced(
    messages_api: ScriptedMessagesAPI, rita: Any, listen: Listen
) -> None:
    approval = ask(messages_api, "close")
    heard = listen(approval_decided)

    approvals.approve(approval, user=rita)
    approvals.approve(approval, user=person("tom", "decide_approval", groups=("Tellers",)))

    assert [sent["approval"].status for sent in heard] == ["pending", "approved"]
    assert [sent["decision"].reviewer for sent in heard] == ["rita", "tom"]


def test_the_end_of_the_time_is_announced(
    messages_api: ScriptedMessagesAPI, listen: Listen, clock: FixedClock
) -> None:
    ask(messages_api, "close")
    heard = listen(approval_decided)
    clock.advance(7200)

    assert len(approvals.expire_overdue()) == 1

    (sent,) = heard
    assert (sent["approval"].status, sent["decision"].channel) == ("expired", "expiry")


def test_what_is_rolled_back_is_not_announced(
    messages_api: ScriptedMessagesAPI, rita: Any, listen: Listen
) -> None:
    approval = ask(messages_api)
    decided = listen(approval_decided)

    with transaction.atomic():
        approvals.approve(approval, user=rita)
        transaction.set_rollback(True)
    assert decided == []
    assert not Decision.objects.exists()
    approval.refresh_from_db()
    approvals.approve(approval, user=rita)
    with pytest.raises(AlreadyDecidedError):
        approvals.approve(approval, user=person("tom", "decide_approval"))
    assert len(decided) == 1


def test_a_question_that_is_rolled_back_is_not_announced(
    messages_api: ScriptedMessagesAPI, listen: Listen
) -> None:
    heard = listen(approval_requested)
    messages_api.script(say(tool_call("deploy", {"version": "1"})))
    start_run("teller", "Please do it.", run_id="r1")

    with transaction.atomic():
        assert tasks.advance("r1") == "suspended"
        transaction.set_rollback(True)

    assert not Approval.objects.exists()
    assert heard == []


def test_a_receiver_that_raises_hurts_nobody(
    messages_api: ScriptedMessagesAPI, rita: Any, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("The chat is down.")

    approval_requested.connect(broken)
    approval_decided.connect(broken)
    heard = [listen(approval_requested), listen(approval_decided)]
    try:
        approval = ask(messages_api)
        approvals.approve(approval, user=rita)
    finally:
        approval_requested.disconnect(broken)
        approval_decided.disconnect(broken)

    assert [len(each) for each in heard] == [1, 1]
    assert approval.status == "approved"
    logged = [record.getMessage() for record in caplog.records if record.name == "django.dispatch"]
    assert len(logged) == 2
    assert all(line.endswith("broken in Signal.send_robust() (The chat is down.)") for line in logged)


# E-mail.


def employee(name: str, *permissions: str, groups: tuple[str, ...] = (), **changes: Any) -> Any:
    user = person(name, *permissions, groups=groups)
    for field, value in {"email": f"{name}@example.com", **changes}.items():
        setattr(user, field, value)
    user.save()
    return user


@pytest.fixture
def staff() -> dict[str, Any]:
    """People of every sort."""
    return {
        "rita": employee("rita", "decide_approval", groups=("Tellers",)),
        "tom": employee("tom", "decide_approval", groups=("Tellers", "Managers")),
        "mona": employee("mona", "decide_approval", groups=("Managers",)),
        "olga": employee("olga", "decide_approval", "control_run"),
        "root": employee("root", is_superuser=True),
        # Who may not decide, has left, or has no address.
        "paul": employee("paul", groups=("Tellers", "Managers")),
        "vera": employee("vera", "view_approval", "control_run", groups=("Tellers",)),
        "lars": employee("lars", "decide_approval", groups=("Tellers", "Managers"), is_active=False),
        "nina": employee("nina", "decide_approval", groups=("Tellers",), email=""),
    }


def told() -> list[str]:
    names = []
    for message in mail.outbox:
        (address,) = message.to
        assert message.cc == message.bcc == []
        names.append(address.partition("@")[0])
    return sorted(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deploy", ["mona", "olga", "rita", "root", "tom"]),
        ("wire", ["rita", "tom"]),
        ("mail", ["rita", "tom"]),
        ("audit", ["olga", "root"]),
    ],
    ids=["everybody", "a group", "a group, in doubt", "a permission"],
)
def test_reviewers_are_told_by_email(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any, name: str, expected: list[str]
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True, "BASE_URL": "https://example.com/"}

    ask(messages_api, name)

    assert told() == expected


@pytest.mark.parametrize(("four_eyes", "expected"), [(True, ["tom"]), (False, ["rita", "tom"])])
def test_whoever_started_the_run_is_not_told(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any, four_eyes: bool, expected: list[str]
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True, "FOUR_EYES": four_eyes}

    ask(messages_api, "wire", user=staff["rita"])

    assert told() == expected


def test_an_email_links_to_the_case_and_says_nothing_the_model_wrote(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True, "BASE_URL": "https://example.com/"}

    approval = ask(messages_api, "audit", {"account": "SECRET-ACCOUNT\nBcc: x@evil.example"})

    message = mail.outbox[0]
    assert message.subject == "Approval needed: audit"
    assert message.body == (
        "The agent teller waits for a decision.\n"
        "Kind: permission to run a tool\n"
        "Tool: audit\n"
        "Run: r1\n"
        "\n"
        f"https://example.com/admin/anvil_django/approval/{approval.pk}/change/"
    )
    assert "SECRET" not in str(message.message())


def test_without_a_base_url_there_is_no_link(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True}

    ask(messages_api, "audit")

    assert mail.outbox[0].body.endswith("Run: r1")


def test_no_email_is_sent_unless_the_site_asks_for_it(
    messages_api: ScriptedMessagesAPI, staff: Any, clock: FixedClock
) -> None:
    ask(messages_api, "close")
    clock.advance(3600)

    assert len(notifications.escalate_overdue()) == 1
    assert mail.outbox == []


def test_an_escalation_tells_the_second_group_once(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any, clock: FixedClock
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True}
    ask(messages_api, "close")
    assert told() == ["rita", "tom"]
    mail.outbox.clear()
    clock.advance(3599)
    assert notifications.escalate_overdue() == []
    clock.advance(1)

    assert len(notifications.escalate_overdue()) == 1
    assert notifications.escalate_overdue() == []

    assert told() == ["mona", "tom"]


def test_a_mail_server_that_is_down_stops_no_run(
    messages_api: ScriptedMessagesAPI, staff: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ANVIL = {"NOTIFY_REVIEWERS": True}
    settings.EMAIL_BACKEND = "tests.test_notifications.Down"

    approval = ask(messages_api)

    assert approval.status == "pending"
    assert "ConnectionRefusedError" in caplog.text


class Down:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError
