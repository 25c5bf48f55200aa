from django.contrib import admin

from .models import Order, Refund, SentEmail


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", "customer_email", "item", "amount", "refunded_amount"]
    search_fields = ["number", "customer_email"]


@admin.register(Refund)
class RefundAdmin(admin.ModelAdmin):
    list_display = ["order", "amount", "reason", "idempotency_key", "created_at"]
    list_select_related = ["order"]
    readonly_fields = ["idempotency_key", "created_at"]


@admin.register(SentEmail)
class SentEmailAdmin(admin.ModelAdmin):
    list_display = ["subject", "to", "idempotency_key", "created_at"]
    readonly_fields = ["idempotency_key", "created_at"]
