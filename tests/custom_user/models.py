from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models


class PersonManager(BaseUserManager["Person"]):
    def create_user(self, email: str, **values: Any) -> Person:
        return self.create(email=email, **values)


class Person(AbstractBaseUser, PermissionsMixin):
    """Somebody known by an e-mail address alone."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(unique=True)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)

    objects = PersonManager()

    USERNAME_FIELD = "email"

    def __str__(self) -> str:
        return self.email
