"""The damages that the auditor is tested with, by what they damage."""

from . import decisions, effects, histories, states
from .broken import DAMAGES, Borrowed, Broken, Damage

__all__ = ["DAMAGES", "Borrowed", "Broken", "Damage", "decisions", "effects", "histories", "states"]
