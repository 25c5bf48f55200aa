"""The support agent. `agents.py` of every installed app is imported when Django starts, like `admin.py`."""

from decimal import Decimal

from anvil_django import Agent, ApprovalRequiredError, ToolContext, register, tool

from .models import Order, Refund, SentEmail

APPROVAL_THRESHOLD = Decimal("100.00")


@tool
def lookup_order(number: str) -> dict[str, str]:
    """Look up an order: what was bought, for how much, and how much of it was refunded.

    Args:
        number: The order number on the receipt, for example A-1001.
    """
    order = Order.objects.filter(number=number).first()
    if order is None:
        raise ValueError(f"There is no order {number}. Ask the customer for the number on the receipt.")
    return {
        "number": order.number,
        "customer_email": order.customer_email,
        "item": order.item,
        "amount": str(order.amount),
        "refunded_amount": str(order.refunded_amount),
    }


@tool(side_effect=True, atomic=True)
def refund_order(number: str, amount: Decimal, reason: str, ctx: ToolContext) -> str:
    """Refund an order, fully or in part. Amounts above 100.00 wait for a person's approval.

    Args:
        number: The order number on the receipt.
        amount: How much to give back, with at most two decimal places.
        reason: Why, in one sentence; the reviewer reads it.
    """
    order = Order.objects.select_for_update().filter(number=number).first()
    if order is None:
        raise ValueError(f"There is no order {number}. Nothing was refunded.")
    if amount > order.refundable:
        raise ValueError(
            f"Order {number} has {order.refundable} left to refund; {amount} is more. Nothing was refunded."
        )
    if amount <= 0 or amount != round(amount, 2):
        raise ValueError(
            f"{amount} is not an amount of money: it must be above 0, with at most two decimal places."
        )
    if amount > APPROVAL_THRESHOLD and not ctx.approved:
        raise ApprovalRequiredError(
            {"order": number, "customer": order.customer_email, "amount": str(amount), "reason": reason}
        )

    order.refunded_amount += amount
    order.save(update_fields=["refunded_amount"])
    Refund.objects.create(order=order, amount=amount, reason=reason, idempotency_key=ctx.idempotency_key)
    return f"Refunded {amount:.2f} for order {number}."


@tool(side_effect=True)
def send_email(to: str, subject: str, body: str, ctx: ToolContext) -> str:
    """Send an e-mail to a customer.

    Args:
        to: The customer's e-mail address.
        subject: The subject line.
        body: The text of the e-mail.
    """
    SentEmail.objects.create(to=to, subject=subject, body=body, idempotency_key=ctx.idempotency_key)
    return f"Sent to {to}."


register(
    Agent(
        name="support",
        description="Answers customers: looks their orders up, refunds them and writes e-mails.",
        model="claude-sonnet-5-5",
        system=(
            "You are the support agent of a small shop. Look an order up before you act on it. "
            "Refund only what the customer is owed, and tell the customer by e-mail once the refund is made. "
            "When a tool reports an error, say so plainly; never claim something was done that was not."
        ),
        tools=[lookup_order, refund_order, send_email],
        max_iterations=20,
        max_cost_usd=Decimal("0.50"),
    )
)
