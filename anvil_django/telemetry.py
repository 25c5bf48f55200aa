"""Whether anybody watches runs from outside, and the places of the loop that say what happens.

Nothing of OpenTelemetry is imported here: without ``ANVIL["TELEMETRY"]`` each of these places costs one call
of a method that hands back what it was given. What is told where it is on stands in ``spans``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

if TYPE_CHECKING:
    from .calls import ToolCall
    from .checkpoint import AgentCheckpoint
    from .conf import Settings
    from .events import Delta, Event
    from .model_call import Answer
    from .tools import Tool, ToolOutcome

logger = logging.getLogger(__name__)


class Watch:
    """Watches nothing."""

    def slice(
        self, checkpoint: Callable[[], AgentCheckpoint], events: Generator[Event, None, None]
    ) -> Generator[Event, None, None]:
        """A worker advances a run.

        Args:
            checkpoint: Gives the run as it stands.
            events: What happens meanwhile; the slice is over when it ends.
        """
        return events

    def chat(
        self,
        checkpoint: AgentCheckpoint,
        request: Mapping[str, Any],
        deltas: Generator[Delta, None, Answer],
    ) -> Generator[Delta, None, Answer]:
        """The model is asked; the call is over when ``deltas`` ends with the answer or an error."""
        return deltas

    def tool(self, call: ToolCall, tool: Tool) -> AbstractContextManager[Callable[[ToolOutcome], object]]:
        """A tool runs while the block does; it is handed a function to tell the outcome to."""
        return _SILENCE


_SILENCE: AbstractContextManager[Callable[[ToolOutcome], object]] = nullcontext(lambda outcome: None)
_NOBODY = Watch()


def watch(settings: Settings) -> Watch:
    """Who watches one slice of a run."""
    if not settings.telemetry:
        return _NOBODY
    try:
        from .spans import Spans
    except ImportError:
        return _NOBODY  # A system check says so.
    return Spans(content=settings.telemetry_content)


def connect() -> None:
    """Count runs that end and the time that cases wait, where the settings ask for telemetry."""
    # Settings that cannot be read must not keep the site from starting: a check names them.
    raw = getattr(django_settings, "ANVIL", {})
    if not isinstance(raw, Mapping) or raw.get("TELEMETRY") is not True:
        return
    try:
        from . import spans
    except ImportError:
        return
    spans.connect()
