"""What the scripted model answers in the demo, so that it runs with no key and always the same way."""

from anvil_django.testing import Turn, say, thinking, tool_call

CUSTOMER_MESSAGE = (
    "Order A-1001: the espresso machine arrived with a cracked water tank. "
    "Please refund it in full and confirm by e-mail to carla@example.com."
)


def support_script() -> list[Turn]:
    """The conversation that follows `CUSTOMER_MESSAGE`, one model answer after the other."""
    return [
        say(
            thinking("I need the order first: what was paid and what is left to refund."),
            "I will look the order up.",
            tool_call("lookup_order", {"number": "A-1001"}),
        ),
        say(
            thinking("149.90 was paid and nothing refunded yet. It arrived broken: a full refund is due."),
            "The order is confirmed. I am refunding it in full.",
            tool_call(
                "refund_order",
                {"number": "A-1001", "amount": "149.90", "reason": "Arrived with a cracked water tank."},
            ),
        ),
        say(
            "The refund is made. I am writing to the customer.",
            tool_call(
                "send_email",
                {
                    "to": "carla@example.com",
                    "subject": "Your refund for order A-1001",
                    "body": "Hello Carla,\n\nwe have refunded 149.90 for your espresso machine. "
                    "We are sorry that it arrived broken.\n\nThe shop",
                },
            ),
        ),
        say("I refunded 149.90 for order A-1001 and confirmed it by e-mail to carla@example.com."),
    ]
