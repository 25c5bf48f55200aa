"""What can be wrong with decisions, and with usage and money."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

from .broken import PAST, Broken, damage

# Decisions


@damage("refused", "decision without a person")
def a_decision_by_nobody(b: Broken) -> None:
    b.change(b.decision("refused.charge"), reviewer="nobody in time")


@damage("refused", "decision without a person")
def a_decision_without_an_account(b: Broken) -> None:
    b.change(b.decision("refused.charge"), channel="admin", reviewer_key="")


@damage("edited", "digest mismatch")
def a_decision_about_something_else(b: Broken) -> None:
    b.change(b.decision("edited.charge"), edited_input='{"name":"edited.charge","nap":9.0}')


@damage("waits", "digest mismatch")
def a_question_about_something_else(b: Broken) -> None:
    b.change(b.approval("waits.charge"), digest="0" * 64)


@damage("asks", "digest mismatch", "call differs")
def arguments_changed_after_the_decision(b: Broken) -> None:
    b.change(b.call("asks.charge"), input='{"name":"asks.charge","nap":9.0}')


@damage("refused", "decided twice")
def a_decision_on_what_was_decided(b: Broken) -> None:
    b.again(b.decision("refused.charge"))


@damage("asks", "decided twice", "approval and decisions differ")
def one_person_counts_for_two(b: Broken) -> None:
    b.again(b.decision("asks.charge"))
    b.change(b.approval("asks.charge"), needed=2)


@damage("asks", "approval and decisions differ")
def a_second_person_is_missing(b: Broken) -> None:
    b.change(b.approval("asks.charge"), needed=2)


@damage("refused", "approval and decisions differ")
def an_approval_that_stands_otherwise_than_decided(b: Broken) -> None:
    b.change(b.approval("refused.charge"), status="expired")


@damage("happened", "approval and decisions differ")
def decided_at_no_time(b: Broken) -> None:
    b.change(b.approval("happened.charge"), decided_at=None)


@damage("edited", "approval misused", "effect without approval")
def a_yes_that_was_not_used_up(b: Broken) -> None:
    b.change(b.approval("edited.charge"), used_at=None)


@damage("happened", "approval misused")
def used_although_it_lets_nothing_run(b: Broken) -> None:
    b.change(b.approval("happened.charge"), used_at=PAST)


# Usage and money


@damage("plain", "usage differs")
def usage_off_by_one(b: Broken) -> None:
    b.change(b.run("plain"), input_tokens=b.run("plain").input_tokens + 1)


@damage("plain", "usage differs")
def usage_that_was_not_billed(b: Broken) -> None:
    row, run = b.message("plain", -1), b.run("plain")
    usage = json.loads(row.usage)
    b.change(row, usage=json.dumps({**usage, "output_tokens": usage["output_tokens"] + 1}))
    b.change(run, output_tokens=run.output_tokens + 1)


@damage("plain", "answer not billed")
def an_answer_that_nobody_gave(b: Broken) -> None:
    b.change(b.message("plain", -1), message_id="msg_nowhere")


@damage("plain", "answer stored twice")
def an_answer_stored_twice(b: Broken) -> None:
    first, last = b.message("plain", 1), b.message("plain", -1)
    b.change(last, message_id=first.message_id)
    b.facts.billed.extend(
        replace(item, response_id=first.message_id)
        for item in [*b.facts.billed]
        if item.response_id == last.message_id
    )


@damage("plain", "cost differs")
def a_cost_that_is_not_the_sum(b: Broken) -> None:
    b.change(b.run("plain"), cost_usd=Decimal("0.5"))


@damage("refused", "approval and decisions differ", "effect lost")
def an_answer_to_another_question(b: Broken) -> None:
    b.change(b.decision("refused.charge"), verdict="unknown")


@damage("edited", "approval misused", "effect unrecorded")
def used_and_never_started(b: Broken) -> None:
    b.change(b.call("edited.charge"), attempts=0)
