"""What can be wrong with what the tools did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from anvil_django.models import Approval, Decision
from example_project.shop.models import Refund

from .broken import PAST, Broken, damage

# Effects


@damage("plain", "effect twice")
def an_effect_doubled(b: Broken) -> None:
    b.log("began", "plain.charge", kind="external")
    b.log("ended", "plain.charge", kind="external")


@damage("plain", "effect twice", "wrong key")
def an_idempotent_effect_under_two_keys(b: Broken) -> None:
    b.log("ended", "plain.post", kind="idempotent", key="another")


@damage("plain", "effect lost")
def an_effect_that_never_happened(b: Broken) -> None:
    b.relog("plain.charge", "ended")


@damage("plain", "effect lost")
def an_idempotent_effect_that_never_happened(b: Broken) -> None:
    b.relog("plain.post")


@damage("happened", "effect lost")
def what_a_person_vouched_for_did_not_happen(b: Broken) -> None:
    b.relog("happened.charge", "ended")


@damage("plain", "effect lost")
def an_effect_that_was_given_up_unasked(b: Broken) -> None:
    b.change(b.call("plain.charge"), outcome="unknown")


@damage("doubt", "begun again unasked")
def begun_a_third_time_on_one_word(b: Broken) -> None:
    b.log("began", "doubt.charge", kind="external")
    b.change(b.call("doubt.charge"), attempts=3)


@damage("doubt", "begun again unasked")
def begun_again_before_a_person_settled_it(b: Broken) -> None:
    b.change(b.decision("doubt.charge"), created_at=datetime.now(UTC) + timedelta(hours=1))


@damage("plain", "effect unrecorded")
def an_effect_whose_start_was_not_stored(b: Broken) -> None:
    b.change(b.call("plain.charge"), attempts=0)


@damage("plain", "effect unrecorded")
def an_effect_that_ended_and_never_began(b: Broken) -> None:
    b.relog("plain.charge", "began")


@damage("plain", "phantom effect")
def an_effect_of_no_call(b: Broken) -> None:
    b.log("ended", "plain.charge", call="toolu_nowhere", key="plain:toolu_nowhere", effect="plain.other")


@damage("plain", "phantom effect", "effect lost")
def an_effect_of_another_call(b: Broken) -> None:
    b.relog("plain.charge", call=b.call("plain.look").call_id)


@damage("plain", "wrong key")
def an_effect_under_another_key(b: Broken) -> None:
    b.relog("plain.charge", key="another")


@damage("", "log unreadable")
def a_torn_line(b: Broken) -> None:
    b.facts.effect_log.write_text(b.facts.effect_log.read_text() + '{"event": "began", "eff\n')


@damage("refused", "effect after a no")
def an_effect_after_a_rejection(b: Broken) -> None:
    b.log("began", "refused.charge", kind="external")
    b.log("ended", "refused.charge", kind="external")


@damage("waits", "effect without approval", "effect unrecorded")
def an_effect_while_a_person_is_still_asked(b: Broken) -> None:
    b.log("began", "waits.charge", kind="external")


@damage("asks", "effect without approval")
def an_effect_before_the_decision(b: Broken) -> None:
    b.relog("asks.charge", "began", at=PAST.timestamp())


@damage("asks", "effect without approval")
def an_effect_about_which_nobody_was_asked(b: Broken) -> None:
    approval = b.approval("asks.refund")
    Decision._base_manager.filter(approval=approval)._raw_delete(connection.alias)
    Approval.objects.filter(pk=approval.pk)._raw_delete(connection.alias)


@damage("cancelled", "effect of a cancelled call", "effect without approval")
def an_effect_of_a_call_that_was_cancelled(b: Broken) -> None:
    b.change(b.call("cancelled.charge"), attempts=1)
    b.log("began", "cancelled.charge", kind="external")


@damage("atomic", "atomic row doubled")
def an_atomic_row_doubled(b: Broken) -> None:
    b.again(Refund.objects.get(reason="atomic.refund"))


@damage("atomic", "atomic row missing")
def an_atomic_row_missing(b: Broken) -> None:
    Refund.objects.get(reason="atomic.refund").delete()


@damage("waits", "atomic row unrecorded", "effect without approval")
def an_atomic_row_of_a_call_that_waits(b: Broken) -> None:
    key = f"waits:{b.call('waits.refund').call_id}"
    b.again(Refund.objects.get(reason="atomic.refund"), reason="waits.refund", idempotency_key=key)


@damage("nobody", "phantom effect")
def an_atomic_row_of_no_call(b: Broken) -> None:
    b.again(Refund.objects.get(reason="atomic.refund"), idempotency_key="nobody:toolu_nowhere")


@damage("edited", "decision not followed", "effect lost")
def a_yes_that_was_not_followed(b: Broken) -> None:
    b.relog("edited.charge")
    b.change(b.call("edited.charge"), outcome="refused")


@damage("atomic", "result differs")
def a_failure_told_as_a_success(b: Broken) -> None:
    b.change(b.call("atomic.fail"), outcome="returned")


@damage("plain", "call failed")
def a_call_that_failed(b: Broken) -> None:
    b.change(b.call("plain.charge"), outcome="failed", is_error=True)


@damage("atomic", "phantom effect")
def an_effect_of_a_tool_that_can_only_fail(b: Broken) -> None:
    b.log("ended", "atomic.fail", kind="external")


@damage("plain", "wrong key")
def one_key_for_two_calls(b: Broken) -> None:
    b.relog("plain.look", key=f"plain:{b.call('plain.charge').call_id}")


@damage("plain", "effect twice", "tool_result orphaned", "call without tool_use")
def an_effect_once_in_each_of_two_calls(b: Broken) -> None:
    again = {"call": "toolu_again", "key": "plain:toolu_again", "kind": "external"}
    b.log("began", "plain.charge", **again)
    b.log("ended", "plain.charge", **again)
    b.again(b.call("plain.charge"), call_id="toolu_again", index=9)


@damage("refused", "effect after a no", "approval and decisions differ")
def an_effect_that_is_recorded_after_a_rejection(b: Broken) -> None:
    b.log("began", "refused.charge", kind="external")
    b.log("ended", "refused.charge", kind="external")
    b.change(b.call("refused.charge"), outcome="returned", attempts=1, is_error=False)
    b.change(b.approval("refused.charge"), status="expired")
