"""What a running agent says while it runs: small frozen values, never stored.

An event is for whoever watches. The history of a run is made of complete answers only; a delta that was
shown and whose call then failed never happened.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, in the order in which it was generated."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's visible thinking (models that omit their thinking send none)."""

    text: str


#: What one model call yields while its answer arrives.
Delta = TextDelta | ThinkingDelta
