"""What the scripted model says: once in the demo, and to whoever clicks through `--serve`."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from anvil_django.testing import Request, Turn, say, tool_call
from example_project.shop.script import support_script

INTERRUPTED_CALL = 2
"""Number of the model call in which the demo kills the worker."""


def demo_script() -> list[Turn]:
    """The shop's script, with one answer that takes so long that the worker dies waiting for it."""
    turns = support_script()
    at = INTERRUPTED_CALL - 1
    # The request that the next worker sends in its place is answered soon, but not before it can be seen.
    turns[at] = replace(turns[at], delay=0.3).after(replace(turns[at], delay=120.0))
    return turns


def serving_script() -> Callable[[Request], Turn]:
    """A stand-in for a model that handles any order, asked for in any words."""
    return _answer


def _answer(request: Request) -> Turn:
    number = re.search(r"\bA-\d{4}\b", request.opening)
    if number is None:
        return say("Please give me the order number on your receipt, for example A-1001.", delay=0.5)
    name, result, failed = _last_result(request.body["messages"])
    if name is None:
        return say("I will look the order up.", tool_call("lookup_order", {"number": number[0]}), delay=0.5)
    if failed:
        return say(f"I could not do that: {result}", delay=0.5)
    if name == "lookup_order":
        return _after_lookup(json.loads(result), wants_refund="refund" in request.opening.lower())
    if name == "refund_order":
        # The address was in the first result.
        order = json.loads(_results(request.body["messages"])[0]["content"])
        subject = f"Your refund for order {order['number']}"
        mail = {"to": order["customer_email"], "subject": subject, "body": f"Hello,\n\n{result}\n\nThe shop"}
        return say(
            "The refund is made. I am writing to the customer.", tool_call("send_email", mail), delay=0.5
        )
    return say("The refund is made and the customer has been told by e-mail.", delay=0.5)


def _after_lookup(order: dict[str, str], *, wants_refund: bool) -> Turn:
    left = Decimal(order["amount"]) - Decimal(order["refunded_amount"])
    if not wants_refund:
        paid, refunded = order["amount"], order["refunded_amount"]
        text = f"Order {order['number']}: {order['item']} for {paid}, {refunded} refunded."
        return say(text, delay=0.5)
    if left <= 0:
        return say(
            f"Order {order['number']} was refunded in full before. There is nothing left to refund.",
            delay=0.5,
        )
    asked = {"number": order["number"], "amount": str(left), "reason": "The customer asked for it."}
    return say("The order is confirmed. I am refunding it.", tool_call("refund_order", asked), delay=0.5)


def _results(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = (
        block for message in messages if isinstance(message["content"], list) for block in message["content"]
    )
    return [block for block in blocks if block["type"] == "tool_result"]


def _last_result(messages: list[dict[str, Any]]) -> tuple[str | None, str, bool]:
    """Name of the tool that was run last, its result as text, and whether that is an error."""
    results = _results(messages)
    if not results:
        return None, "", False
    last = results[-1]
    names = {
        block["id"]: block["name"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_use"
    }
    content = last["content"]
    text = content if isinstance(content, str) else "\n".join(b.get("text", "") for b in content)
    return names[last["tool_use_id"]], text, bool(last.get("is_error"))
