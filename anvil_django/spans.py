"""Runs as spans and metrics, by OpenTelemetry's semantic conventions for generative AI.

Imported only where ``ANVIL["TELEMETRY"]`` is on. A step is told when it was performed here: what a resumed
run finds stored is not told again. All slices of a run are in one trace, whose id follows from the run_id, so
that nothing has to be stored for it. No text of a model, a person or a tool is told without
``TELEMETRY_CONTENT``; error messages never are, since they may hold some.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from . import __version__, exactjson, redaction
from .calls import ToolCall
from .checkpoint import AgentCheckpoint
from .clock import get_clock
from .cost import Usage
from .events import Delta, Event
from .model_call import Answer
from .model_errors import ModelCallError, ModelCallStopped
from .states import ApprovalStatus, RunStatus
from .telemetry import Watch
from .tools import Tool, ToolOutcome

SCOPE = "anvil_django"
PROVIDER = "anthropic"
FAILURES = frozenset({"failed", "timed_out", "unstorable"})
"""The outcomes of a tool that are errors of it."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Spans(Watch):
    """Tells one slice of a run.

    Args:
        content: Also what was said, with the same things hidden as in the admin.
    """

    def __init__(self, *, content: bool) -> None:
        self._content = content
        self._tracer = trace.get_tracer(SCOPE, __version__)
        self._meters = _meters(metrics.get_meter_provider())
        self._run: dict[str, Any] = {}

    def slice(
        self, checkpoint: Callable[[], AgentCheckpoint], events: Generator[Event, None, None]
    ) -> Generator[Event, None, None]:
        run = checkpoint()
        self._run = {"gen_ai.conversation.id": run.run_id, "gen_ai.agent.name": run.agent}
        before, name = run.total_usage, f"invoke_agent {run.agent}"
        around = trace.get_current_span().get_span_context()
        span = self._tracer.start_span(
            name,
            context=trace_of(run.run_id, name),
            links=[Link(around)] if around.is_valid else None,
            attributes={
                **self._run,
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": PROVIDER,
                "gen_ai.request.model": run.prefix["model"],
                "gen_ai.agent.version": exactjson.digest(run.agent, exactjson.dumps(run.prefix))[:8],
                "anvil.run.token": run.token,
            },
        )
        try:
            yield from _within(span, events)
        except Exception as exc:
            _fail(span, type(exc).__qualname__)
            raise
        finally:
            after = checkpoint()
            span.set_attributes({"anvil.run.status": str(after.status), **_usage(after.total_usage, before)})
            if after.stop_reason:
                span.set_attribute("gen_ai.response.finish_reasons", [after.stop_reason])
            if after.status is RunStatus.FAILED:
                _fail(span, after.error_code)
            span.end()

    def chat(
        self,
        checkpoint: AgentCheckpoint,
        request: Mapping[str, Any],
        deltas: Generator[Delta, None, Answer],
    ) -> Generator[Delta, None, Answer]:
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": request["model"],
        }
        span = self._tracer.start_span(
            f"chat {request['model']}",
            kind=SpanKind.CLIENT,
            attributes={
                **self._run,
                **about,
                "gen_ai.request.max_tokens": request["max_tokens"],
                "gen_ai.request.stream": True,
                "anvil.iteration": checkpoint.iterations + 1,
            },
        )
        if self._content:
            span.set_attribute("gen_ai.input.messages", _messages(_new(request["messages"])))
        began = get_clock().monotonic()
        try:
            answer = yield from _within(span, deltas)
            about["gen_ai.response.model"] = answer.model or request["model"]
            self._answered(span, answer, about)
            return answer
        except ModelCallStopped:
            raise  # Somebody asked for it.
        except Exception as exc:
            about["error.type"] = exc.code if isinstance(exc, ModelCallError) else type(exc).__qualname__
            _fail(span, about["error.type"])
            raise
        finally:
            self._meters.operation.record(get_clock().monotonic() - began, about)
            span.end()

    def _answered(self, span: Span, answer: Answer, about: Mapping[str, Any]) -> None:
        usage = Usage.from_api(answer.usage)
        span.set_attributes(
            {
                "gen_ai.response.id": answer.message_id,
                "gen_ai.response.model": about["gen_ai.response.model"],
                "gen_ai.response.finish_reasons": [answer.stop_reason],
                **_usage(usage, Usage()),
            }
        )
        if self._content:
            said = [{"role": "assistant", "content": answer.content}]
            span.set_attribute("gen_ai.output.messages", _messages(said))
        counts = {"input": usage.total - usage.output_tokens, "output": usage.output_tokens}
        for kind, tokens in counts.items():
            self._meters.tokens.record(tokens, {**about, "gen_ai.token.type": kind})

    @contextmanager
    def tool(self, call: ToolCall, tool: Tool) -> Iterator[Callable[[ToolOutcome], object]]:
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        began = get_clock().monotonic()
        with self._tracer.start_as_current_span(
            f"execute_tool {call.name}",
            record_exception=False,
            set_status_on_exception=False,
            attributes={
                **self._run,
                **about,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call.call_id,
                "anvil.tool.effect": tool.effect,
                "anvil.tool.attempt": max(call.attempts, 1),
            },
        ) as span:
            if self._content:
                shown = redaction.shown(call.name, call.arguments)
                span.set_attribute("gen_ai.tool.call.arguments", _json(shown))

            def tell(outcome: ToolOutcome) -> None:
                span.set_attribute("anvil.tool.outcome", outcome.kind)
                if outcome.kind in FAILURES:
                    about["error.type"] = outcome.kind
                    _fail(span, outcome.kind)
                if self._content and outcome.content is not None:
                    shown = redaction.shown(call.name, outcome.content)
                    span.set_attribute("gen_ai.tool.call.result", _json(shown))

            try:
                yield tell
            finally:
                self._meters.tool.record(get_clock().monotonic() - began, about)


def trace_of(run_id: str, name: str) -> Context:
    """The trace of a run, for a new span in it.

    Every worker comes to the same one, and to the same decision whether it is sampled: the site's sampler is
    asked as for a trace that begins here. The span that all slices have as their parent is never sent.
    """
    digest = sha256(f"{SCOPE}:{run_id}".encode()).digest()
    trace_id = int.from_bytes(digest[:16], "big")
    sampler = getattr(trace.get_tracer_provider(), "sampler", None)
    is_sampled = sampler is None or sampler.should_sample(Context(), trace_id, name).decision.is_sampled()
    parent = SpanContext(
        trace_id,
        int.from_bytes(digest[16:24], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT),
    )
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _within(span: Span, items: Generator[Item, None, Result]) -> Generator[Item, None, Result]:
    """Run a generator inside of a span, and whoever consumes it outside."""
    try:
        while True:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                try:
                    item = next(items)
                except StopIteration as end:
                    result: Result = end.value
                    return result
            yield item
    finally:
        items.close()


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _usage(used: Usage, before: Usage) -> dict[str, int]:
    # The convention counts what comes from and goes to the cache as input; ours are counts apart.
    read = used.cache_read_tokens - before.cache_read_tokens
    written = used.cache_write_tokens - before.cache_write_tokens
    return {
        "gen_ai.usage.input_tokens": used.input_tokens - before.input_tokens + read + written,
        "gen_ai.usage.output_tokens": used.output_tokens - before.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_write.input_tokens": written,
    }


# What was said.


def _new(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What came after the model's last answer; what was before is in the spans before."""
    answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[answers[-1] + 1 :] if answers else messages


def _messages(messages: list[dict[str, Any]]) -> str:
    shown = [(each["role"], redaction.shown_content(each["content"])) for each in messages]
    return _json([{"role": role, "parts": list(_parts(content))} for role, content in shown])


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match block.get("type"):
            case "text":
                yield {"type": "text", "content": block["text"]}
            case "tool_use":
                name, arguments = block["name"], block["input"]
                yield {"type": "tool_call", "id": block["id"], "name": name, "arguments": arguments}
            case "tool_result":
                response = block.get("content")
                yield {"type": "tool_call_response", "id": block["tool_use_id"], "response": response}
            case kind:
                yield {"type": str(kind)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# Metrics.


class Meters:
    """The instruments of one meter provider."""

    def __init__(self, provider: metrics.MeterProvider) -> None:
        meter = provider.get_meter(SCOPE, __version__)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="Number of input and output tokens used."
        )
        self.operation = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="GenAI operation duration."
        )
        self.tool = meter.create_histogram(
            "gen_ai.execute_tool.duration", unit="s", description="Duration of a single tool execution."
        )
        self.ended = meter.create_counter(
            "anvil.runs.ended", unit="{run}", description="Runs that are done, have failed or were cancelled."
        )
        self.wait = meter.create_histogram(
            "anvil.approval.wait", unit="s", description="Time from a case's question to its last decision."
        )


@lru_cache(maxsize=2)
def _meters(provider: metrics.MeterProvider) -> Meters:
    # Once for each: a second instrument of one name is warned of.
    return Meters(provider)


def connect() -> None:
    """Listen to what is told after commits."""
    from . import signals

    signals.run_ended.connect(_run_ended, dispatch_uid="anvil_django.telemetry")
    signals.approval_decided.connect(_approval_decided, dispatch_uid="anvil_django.telemetry")


def _run_ended(*, run: Any, **kwargs: Any) -> None:
    about = {"gen_ai.agent.name": run.agent, "anvil.run.status": run.status}
    if run.stop_reason:
        about["anvil.run.stop_reason"] = run.stop_reason
    if run.error_code:
        about["error.type"] = run.error_code
    _meters(metrics.get_meter_provider()).ended.add(1, about)


def _approval_decided(*, approval: Any, decision: Any, **kwargs: Any) -> None:
    if approval.status == str(ApprovalStatus.PENDING):
        return  # Others have to agree.
    waited = (decision.created_at - approval.requested_at).total_seconds()
    about = {
        "gen_ai.agent.name": approval.agent,
        "anvil.approval.kind": approval.kind,
        "anvil.approval.status": approval.status,
    }
    _meters(metrics.get_meter_provider()).wait.record(max(waited, 0.0), about)
