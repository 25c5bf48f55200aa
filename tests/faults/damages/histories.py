"""What can be wrong with a history."""

from __future__ import annotations

from anvil_django.models import Message, Steering

from .broken import Broken, damage

# Histories


@damage("plain", "tool_use unanswered")
def a_tool_use_without_a_result_at_the_end(b: Broken) -> None:
    block = {"type": "tool_use", "id": "toolu_x", "name": "look", "input": {}}
    b.blocks(b.message("plain", -1), lambda content: content.append(block))


@damage("plain", "tool_use unanswered", "effect lost", "phantom effect")
def a_call_whose_row_is_gone(b: Broken) -> None:
    b.call("plain.look").delete()


@damage("plain", "tool_use unanswered", "effect lost")
def a_result_is_gone(b: Broken) -> None:
    b.change(b.call("plain.look"), status="ready", outcome="", result=None)


@damage("asks", "tool_result doubled")
def a_result_given_twice(b: Broken) -> None:
    b.said([{"type": "tool_result", "tool_use_id": b.call("asks.charge").call_id, "content": "Again."}])


@damage("asks", "tool_result orphaned")
def a_result_of_no_call(b: Broken) -> None:
    b.said([{"type": "tool_result", "tool_use_id": "toolu_nowhere", "content": "Here."}])


@damage("plain", "tool_result orphaned", "call without tool_use")
def a_call_that_the_model_never_asked_for(b: Broken) -> None:
    b.again(b.call("plain.look"), call_id="toolu_nowhere", input="{}")


@damage("asks", "results not first", "tool_result orphaned")
def results_after_a_text(b: Broken) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_nowhere", "content": "Here."}
    b.said([{"type": "text", "text": "Well."}, result])


@damage("plain", "results out of order")
def results_in_another_order(b: Broken) -> None:
    b.change(b.call("plain.look"), index=9)


@damage("plain", "tool_use id repeated", "call differs", "tool_use unanswered")
def an_id_used_twice(b: Broken) -> None:
    used = b.call("plain.look").call_id
    block = {"type": "tool_use", "id": used, "name": "look", "input": {}}
    b.blocks(b.message("plain", -1), lambda content: content.append(block))


@damage("plain", "history gap")
def a_number_without_a_message(b: Broken) -> None:
    b.change(b.run("plain"), message_count=b.run("plain").message_count + 1)


@damage("plain", "history gap")
def a_message_too_many(b: Broken) -> None:
    b.change(b.run("plain"), message_count=b.run("plain").message_count - 1)


@damage("plain", "history roles")
def a_history_that_begins_with_the_system(b: Broken) -> None:
    b.change(b.message("plain", 0), role="system")


@damage("asks", "history roles", "message undelivered")
def a_role_that_nobody_has(b: Broken) -> None:
    seq = Steering.objects.filter(run__run_id="asks")[0].placed_seq
    b.change(Message.objects.get(run__run_id="asks", seq=seq), role="tool")


@damage("asks", "empty content")
def a_message_without_content(b: Broken) -> None:
    b.said([])


@damage("asks", "empty content")
def a_blank_text(b: Broken) -> None:
    b.said(" \n")


@damage("plain", "thinking damaged")
def thinking_without_its_signature(b: Broken) -> None:
    b.blocks(b.message("plain", 1), lambda content: content[0].pop("signature"))


@damage("plain", "thinking damaged")
def thinking_in_the_middle(b: Broken) -> None:
    b.blocks(b.message("plain", 1), lambda content: content.insert(1, content.pop(0)))


@damage("plain", "tool_use malformed", "call differs")
def a_tool_name_that_no_tool_can_have(b: Broken) -> None:
    b.blocks(b.message("plain", 1), lambda content: content[-1].update(name="no way"))


@damage("queued", "content unreadable", "empty content")
def content_that_is_no_json(b: Broken) -> None:
    b.change(b.message("queued", 0), content="{")


@damage("plain", "call differs")
def another_tool_than_the_model_wrote(b: Broken) -> None:
    b.change(b.call("plain.look"), name="glance")


@damage("queued", "content unreadable", "empty content")
def content_that_is_no_list(b: Broken) -> None:
    b.change(b.message("queued", 0), content="5")


@damage("asks", "history roles")
def a_user_who_asks_for_a_tool(b: Broken) -> None:
    b.said([{"type": "tool_use", "id": "toolu_x", "name": "look", "input": {}}])


@damage("plain", "tool_use malformed", "call differs")
def an_input_that_is_no_object(b: Broken) -> None:
    b.blocks(b.message("plain", 1), lambda content: content[-1].update(input=[]))


@damage("plain", "history roles")
def two_ends_of_one_turn(b: Broken) -> None:
    last = b.message("plain", -1)
    b.again(last, seq=last.seq + 1, stop_reason="", content='[{"type":"text","text":"plain is over."}]')
    b.change(b.run("plain"), message_count=last.seq + 2)


@damage("plain", "tool_result orphaned", "tool_use unanswered", "call differs")
def a_result_in_another_place(b: Broken) -> None:
    b.change(b.call("plain.look"), seq=0)


@damage("asks", "thinking damaged")
def thinking_of_a_user(b: Broken) -> None:
    b.said([{"type": "thinking", "thinking": "Hm.", "signature": "x"}])


@damage("plain", "empty content")
def a_result_of_blanks(b: Broken) -> None:
    b.change(b.call("plain.look"), result='[{"type":"text","text":" "}]')
