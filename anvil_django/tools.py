"""``@tool``: what an agent can do, and what may be assumed about it after a crash."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, cast, overload

from typing_extensions import ParamSpec, TypeVar

from . import exactjson, tool_results, tool_runs
from .errors import AgentDefinitionError, ApprovalRequiredError, NotJSONError
from .tool_context import ToolContext
from .tool_options import ApprovalRule, ToolOptions
from .tool_results import ToolOutcome
from .tool_runs import note_approval_request
from .tool_schema import FunctionInputs, Inputs, InvalidToolInput

__all__ = [
    "Gate",
    "InvalidToolInput",
    "ServerTool",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "adapt",
    "note_approval_request",
    "tool",
]

logger = logging.getLogger("anvil_django.tools")

Effect: TypeAlias = Literal["none", "external", "atomic"]

# With defaults, so that ``Tool`` alone means a tool of any signature.
P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)


@dataclass(frozen=True)
class Gate:
    """Whether a call must wait for a person before it runs, and why."""

    required: bool
    reason: str = ""
    failed: bool = False
    """Whether the tool's rule gave no answer, so that a person is asked to be safe."""


class Tool(Generic[P, R]):
    """One tool of an agent; made with ``@tool``, and still callable like the function.

    Attributes:
        name: What the model calls it.
        side_effect: Whether it changes the world outside the run.
        atomic: Whether its own database writes and the record of its result commit together.
        on_interrupt: What to do when it was started and its outcome is unknown: ``"ask"``, ``"retry"`` or
            ``"fail"``; None for tools that are never in doubt (read-only and atomic ones).
        requires_approval: True, False, or the rule that decides from the arguments.
        reviewers: Who may decide: the name of a group or a permission; None for whoever may decide at all.
        approvals: How many different people must agree.
        approval_ttl: How long an approval may wait; None for the site's default.
        escalate_to: Who may decide too once ``escalate_after`` has passed; None for nobody.
        timeout: Seconds a call may take; None for no limit.
        strict: Whether the API is asked to keep to the schema.
    """

    __name__: str

    def __init__(
        self, fn: Callable[P, R], inputs: Inputs, name: str, options: ToolOptions, *, strict: bool = False
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.inputs = inputs
        self.name = name
        self.strict = strict
        self.side_effect = options.side_effect
        self.atomic = options.atomic
        self.on_interrupt = options.on_interrupt
        self.requires_approval = options.requires_approval
        self.reviewers = options.reviewers
        self.approvals = options.approvals
        self.approval_ttl = options.approval_ttl
        self.escalate_to = options.escalate_to
        self.escalate_after = options.escalate_after
        self.timeout = options.timeout

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with none of what a run adds."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name} ({self.effect})>"

    @property
    def effect(self) -> Effect:
        """``"none"`` for a read-only tool, ``"atomic"``, or ``"external"`` for any other side effect."""
        if not self.side_effect:
            return "none"
        return "atomic" if self.atomic else "external"

    @property
    def description(self) -> str:
        """What the model is told the tool does."""
        return str(self.definition().get("description", ""))

    def definition(self) -> dict[str, Any]:
        """The ``ToolParam`` for the Messages API: the same bytes in every process.

        Raises:
            AgentDefinitionError: The parameters cannot be described; the message says what to change.
        """
        found: dict[str, Any] = exactjson.loads(self._definition_text)
        return found

    @functools.cached_property
    def _definition_text(self) -> str:
        return exactjson.dumps(exactjson.encode(self.inputs.describe(), path=f"tool {self.name}"))

    def validate(self, input: Any) -> dict[str, Any]:
        """Turn the model's input into Python arguments (a ``Decimal`` for a ``Decimal``), defaults filled in.

        Raises:
            InvalidToolInput: The input does not fit; the message tells the model why, line by line.
        """
        return self.inputs.validate(input)

    def gate(self, arguments: dict[str, Any], ctx: ToolContext) -> Gate:
        """Whether the call must wait for a person. All but a clear False from the tool's rule means yes.

        Args:
            arguments: What ``validate`` returned. The rule gets a copy, so it cannot change what will run.
            ctx: The context of the call.
        """
        rule = self.requires_approval
        if isinstance(rule, bool):
            return Gate(rule, f"{self.name} always needs approval." if rule else "")
        try:
            verdict = cast(Any, rule(copy.deepcopy(arguments), ctx))
        except Exception as exc:
            logger.exception(
                "The approval rule of tool %s failed; the call waits for a person",
                self.name,
                extra={"run_id": ctx.run_id},
            )
            return Gate(True, f"The approval rule of {self.name} failed ({type(exc).__name__}).", failed=True)
        if verdict is False:
            return Gate(False)
        if verdict is True:
            return Gate(True, f"The approval rule of {self.name} asks for a person for these arguments.")
        if inspect.iscoroutine(verdict):
            verdict.close()
        kind = type(verdict).__name__
        reason = f"The approval rule of {self.name} answered neither True nor False (but {kind})."
        return Gate(True, reason, failed=True)

    def run(self, arguments: dict[str, Any], ctx: ToolContext, *, result_limit: int) -> ToolOutcome:
        """Call the function and say what came of it; no ``Exception`` escapes.

        A call that asked for approval anywhere, even where the tool caught the error itself, needs approval;
        one that asks although a person has approved it has failed. A call over its time limit is
        ``timed_out``: an ``async def`` is cancelled, but the thread of a plain function cannot be killed and
        goes on until the function returns, so its effect may still happen.

        Args:
            arguments: What ``validate`` returned.
            ctx: The context of the call, handed to the function if it has a parameter for it.
            result_limit: Most characters of the content.
        """
        changes = self.side_effect
        with tool_runs.approval_requests() as requests:
            try:
                keywords = dict(arguments)
                if self.inputs.context_parameter is not None:
                    keywords[self.inputs.context_parameter] = ctx
                value = tool_runs.call(self.fn, keywords, timeout=self.timeout)
                outcome = tool_results.returned(
                    value, result_limit, name=self.name, changes_the_world=changes
                )
            except tool_runs.ExpiredError:
                # Before any request for approval: the function may still be at work.
                return tool_results.timed_out(
                    self.name, self.timeout or 0, result_limit, changes_the_world=changes
                )
            except ApprovalRequiredError as exc:
                requests.append(exc)
            except Exception as exc:
                about = {"run_id": ctx.run_id}
                kind = type(exc).__name__
                logger.info("Tool %s failed in call %s: %s", self.name, ctx.call_id, kind, extra=about)
                logger.debug("The failure of tool %s", self.name, exc_info=True, extra=about)
                outcome = tool_results.failed(exc, result_limit)
        if not requests:
            return outcome
        if ctx.approved is not True:
            return tool_results.needs_approval(requests[-1], result_limit)
        return tool_results.failed_because(
            f"{self.name} asked for approval although a person had already approved this call. "
            "It is not asked again; do not repeat the call.",
            result_limit,
            error="ApprovalRequiredError",
        )


@dataclass(frozen=True)
class ServerTool:
    """A tool that the API itself runs, such as web search; only its definition is ours."""

    text: str

    @property
    def name(self) -> str:
        """Its name, or its type where it has none."""
        definition = self.definition()
        return str(definition.get("name") or definition["type"])

    def definition(self) -> dict[str, Any]:
        """The definition as it was given."""
        found: dict[str, Any] = exactjson.loads(self.text)
        return found


class _SDKInputs:
    """The inputs of an object made with the SDK's ``@beta_tool``: it describes and checks itself."""

    context_parameter = None

    def __init__(self, sdk_tool: Any) -> None:
        self.sdk_tool = sdk_tool

    def describe(self) -> dict[str, Any]:
        return dict(self.sdk_tool.to_dict())

    def validate(self, input: Any) -> dict[str, Any]:
        if not isinstance(input, dict):
            raise InvalidToolInput(f"The input of {self.sdk_tool.name} must be an object; nothing was run.")
        return dict(input)


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    side_effect: bool = ...,
    atomic: bool = ...,
    on_interrupt: Literal["ask", "retry", "fail"] | None = ...,
    requires_approval: ApprovalRule = ...,
    reviewers: str | None = ...,
    approvals: int = ...,
    approval_ttl: timedelta | float | None = ...,
    escalate_to: str | None = ...,
    escalate_after: timedelta | float | None = ...,
    timeout: float | None = ...,
    name: str | None = ...,
    description: str | None = ...,
    strict: bool = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    side_effect: bool = False,
    atomic: bool = False,
    on_interrupt: str | None = None,
    requires_approval: ApprovalRule = False,
    reviewers: str | None = None,
    approvals: int = 1,
    approval_ttl: timedelta | float | None = None,
    escalate_to: str | None = None,
    escalate_after: timedelta | float | None = None,
    timeout: float | None = None,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
) -> Any:
    """Make a function a tool; used bare (``@tool``) or with arguments.

    The schema the model sees comes from the type hints and the docstring. A parameter annotated
    ``ToolContext`` is filled in by the run and does not appear in it. ``async def`` works.

    Args:
        fn: The function.
        side_effect: It changes the world outside the run: it is never run twice for one call.
        atomic: All its effects are in this database: they commit together with the record of its result.
        on_interrupt: For a side effect that was started and whose outcome is unknown: ``"ask"`` a person (the
            default), ``"retry"`` (it is idempotent and uses ``ctx.idempotency_key``) or ``"fail"``.
        requires_approval: True, or a function of the arguments and the context that returns True or False.
            If it fails or returns anything else, a person is asked.
        reviewers: Who may decide: the name of a group or a permission.
        approvals: How many different people must agree; one rejection rejects.
        approval_ttl: How long an approval may wait: a timedelta or seconds. Expired, it counts as a no.
        escalate_to: A second group or permission that may decide too, ``escalate_after`` it was asked.
        escalate_after: A timedelta or seconds.
        timeout: Seconds a call may take.
        name: What the model calls it; the function's name if None.
        description: What the model is told; the docstring's text if None.
        strict: Ask the API to keep to the schema (which is reduced to what the API supports).

    Raises:
        AgentDefinitionError: The definition cannot work; the message says what to change.
    """

    def make(function: Callable[..., Any]) -> Tool:
        if isinstance(function, Tool):
            raise AgentDefinitionError(f"{function.name!r} is a tool already. Decorate the function once.")
        keywords: dict[str, Any] = {
            "side_effect": side_effect,
            "atomic": atomic,
            "on_interrupt": on_interrupt,
            "requires_approval": requires_approval,
            "reviewers": reviewers,
            "approvals": approvals,
            "approval_ttl": approval_ttl,
            "escalate_to": escalate_to,
            "escalate_after": escalate_after,
            "timeout": timeout,
        }
        if _is_sdk_tool(function):
            sdk_tool: Any = function
            if name or description or strict:
                raise AgentDefinitionError(
                    f"Tool {sdk_tool.name!r} comes from the SDK. "
                    "Give name, description and strict to the SDK's own decorator."
                )
            return _from_sdk(sdk_tool, ToolOptions.checked(sdk_tool.name, **keywords))
        if isinstance(function, type) or not callable(function):
            raise AgentDefinitionError(f"@tool decorates a function, not {function!r}.")
        called = name or str(getattr(function, "__name__", ""))
        options = ToolOptions.checked(called, **keywords)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise AgentDefinitionError(f"Tool {called!r} is a generator. Return one value, such as a list.")
        inputs = FunctionInputs(function, called, description, strict)
        return Tool(function, inputs, called, options, strict=strict)

    return make if fn is None else make(fn)


def adapt(obj: object) -> Tool | ServerTool:
    """The tool behind anything an agent's ``tools`` may hold.

    Args:
        obj: A ``Tool``; an object made with the SDK's ``@beta_tool`` or ``@beta_async_tool``, which counts as
            read-only (wrap it as ``tool(side_effect=True)(obj)`` if it is not); or the dict of a server tool.

    Raises:
        AgentDefinitionError: It is none of these.
    """
    if isinstance(obj, (Tool, ServerTool)):
        return obj
    if _is_sdk_tool(obj):
        return _from_sdk(obj, ToolOptions())
    if isinstance(obj, Mapping):
        kind = obj.get("type")
        if not isinstance(kind, str) or kind == "custom":
            raise AgentDefinitionError(
                f"The tool dict {obj.get('name')!r} describes a tool that nothing here can run. "
                "Write it as a function decorated with @tool; only server tools may be dicts."
            )
        try:
            return ServerTool(exactjson.dumps(exactjson.encode(dict(obj), path=f"tool {kind}")))
        except NotJSONError as exc:
            raise AgentDefinitionError(f"The server tool {kind!r} is not JSON: {exc}") from exc
    if inspect.isroutine(obj):
        raise AgentDefinitionError(
            f"{getattr(obj, '__name__', obj)!r} is a plain function. Decorate it with @tool."
        )
    raise AgentDefinitionError(
        f"{type(obj).__name__} is not a tool. Use functions decorated with @tool, "
        "the SDK's @beta_tool objects, or the dicts of server tools."
    )


def _is_sdk_tool(obj: object) -> bool:
    if isinstance(obj, (type, Mapping)):
        return False
    return all(callable(getattr(obj, part, None)) for part in ("to_dict", "call")) and isinstance(
        getattr(obj, "name", None), str
    )


def _from_sdk(sdk_tool: Any, options: ToolOptions) -> Tool:
    def call(**arguments: Any) -> Any:
        return sdk_tool.call(arguments)

    strict = sdk_tool.to_dict().get("strict") is True
    return Tool(call, _SDKInputs(sdk_tool), sdk_tool.name, options, strict=strict)
