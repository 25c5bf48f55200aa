"""Moments and amounts of dollars in the pages of runs, as the language has them."""

from __future__ import annotations

from django import template

from ..admin.rendering import dollars, moment

register = template.Library()

register.filter("anvil_moment", moment)
register.filter("anvil_dollars", dollars)
