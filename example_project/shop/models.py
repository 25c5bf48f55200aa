from decimal import Decimal

from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)
    customer_email = models.EmailField()
    item = models.CharField(max_length=200)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    refunded_amount = models.DecimalField(max_digits=10, decimal_places=2, default=Decimal("0.00"))

    class Meta:
        ordering = ["number"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(refunded_amount__gte=0, refunded_amount__lte=models.F("amount")),
                name="shop_order_refunded_within_amount",
            ),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def refundable(self) -> Decimal:
        return self.amount - self.refunded_amount


class Refund(models.Model):
    """Money given back.

    The key is not unique on purpose: that a refund is paid once is what the runtime promises, and a
    second row would show a broken promise instead of hiding it.
    """

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    reason = models.TextField()
    idempotency_key = models.CharField(max_length=500, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return f"{self.amount} for order {self.order_id}"


class SentEmail(models.Model):
    """An e-mail that left the shop.

    It stands for a mail provider that takes the same e-mail twice, so its key is not unique either.
    """

    to = models.EmailField()
    subject = models.CharField(max_length=998)
    body = models.TextField()
    idempotency_key = models.CharField(max_length=500, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created_at", "id"]
        verbose_name = "sent e-mail"

    def __str__(self) -> str:
        return f"{self.subject} ({self.to})"
