"""What can be wrong with where runs stand, with messages sent to them, and with their counters."""

from __future__ import annotations

from datetime import UTC, datetime

from anvil_django import approvals
from anvil_django.models import Steering, ToolCall
from tests.world import reviewer

from ..healthy import pending
from .broken import PAST, Broken, damage

# Where runs stand


@damage("waits", "lost wake-up")
def suspended_with_nobody_asked(b: Broken) -> None:
    for approval in pending("waits"):
        b.change(approval, status="void", open_key=None, decided_at=PAST)


@damage("waits", "lost wake-up")
def suspended_after_its_last_decision(b: Broken) -> None:
    for approval in pending("waits"):
        approvals.approve(approval, user=reviewer())
    b.change(b.run("waits"), status="suspended")


@damage("waits", "lost wake-up")
def a_call_that_waits_for_nobody(b: Broken) -> None:
    b.change(b.approval("waits.charge"), status="void", open_key=None, decided_at=PAST)


@damage("queued", "lost wake-up")
def queued_and_the_ticket_is_old(b: Broken) -> None:
    b.change(b.run("queued"), ticket_at=PAST)


@damage("queued", "lost wake-up")
def queued_and_long_overdue_after_a_backoff(b: Broken) -> None:
    b.change(b.run("queued"), ticket_at=None, next_attempt_at=PAST)


@damage("plain", "running without a lease")
def running_without_a_lease(b: Broken) -> None:
    b.change(b.run("plain"), status="running", finished_at=None)


@damage("plain", "running without a lease")
def running_under_a_lease_that_is_over(b: Broken) -> None:
    b.change(b.run("plain"), status="running", lease_owner="host/1/2/3/x", lease_until=PAST)


@damage("plain", "lease left over")
def a_lease_on_a_finished_run(b: Broken) -> None:
    b.change(b.run("plain"), lease_until=PAST)


@damage("paused", "waits without a reason")
def paused_without_a_reason(b: Broken) -> None:
    b.change(b.run("paused"), error="")


@damage("plain", "waits without a reason")
def failed_without_a_sentence(b: Broken) -> None:
    b.change(b.run("plain"), status="failed", error_code="poison", error=" ")


@damage("plain", "ended without a reason")
def done_at_no_time(b: Broken) -> None:
    b.change(b.run("plain"), finished_at=None)


@damage("waits", "request not heeded")
def a_cancellation_that_nobody_followed(b: Broken) -> None:
    b.change(b.run("waits"), cancel_requested=True)


@damage("cancelled", "asked after the end")
def a_question_after_the_end(b: Broken) -> None:
    approval = b.approval("cancelled.charge")
    b.change(approval, status="pending", open_key=str(approval.call.pk), decided_at=None)


@damage("waits", "question without a call")
def a_question_about_a_call_that_needs_none(b: Broken) -> None:
    b.change(b.call("waits.charge"), status="ready")


@damage("queued", "run missing")
def a_run_is_gone(b: Broken) -> None:
    b.run("queued").delete()


@damage("plain", "run not as scripted")
def another_last_word(b: Broken) -> None:
    b.change(b.message("plain", -1), content='[{"type":"text","text":"Bye."}]')


@damage("plain", "run not as scripted")
def cancelled_by_nobody(b: Broken) -> None:
    b.change(b.run("plain"), status="cancelled", stop_reason="cancelled")


# Messages sent to a run


@damage("asks", "message undelivered")
def a_message_left_behind_by_a_finished_run(b: Broken) -> None:
    b.change(Steering.objects.filter(run__run_id="asks")[0], placed_seq=None)


@damage("asks", "message undelivered")
def a_message_replaced_on_its_way(b: Broken) -> None:
    b.change(Steering.objects.filter(run__run_id="asks")[0], content='"Take your time."')


@damage("asks", "message undelivered")
def two_messages_in_one_place(b: Broken) -> None:
    b.again(Steering.objects.filter(run__run_id="asks")[0])


@damage("asks", "message undelivered")
def a_message_in_a_place_of_the_model(b: Broken) -> None:
    b.change(Steering.objects.filter(run__run_id="asks")[0], placed_seq=1)


@damage("waits", "message undelivered")
def a_waiting_message_that_the_run_does_not_know_of(b: Broken) -> None:
    Steering.objects.create(run=b.run("waits"), content='"Hey."', created_at=datetime.now(UTC))


@damage("plain", "message undelivered")
def a_message_passed_over_by_a_run_that_went_on(b: Broken) -> None:
    b.change(b.run("plain"), stop_reason="max_cost", steering_waits=True)
    Steering.objects.create(run=b.run("plain"), content='"Hey."', created_at=PAST)


# Fences and counters


@damage("plain", "revision out of order")
def a_message_newer_than_its_run(b: Broken) -> None:
    b.change(b.message("plain", -1), revision=99)


@damage("plain", "revision out of order")
def a_call_that_ended_before_it_began(b: Broken) -> None:
    b.change(b.call("plain.charge"), finished_revision=0)


@damage("asks", "revision out of order")
def a_decision_before_the_question(b: Broken) -> None:
    b.change(b.decision("asks.charge"), revision=0)


@damage("plain", "token out of order")
def started_under_a_token_yet_to_come(b: Broken) -> None:
    b.change(b.call("plain.charge"), started_token=99)


@damage("plain", "token out of order")
def advanced_by_nobody(b: Broken) -> None:
    b.change(b.run("plain"), token=0)
    for call in ToolCall.objects.filter(run__run_id="plain"):
        b.change(call, started_token=0)


@damage("waits", "counters differ")
def fewer_iterations_than_answers(b: Broken) -> None:
    b.change(b.run("waits"), iterations=0)


@damage("plain", "counters differ")
def more_recoveries_than_claims(b: Broken) -> None:
    b.change(b.run("plain"), recoveries=99)


@damage("", "agent version changed")
def a_frozen_prefix_was_changed(b: Broken) -> None:
    b.change(b.run("plain").version, prefix="{}")


@damage("plain", "run not as scripted")
def more_iterations_than_scripted(b: Broken) -> None:
    b.change(b.run("plain"), iterations=b.run("plain").iterations + 1)


@damage("plain", "token out of order", "tool_use unanswered", "effect lost")
def started_and_never_attempted(b: Broken) -> None:
    look = b.call("plain.look")
    b.change(look, status="started", started_token=1, attempts=0, outcome="", result=None)
