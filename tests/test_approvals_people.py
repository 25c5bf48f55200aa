"""Who may decide, how many have to agree, and what is kept of what they said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django_q.models import OrmQ

from anvil_django import approvals, models, runs, tasks, tool
from anvil_django.errors import (
    AlreadyDecidedError,
    ClaimedError,
    DecisionError,
    NotAllowedError,
)
from anvil_django.models import Decision
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say

from .waiting import (
    ask,
    ask_in_doubt,
    case,
    crash_at,
    desk,
    effects,
    look,
    on,
    pay,
    pay_by_two,
    paying,
    person,
    run,
    told,
)
from .world import reviewer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


def by_two(**more: Any) -> dict[str, Any]:
    return paying("pay_by_two", **more)


# Quorum


def test_two_different_people_have_to_agree(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        assert (case().status, run().status, on().status) == ("pending", "suspended", "suspended")
        with pytest.raises(NotAllowedError, match="You have agreed"):
            approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=sam)
        assert on().status == "done"

    assert effects() == ["500 to ann"]
    assert [row.user for row in case().decisions.all()] == [reviewer(), sam]


def test_one_rejection_rejects_whoever_agreed_before(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        approvals.reject(case(), user=person("sam"), reason="No.")
        with pytest.raises(AlreadyDecidedError, match="already rejected by sam"):
            approvals.approve(case(), user=person("tom"))
        assert on().status == "done"

    assert effects() == []


def test_whoever_has_agreed_may_still_say_no(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        approvals.reject(case(), user=reviewer(), reason="I misread the amount.")
        assert on().status == "done"

    assert (effects(), case().status) == ([], "rejected")


def test_an_edit_begins_a_new_round(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=sam, edited_input={"to": "ann", "amount": 5})
        assert case().status == "pending"
        with pytest.raises(NotAllowedError, match="You have agreed"):
            approvals.approve(case(), user=sam)
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert effects() == ["5 to ann"]
    assert [row.verdict for row in case().decisions.all()] == ["approved", "edited", "edited"]


def test_what_was_agreed_to_before_an_edit_does_not_count_when_the_edit_is_taken_back(
    messages_api: ScriptedMessagesAPI,
) -> None:
    original = {"to": "ann", "amount": 500}
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=person("sam"), edited_input={"to": "ann", "amount": 5})
        approvals.approve(case(), user=person("tom"), edited_input=original)
        assert case().status == "pending"
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert effects() == ["500 to ann"]


def test_nobody_agrees_to_an_edit_that_came_after_they_read_the_case(
    messages_api: ScriptedMessagesAPI,
) -> None:
    with desk(pay_by_two):
        ask(messages_api, by_two(), then=())
        as_read = case()
        approvals.approve(case(), user=person("sam"), edited_input={"to": "sam", "amount": 9999})
        with pytest.raises(DecisionError, match="since you read the case"):
            approvals.approve(as_read, user=reviewer())

    assert (case().status, case().decisions.count()) == ("pending", 1)


def test_an_answer_needs_the_quorum_too(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer())
        approvals.answer(case(), user=sam, answer="Paid in cash.")
        assert case().status == "pending"
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert (effects(), told()) == ([], {"toolu_1": "Paid in cash."})


def test_people_who_disagree_about_a_doubt_do_not_make_a_quorum(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    free = tool(side_effect=True, approvals=2, name="free")(pay.fn)
    sam = person("sam")
    with desk(free):
        ask_in_doubt(messages_api, clock)
        approvals.settle(case(), user=reviewer(), verdict="happened", result="paid")
        approvals.settle(case(), user=sam, verdict="not_happened")
        assert (case().status, on().status) == ("pending", "suspended")
        assert [row.verdict for row in case().decisions.all()] == ["happened", "not_happened"]
        approvals.settle(case(), user=reviewer(), verdict="happened", result="paid")
        approvals.settle(case(), user=sam, verdict="happened", result="paid")
        assert on().status == "done"

    assert (effects(), told()) == (["500 to ann"], {"toolu_1": "paid"})


# Four eyes


def test_the_requester_cannot_decide_not_even_as_a_superuser(messages_api: ScriptedMessagesAPI) -> None:
    root = person("root", is_superuser=True)
    with desk(pay):
        ask(messages_api, paying(), user=root)
        for act in (approvals.approve, approvals.claim):
            with pytest.raises(NotAllowedError, match="You started this run"):
                act(case(), user=root)
        with pytest.raises(NotAllowedError, match="You started this run"):
            approvals.reject(case(), user=root, reason="No.")
        approvals.approve(case(), user=person("other", is_superuser=True))
        assert on().status == "done"

    assert effects() == ["500 to ann"]


def test_a_superuser_may_bypass_four_eyes_where_the_site_says_so(
    messages_api: ScriptedMessagesAPI, settings: Any
) -> None:
    settings.ANVIL = {"SUPERUSER_BYPASS": True}
    root, staff = person("root", is_superuser=True), person("stella")
    reserved = tool(side_effect=True, requires_approval=True, reviewers="Finance")(pay.fn)
    with desk(reserved):
        ask(messages_api, paying(), user=root)
        approvals.approve(case(), user=root)
        assert on().status == "done"
        messages_api.script(say(paying()), match="second")
        from anvil_django import start_run

        start_run("desk", "The second.", run_id="s", user=staff)
        tasks.advance("s")
        with pytest.raises(NotAllowedError, match="You started this run"):
            approvals.approve(case(run_id="s"), user=staff)


def test_a_bypass_does_not_make_one_superuser_two_people(
    messages_api: ScriptedMessagesAPI, settings: Any
) -> None:
    settings.ANVIL = {"SUPERUSER_BYPASS": True}
    root = person("root", is_superuser=True)
    with desk(pay_by_two):
        ask(messages_api, by_two(), user=root, then=())
        approvals.approve(case(), user=root)
        with pytest.raises(AlreadyDecidedError, match="root"):
            approvals.approve(case(), user=root)

    assert (case().status, case().decisions.count()) == ("pending", 1)


def test_four_eyes_can_be_turned_off(messages_api: ScriptedMessagesAPI, settings: Any) -> None:
    settings.ANVIL = {"FOUR_EYES": False}
    stella = person("stella")
    with desk(pay):
        ask(messages_api, paying(), user=stella)
        approvals.approve(case(), user=stella)
        assert on().status == "done"


# Reviewers


def test_a_group_of_reviewers_is_a_list_of_people(messages_api: ScriptedMessagesAPI) -> None:
    reserved = tool(side_effect=True, requires_approval=True, reviewers="Finance")(pay.fn)
    with desk(reserved):
        ask(messages_api, paying())
        for outsider in (
            reviewer(),
            person("root", is_superuser=True),
            person("other", groups=["Sales", "Financial"]),
        ):
            with pytest.raises(NotAllowedError, match="This case is for Finance"):
                approvals.approve(case(), user=outsider)
        with pytest.raises(NotAllowedError, match="Can decide approvals"):
            approvals.approve(case(), user=person("fred", groups=["Finance"], may_decide=False))
        approvals.approve(case(), user=person("frida", groups=["Finance"]))
        assert on().status == "done"


def test_reviewers_may_be_a_permission(messages_api: ScriptedMessagesAPI) -> None:
    reserved = tool(side_effect=True, requires_approval=True, reviewers="shop.change_refund")(pay.fn)
    Group.objects.create(name="shop.change_refund").user_set.add(reviewer())
    with desk(reserved):
        ask(messages_api, paying())
        with pytest.raises(NotAllowedError, match=r"This case is for shop\.change_refund"):
            approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=person("frida", "change_refund"))
        assert on().status == "done"


def test_somebody_whose_account_was_closed_cannot_decide(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        for gone in (person("gone", is_active=False), person("root", is_superuser=True, is_active=False)):
            with pytest.raises(NotAllowedError):
                approvals.approve(case(), user=gone)


def test_a_permission_that_was_taken_away_does_not_count(messages_api: ScriptedMessagesAPI) -> None:
    rita = reviewer()
    with desk(pay):
        ask(messages_api, paying(), then=())
        approvals.claim(case(), user=rita)
        rita.user_permissions.remove(Permission.objects.get(codename="decide_approval"))
        with pytest.raises(NotAllowedError):
            approvals.approve(case(), user=type(rita).objects.get(pk=rita.pk))


# Claims


def test_others_cannot_decide_a_claimed_case_until_it_is_released(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay):
        ask(messages_api, paying())
        approvals.claim(case(), user=reviewer())
        acts: list[Callable[[], Any]] = [
            lambda: approvals.approve(case(), user=sam),
            lambda: approvals.reject(case(), user=sam, reason="No."),
            lambda: approvals.claim(case(), user=sam),
            lambda: approvals.release(case(), user=sam),
        ]
        for act in acts:
            with pytest.raises(ClaimedError, match="Rita"):
                act()
        assert (case().claimed_by, case().claimed_name) == (reviewer(), "Rita (rita)")
        approvals.claim(case(), user=reviewer())  # Again, to read on.
        approvals.release(case(), user=reviewer())
        approvals.release(case(), user=reviewer())
        assert (case().claimed_by, case().claimed_name, case().claimed_at) == (None, "", None)
        approvals.approve(case(), user=sam)
        assert on().status == "done"


def test_a_stale_claim_holds_nobody_up(messages_api: ScriptedMessagesAPI, clock: Any, settings: Any) -> None:
    settings.ANVIL = {"CLAIM_SECONDS": 60}
    sam = person("sam")
    with desk(pay):
        ask(messages_api, paying())
        approvals.claim(case(), user=reviewer())
        clock.advance(60)
        with pytest.raises(ClaimedError):
            approvals.claim(case(), user=sam)
        clock.advance(1)
        approvals.claim(case(), user=sam)
        with pytest.raises(ClaimedError, match="sam"):
            approvals.approve(case(), user=reviewer())
        clock.advance(61)
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"


def test_a_claim_ends_with_the_decision_or_the_account(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.claim(case(), user=reviewer())
        approvals.approve(case(), user=reviewer())
        assert case().claimed_by is None
        approvals.claim(case(), user=sam)
        sam.delete()
        approvals.approve(case(), user=person("tom"))
        assert on().status == "done"


def test_a_decided_case_cannot_be_claimed(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        approvals.approve(case(), user=reviewer())
        with pytest.raises(AlreadyDecidedError):
            approvals.claim(case(), user=reviewer())


# Several calls, several people, several lives


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_calls_are_decided_one_at_a_time_in_any_order_across_restarts(
    messages_api: ScriptedMessagesAPI, clock: Any, order: tuple[int, ...]
) -> None:
    people = [reviewer(), person("sam"), person("tom")]
    with desk(pay, look):
        ask(
            messages_api,
            *[paying(to=name, id=f"toolu_{i}") for i, name in enumerate(("ann", "bob", "cid"), 1)],
        )
        OrmQ.objects.all().delete()
        for number, who in zip(order, people, strict=True):
            assert (run().status, OrmQ.objects.count()) == ("suspended", 0)
            tasks.advance("r")
            tasks.recover()
            approvals.claim(case(f"toolu_{number}"), user=who)
            approvals.approve(case(f"toolu_{number}"), user=who)
            clock.advance(3600)
        assert (run().status, OrmQ.objects.count()) == ("queued", 1)
        with pytest.raises(Kill), kill_at(3):
            tasks.advance("r")
        clock.advance(61)
        tasks.advance("r")
        if run().status == "suspended":  # The crash came between an intent and its result.
            assert case().kind == "in_doubt"
            approvals.settle(case(), user=reviewer(), verdict="not_happened")
            tasks.advance("r")
        for _ in range(2):
            tasks.advance("r")

    assert run().status == "done"
    assert sorted(effects()) == ["500 to ann", "500 to bob", "500 to cid"]


def test_a_crash_after_the_last_decision_loses_nothing(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer())
        OrmQ.objects.all().delete()  # The queue forgets.
        clock.advance(61)
        assert tasks.recover() == 1
        assert OrmQ.objects.count() == 1
        with pytest.raises(Kill), kill_at(1):
            tasks.advance("r")
        clock.advance(61)
        assert on().status == "done"

    assert effects() == ["500 to ann"]


# What is kept


def test_decisions_are_only_ever_added(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        approvals.approve(case(), user=reviewer(), reason="Fine.")
    decision = Decision.objects.get()
    decision.verdict = "rejected"
    changes: list[Callable[[], Any]] = [
        decision.save,
        decision.delete,
        lambda: Decision.objects.update(verdict="rejected"),
        lambda: Decision.objects.filter(pk=decision.pk).delete(),
        lambda: case().decisions.all().delete(),
        lambda: Decision.objects.bulk_update([decision], ["verdict"]),
        lambda: Decision.objects.update_or_create(pk=decision.pk, defaults={"verdict": "rejected"}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="append-only"), transaction.atomic():
            change()

    assert Decision.objects.get().verdict == "approved"


def test_a_decision_outlives_the_account_of_whoever_took_it(messages_api: ScriptedMessagesAPI) -> None:
    rita = reviewer()
    key = str(rita.pk)
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=rita, reason="Fine.", channel="admin")
        rita.delete()
        assert on().status == "done"

    decision = Decision.objects.get()
    assert (decision.user, decision.reviewer, decision.reviewer_key) == (None, "Rita (rita)", key)
    assert (decision.verdict, decision.reason, decision.channel) == ("approved", "Fine.", "admin")
    assert decision.digest == case().digest


def test_decisions_go_with_their_run(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        approvals.approve(case(), user=reviewer())
    run().delete()

    assert not Decision.objects.exists()


def test_each_decision_is_mirrored_in_the_admin_log(messages_api: ScriptedMessagesAPI) -> None:
    sam = person("sam")
    with desk(pay_by_two):
        ask(messages_api, by_two())
        approvals.approve(case(), user=reviewer(), reason="Fine.", channel="api")
        approvals.reject(case(), user=sam, reason="No.", channel="admin")
        with pytest.raises(AlreadyDecidedError):
            approvals.approve(case(), user=person("tom"))
        on()

    entries = LogEntry.objects.order_by("id")
    assert [(e.user, e.object_id, e.change_message) for e in entries] == [
        (reviewer(), str(case().pk), "approved (api): Fine."),
        (sam, str(case().pk), "rejected (admin): No."),
    ]


# Cancelled meanwhile


def test_cancelling_voids_what_waits_and_keeps_the_history_valid(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), paying(to="bob", id="toolu_2"), then=())
        approvals.approve(case("toolu_2"), user=reviewer())
        runs.cancel("r")
        with pytest.raises(AlreadyDecidedError, match="already void"):
            approvals.approve(case(), user=reviewer())
        on()

    assert (run().status, case().status, case("toolu_2").used_at) == ("cancelled", "void", None)
    assert (effects(), told()) == (
        [],
        {"toolu_1": "Cancelled before completion.", "toolu_2": "Cancelled before completion."},
    )
    assert list(models.Approval.objects.filter(status="pending")) == []


def test_cancelling_a_run_with_a_doubt_says_that_the_outcome_is_unknown(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        approvals.approve(case(), user=reviewer())
        crash_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")
        runs.cancel("r")

    assert (run().status, case().kind, case().status) == ("cancelled", "in_doubt", "void")
    assert "Whether it took effect is unknown" in told()["toolu_1"]
