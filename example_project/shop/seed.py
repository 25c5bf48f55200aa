"""Orders and people for the demo. Running it again changes nothing but the passwords, which it sets back."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import transaction
from django.db.models import Q

from .models import Order

ORDERS = [
    ("A-1001", "carla@example.com", "Espresso machine", Decimal("149.90")),
    ("A-1002", "deniz@example.com", "Coffee grinder", Decimal("79.00")),
    ("A-1003", "emil@example.com", "Milk jug", Decimal("18.50")),
]


@dataclass(frozen=True)
class Person:
    username: str
    password: str
    first_name: str
    last_name: str
    does: str
    is_staff: bool = False
    is_superuser: bool = False


CLERK = Person("clerk", "clerk-demo", "Clara", "Clerk", "starts runs")
REVIEWER = Person("reviewer", "reviewer-demo", "Rita", "Reviewer", "decides approvals", is_staff=True)
ADMIN = Person("admin", "admin-demo", "Ada", "Admin", "may do everything", is_staff=True, is_superuser=True)
PEOPLE = [CLERK, REVIEWER, ADMIN]

CLERK_MAY = Q(content_type__app_label="anvil_django", codename="add_run")
REVIEWER_MAY = Q(content_type__app_label="anvil_django", codename="decide_approval") | Q(
    content_type__app_label__in=["anvil_django", "shop"], codename__startswith="view_"
)
MAY = {CLERK: CLERK_MAY, REVIEWER: REVIEWER_MAY}


@transaction.atomic
def seed(say: Callable[[str], object] = print) -> None:
    for number, customer_email, item, amount in ORDERS:
        Order.objects.get_or_create(
            number=number, defaults={"customer_email": customer_email, "item": item, "amount": amount}
        )
    for person in PEOPLE:
        user, _ = get_user_model().objects.update_or_create(
            username=person.username,
            defaults={
                "first_name": person.first_name,
                "last_name": person.last_name,
                "email": f"{person.username}@example.com",
                "is_staff": person.is_staff,
                "is_superuser": person.is_superuser,
            },
        )
        if not user.check_password(person.password):
            user.set_password(person.password)
            user.save(update_fields=["password"])
        if person in MAY:
            user.user_permissions.set(Permission.objects.filter(MAY[person]))
    for person in PEOPLE:
        name = f"{person.first_name} {person.last_name}"
        say(f"  {person.username:<9} {person.password:<14} {name}, {person.does}")
