"""What OpenTelemetry is told of a run: its spans, its metrics, and what it is not told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from anvil_django import approvals, runs, signals, start_run, stream_agent, tasks, telemetry
from anvil_django.checkpoint import Checkpointer
from anvil_django.clients import default_client
from anvil_django.clock import FixedClock
from anvil_django.conf import get_settings
from anvil_django.models import Approval, Run
from anvil_django.stores import MemoryStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, fault, kill_at, say, tool_call

from .world import registered_agent, reviewer

pytestmark = pytest.mark.django_db

LOOK = tool_call("look", {"thing": "lamp"}, id="toolu_1")


class Told:
    """What has been told so far."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans of ours, in the order of their beginnings."""
        ours = [
            s for s in self.exporter.get_finished_spans() if s.instrumentation_scope.name == "anvil_django"
        ]
        return sorted(ours, key=lambda span: span.start_time)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The points of one metric: attributes, and a sum or a value."""
        data = self.reader.get_metrics_data()
        return [
            (dict(point.attributes), getattr(point, "sum", None) or getattr(point, "value", 0))
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Told]:
    """A site with telemetry and an exporter."""
    told = Told()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: told.provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: told.meters)
    settings.ANVIL = {**settings.ANVIL, "TELEMETRY": True}
    telemetry.connect()
    with registered_agent():
        yield told
    for signal in (signals.run_ended, signals.approval_decided):
        assert signal.disconnect(dispatch_uid="anvil_django.telemetry")


def test_a_slice_is_a_span_with_each_model_call_and_each_tool_in_it(
    told: Told, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("I look.", LOOK), say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    tasks.advance("r1")

    model = "claude-sonnet-5-5"
    assert told.names == ["invoke_agent worldly", f"chat {model}", "execute_tool look", f"chat {model}"]
    whole, first, tool, _ = told.spans
    assert {span.parent.span_id for span in (first, tool)} == {whole.context.span_id}
    assert [span.kind for span in (whole, first, tool)] == [
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]
    about_the_run = {"gen_ai.conversation.id": "r1", "gen_ai.agent.name": "worldly"}
    assert all(about_the_run.items() <= span.attributes.items() for span in told.spans)
    run = runs.get("r1")
    read = run.input_tokens + run.cache_read_tokens + run.cache_write_tokens
    assert {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": model,
        "gen_ai.agent.version": run.version.digest[:8],
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": read,
        "gen_ai.usage.output_tokens": run.output_tokens,
        "anvil.run.status": "done",
        "anvil.run.token": 1,
    }.items() <= whole.attributes.items()
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "anvil.iteration": 1,
    }.items() <= first.attributes.items()
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "toolu_1",
        "anvil.tool.effect": "none",
        "anvil.tool.outcome": "returned",
    }.items() <= tool.attributes.items()
    assert all(span.status.status_code is StatusCode.UNSET for span in told.spans)


def test_the_tokens_of_the_calls_are_those_of_the_run(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(LOOK), say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    tasks.advance("r1")

    run = runs.get("r1")
    chats = [span.attributes for span in told.spans if span.name.startswith("chat")]
    for kind, tokens in {
        "input": run.input_tokens + run.cache_read_tokens + run.cache_write_tokens,
        "output": run.output_tokens,
    }.items():
        assert sum(chat[f"gen_ai.usage.{kind}_tokens"] for chat in chats) == tokens
        (measured,) = [
            total
            for about, total in told.points("gen_ai.client.token.usage")
            if about["gen_ai.token.type"] == kind
        ]
        assert measured == tokens
    assert sum(chat["gen_ai.usage.cache_read.input_tokens"] for chat in chats) == run.cache_read_tokens


def test_a_resumed_run_stays_one_trace_and_nothing_is_told_twice(
    told: Told, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(LOOK, tool_call("deploy", {"version": "1"}, id="toolu_2")), say("Done."))
    start_run("worldly", "Deploy.", run_id="r1")
    assert tasks.advance("r1") == "suspended"
    approvals.approve(Approval.objects.get(), user=reviewer(), channel="code")
    assert tasks.advance("r1") == "done"

    assert [name.partition(" ")[0] for name in told.names] == [
        "invoke_agent",
        "chat",
        "execute_tool",
        "invoke_agent",
        "execute_tool",
        "chat",
    ]
    assert len({span.context.trace_id for span in told.spans}) == 1
    first, second = (span for span in told.spans if span.name == "invoke_agent worldly")
    assert (first.attributes["anvil.run.status"], second.attributes["anvil.run.status"]) == (
        "suspended",
        "done",
    )
    # Each slice says what it has used, so that the sum is what the run has used.
    used = [span.attributes["gen_ai.usage.output_tokens"] for span in (first, second)]
    assert sum(used) == runs.get("r1").output_tokens


def test_another_process_comes_to_the_same_trace(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    tasks.advance("r1")
    code = (
        "from anvil_django.spans import trace_of; from opentelemetry import trace; "
        "print(trace.get_current_span(trace_of('r1', 'x')).get_span_context().trace_id)"
    )

    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(other.stdout) == told.spans[0].context.trace_id


def test_a_step_that_a_crash_interrupted_is_told_when_it_is_done_again(
    told: Told, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(LOOK), say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    with pytest.raises(Kill), kill_at("tool.before"):
        tasks.advance("r1")
    clock.advance(100)
    tasks.recover()
    assert tasks.advance("r1") == "done"

    assert [name.partition(" ")[0] for name in told.names] == [
        "invoke_agent",
        "chat",
        "invoke_agent",
        "execute_tool",
        "chat",
    ]


def test_errors_are_told_by_their_codes(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    refused = fault.http(400, "invalid_request_error", "about order A-1")
    messages_api.script(say(tool_call("broken", {"why": "secret smoke"})), say("Done.").after(refused))
    start_run("worldly", "Break it.", run_id="r1")
    assert tasks.advance("r1") == "failed"

    tool, whole = told.span("execute_tool broken"), told.span("invoke_agent worldly")
    assert (tool.status.status_code, tool.attributes["error.type"]) == (StatusCode.ERROR, "failed")
    code = runs.get("r1").error_code
    assert (whole.status.status_code, whole.attributes["error.type"]) == (StatusCode.ERROR, code)
    (chat,) = [
        span for span in told.spans if span.name.startswith("chat") and "error.type" in span.attributes
    ]
    assert chat.attributes["error.type"] == code
    told_of = "".join(span.to_json() for span in told.spans)
    assert not [word for word in ("secret smoke", "order A-1") if word in told_of]
    runs.retry("r1")
    assert tasks.advance("r1") == "done"
    assert len({span.context.trace_id for span in told.spans}) == 1


def test_a_call_that_waits_for_a_person_is_no_error(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    from .world import order

    order(amount="500.00")
    messages_api.script(say(tool_call("refund", {"number": "A-1", "amount": "500"})))
    start_run("worldly", "Refund it.", run_id="r1")
    assert tasks.advance("r1") == "suspended"

    tool = told.span("execute_tool refund")
    assert (tool.status.status_code, tool.attributes["anvil.tool.outcome"]) == (
        StatusCode.UNSET,
        "needs_approval",
    )


def test_nothing_that_was_said_is_told_unless_it_is_asked_for(
    told: Told, messages_api: ScriptedMessagesAPI, settings: Any
) -> None:
    def tell(run_id: str) -> str:
        messages_api.script(say("I look.", LOOK), say("It shines."), match=f"[{run_id}]")
        start_run("worldly", f"Look at it. [{run_id}]", run_id=run_id)
        assert tasks.advance(run_id) == "done"
        return "".join(span.to_json() for span in told.spans)

    quiet = tell("r1")
    assert not [word for word in ("Look at it", "I look", "lamp", "It shines") if word in quiet]
    settings.ANVIL = {**settings.ANVIL, "TELEMETRY_CONTENT": True}
    told.exporter.clear()
    tell("r2")

    first, second = (span.attributes for span in told.spans if span.name.startswith("chat"))
    assert json.loads(first["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Look at it. [r2]"}]}
    ]
    asked = {"type": "tool_call", "id": "toolu_1", "name": "look", "arguments": {"thing": "lamp"}}
    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "I look."}, asked]}
    ]
    (answered,) = json.loads(second["gen_ai.input.messages"])
    assert [part["type"] for part in answered["parts"]] == ["tool_call_response"]
    tool = told.span("execute_tool look").attributes
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"thing": "lamp"}
    assert "fine" in tool["gen_ai.tool.call.result"]


def test_what_is_hidden_elsewhere_is_hidden_here(
    told: Told, messages_api: ScriptedMessagesAPI, settings: Any
) -> None:
    settings.ANVIL = {**settings.ANVIL, "TELEMETRY_CONTENT": True, "REDACT": ["thing"]}
    messages_api.script(say(LOOK), say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    tasks.advance("r1")

    assert "lamp" not in "".join(span.to_json() for span in told.spans)


def test_a_run_in_a_trace_of_the_site_is_linked_to_it(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Fine."))
    with trace.get_tracer("site", tracer_provider=told.provider).start_as_current_span("request") as request:
        events = stream_agent("worldly", "Look.", checkpoint=Checkpointer(MemoryStateStore(), "r1"))
        for _ in events:
            # Whoever watches is in its own span, not in one of the run.
            assert trace.get_current_span() is request

    whole = told.span("invoke_agent worldly")
    assert [link.context.span_id for link in whole.links] == [request.get_span_context().span_id]
    assert whole.context.trace_id != request.get_span_context().trace_id


def test_a_run_that_is_no_longer_watched_ends_its_spans(
    told: Told, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Fine."))
    events = stream_agent("worldly", "Look.", checkpoint=Checkpointer(MemoryStateStore(), "r1"))
    next(events)
    events.close()

    assert set(told.names) == {"invoke_agent worldly", "chat claude-sonnet-5-5"}


def test_the_sites_sampler_decides_for_whole_runs(told: Told, messages_api: ScriptedMessagesAPI) -> None:
    told.provider.sampler = ParentBased(ALWAYS_OFF)
    messages_api.script(say("Fine."))
    start_run("worldly", "Look.", run_id="r1")
    assert tasks.advance("r1") == "done"

    assert told.names == []


def test_metrics_count_runs_by_their_ends_and_time_what_people_and_tools_take(
    told: Told, messages_api: ScriptedMessagesAPI, clock: FixedClock, django_capture_on_commit_callbacks: Any
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "1"})), say("Done."))
    with django_capture_on_commit_callbacks(execute=True):
        start_run("worldly", "Deploy.", run_id="r1")
        tasks.advance("r1")
        Approval.objects.update(requested_at=F("requested_at") - timedelta(seconds=90))
        approvals.approve(Approval.objects.get(), user=reviewer(), channel="code")
        tasks.advance("r1")
    with django_capture_on_commit_callbacks(execute=True):
        start_run("worldly", "Hello.", run_id="r2")
        runs.cancel("r2")

    agent = {"gen_ai.agent.name": "worldly"}
    assert sorted(told.points("anvil.runs.ended"), key=str) == [
        ({**agent, "anvil.run.status": "cancelled", "anvil.run.stop_reason": "cancelled"}, 1),
        ({**agent, "anvil.run.status": "done", "anvil.run.stop_reason": "end_turn"}, 1),
    ]
    ((about, waited),) = told.points("anvil.approval.wait")
    assert about == {**agent, "anvil.approval.kind": "tool", "anvil.approval.status": "approved"}
    assert waited == pytest.approx(90, abs=1)
    assert [about["gen_ai.tool.name"] for about, _ in told.points("gen_ai.execute_tool.duration")] == [
        "deploy"
    ]
    (about, _), *_ = told.points("gen_ai.client.operation.duration")
    assert about["gen_ai.operation.name"] == "chat"


def test_without_the_setting_nothing_is_imported_and_nothing_is_told() -> None:
    code = (
        "import sys, django; django.setup(); from anvil_django import loop, telemetry; "
        "from anvil_django.conf import get_settings; "
        "w = telemetry.watch(get_settings()); g = iter(()); assert w.slice(None, g) is g; "
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'anvil_django.spans'))])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout == "[]\n"


def test_where_opentelemetry_is_missing_runs_go_on_untold(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ANVIL = {**settings.ANVIL, "TELEMETRY": True}
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "anvil_django.spans", raising=False)
    import anvil_django

    monkeypatch.delattr(anvil_django, "spans", raising=False)

    assert type(telemetry.watch(get_settings())) is telemetry.Watch
    telemetry.connect()
    assert not signals.run_ended.has_listeners(Run)


@pytest.mark.parametrize("on", [True, False])
def test_the_default_clients_own_spans_are_off_where_ours_are_on(
    settings: Any, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    settings.ANVIL = {"TELEMETRY": on}

    assert default_client().open_telemetry["traces"]["enabled"] is not on


# The docs.


def test_all_that_is_told_is_in_the_docs() -> None:
    root = Path(__file__).parent.parent
    names = re.findall(
        r'"((?:gen_ai|anvil|error)\.[a-z_.]+)"', (root / "anvil_django" / "spans.py").read_text()
    )
    documented = (root / "docs" / "telemetry.md").read_text()

    assert len(set(names)) > 30
    assert [name for name in sorted(set(names)) if f"`{name}`" not in documented] == []
