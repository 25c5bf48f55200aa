"""Tools: what may be defined, what the model sees, and what every call comes to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import dataclasses
import enum
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from django.contrib.auth.models import Group

from anvil_django.errors import AgentDefinitionError, ApprovalRequiredError
from anvil_django.tools import (
    Gate,
    InvalidToolInput,
    ServerTool,
    Tool,
    ToolContext,
    ToolOutcome,
    adapt,
    note_approval_request,
    tool,
)

LIMIT = 10_000


class Reason(enum.Enum):
    BROKEN = "broken"
    LATE = "late"


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal


class Killed(BaseException):
    """Stands for SystemExit, KeyboardInterrupt and the kill points of the tests."""


def context(**changes: Any) -> ToolContext:
    return ToolContext(**{"run_id": "run", "call_id": "call", "idempotency_key": "key", **changes})


def run(made: Tool, *, limit: int = LIMIT, approved: bool = False, **arguments: Any) -> ToolOutcome:
    return made.run(arguments, context(approved=approved), result_limit=limit)


def returning(value: Any, **options: Any) -> Tool:
    @tool(**options)
    def look() -> Any:
        """Look."""
        return value

    return look


def raising(exc: BaseException, **options: Any) -> Tool:
    @tool(**options)
    def look() -> str:
        """Look."""
        raise exc

    return look


@tool(side_effect=True, atomic=True)
def refund(
    number: str,
    amount: Decimal,
    ctx: ToolContext,
    reason: Reason = Reason.BROKEN,
    lines: list[Line] | None = None,
    tags: frozenset[str] = frozenset({"b", "a", "c", "d"}),
) -> str:
    """Refund an order.

    The money goes back to the card.

    Args:
        number: The order number
            on the receipt.
        amount: How much, in dollars.
    """
    return f"{number}: {amount} for {reason.value} in {ctx.run_id}"


class TestDefinition:
    def test_the_model_sees_what_the_signature_and_the_docstring_say(self) -> None:
        definition = refund.definition()
        assert list(definition) == ["name", "description", "input_schema"]
        assert definition["name"] == "refund"
        assert definition["description"] == "Refund an order.\n\nThe money goes back to the card."
        schema = definition["input_schema"]
        assert list(schema)[:2] == ["type", "properties"]
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert schema["required"] == ["number", "amount"]
        assert list(schema["properties"]) == ["number", "amount", "reason", "lines", "tags"]
        assert schema["properties"]["number"] == {
            "type": "string",
            "description": "The order number\non the receipt.",
        }
        assert schema["properties"]["reason"]["default"] == "broken"
        assert schema["properties"]["tags"]["default"] == ["a", "b", "c", "d"]
        assert schema["$defs"]["Reason"]["enum"] == ["broken", "late"]
        assert list(schema["$defs"]["Line"]["properties"]) == ["sku", "price"]

    def test_its_bytes_are_the_same_in_every_process(self) -> None:
        code = """
import enum, json
from anvil_django.tools import tool

class Kind(enum.Enum):
    B = "b"
    A = "a"

@tool
def find(
    names: frozenset[str] = frozenset({"b", "a", "c", "d"}), kind: Kind = Kind.B, more: str | int = 1
) -> str:
    '''Find.

    Args:
        more: More.
        names: Names.
    '''
    return ""

print(json.dumps(find.definition()))
"""
        texts = set()
        for seed in ("1", "2", "3"):
            env = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run(
                [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
            )
            texts.add(done.stdout)
        assert len(texts) == 1
        assert '"default": ["a", "b", "c", "d"]' in texts.pop()

    def test_changing_the_returned_definition_changes_nothing(self) -> None:
        refund.definition()["input_schema"].clear()
        assert refund.definition()["input_schema"]

    @pytest.mark.parametrize("style", ["google", "numpy", "rest"])
    def test_parameters_are_described_in_any_docstring_style(self, style: str) -> None:
        docs = {
            "google": "Find.\n\n    Args:\n        number: The number.\n    ",
            "numpy": "Find.\n\n    Parameters\n    ----------\n    number : str\n        The number.\n    ",
            "rest": "Find.\n\n    :param number: The number.\n    ",
        }

        def find(number: str) -> str:
            return number

        find.__doc__ = docs[style]
        definition = tool(find).definition()
        assert definition["description"] == "Find."
        assert definition["input_schema"]["properties"]["number"]["description"] == "The number."

    def test_a_description_in_the_annotation_wins(self) -> None:
        @tool
        def find(number: Annotated[str, pydantic.Field(description="From the type.", title="No.")]) -> str:
            """Find.

            Args:
                number: From the docstring.
            """
            return number

        prop = find.definition()["input_schema"]["properties"]["number"]
        assert prop == {"description": "From the type.", "title": "No.", "type": "string"}

    def test_parameters_may_be_named_like_attributes_of_pydantic_models(self) -> None:
        @tool
        def odd(schema: str, json: int, model_config: bool, _private: str = "x", copy: str = "c") -> str:
            """Take odd names."""
            return f"{schema}{json}{model_config}{_private}{copy}"

        names = list(odd.definition()["input_schema"]["properties"])
        assert names == ["schema", "json", "model_config", "_private", "copy"]
        arguments = odd.validate({"schema": "s", "json": 1, "model_config": True})
        assert run(odd, **arguments).content == "s1Truexc"

    def test_a_tool_may_take_nothing(self) -> None:
        assert returning("x").definition()["input_schema"] == {
            "type": "object",
            "properties": {},
            "additionalProperties": False,
        }

    def test_strict_reduces_the_schema_to_what_the_api_supports(self) -> None:
        @tool(strict=True)
        def find(number: Annotated[int, pydantic.Field(gt=3)]) -> str:
            """Find."""
            return str(number)

        definition = find.definition()
        assert definition["strict"] is True
        assert definition["input_schema"]["properties"]["number"]["type"] == "integer"
        assert "exclusiveMinimum" not in definition["input_schema"]["properties"]["number"]
        assert definition["input_schema"]["additionalProperties"] is False

    def test_name_and_description_can_be_given(self) -> None:
        @tool(name="find-it", description="Find it.")
        def find(number: str) -> str:
            return number

        assert (find.name, find.description) == ("find-it", "Find it.")
        assert find.definition()["name"] == "find-it"

    def test_it_stays_callable_like_the_function(self) -> None:
        assert refund("1", Decimal(2), context()) == "1: 2 for broken in run"
        assert refund.__name__ == "refund"
        assert (refund.__doc__ or "").startswith("Refund an order.")

    def test_hints_are_resolved_only_when_needed(self) -> None:
        def later(order: LaterOrder) -> str:  # type: ignore[name-defined]  # noqa: F821
            """Use a type that does not exist yet."""
            return str(order)

        made = tool(later)
        with pytest.raises(AgentDefinitionError, match=r"annotations of tool 'later' cannot be resolved"):
            made.definition()

    def test_a_type_without_schema_is_a_definition_error(self) -> None:
        @tool
        def lend(lock: threading.Thread) -> str:
            """Lend."""
            return ""

        with pytest.raises(AgentDefinitionError, match="parameters of tool 'lend' have no JSON schema"):
            lend.definition()

    def test_a_default_without_json_form_is_left_out_of_the_schema(self) -> None:
        marker = object()

        @tool
        def find(number: Any = marker) -> str:
            """Find."""
            return str(number is marker)

        assert find.definition()["input_schema"]["properties"]["number"] == {}
        assert run(find, **find.validate({})).content == "True"

    def test_defaults_of_the_options(self) -> None:
        @tool
        def reads() -> str:
            """Read."""
            return ""

        @tool(side_effect=True, approval_ttl=90, timeout=3, reviewers="Support")
        def writes() -> str:
            """Write."""
            return ""

        assert (reads.effect, reads.on_interrupt, reads.side_effect) == ("none", None, False)
        assert (writes.effect, writes.on_interrupt, writes.side_effect) == ("external", "ask", True)
        assert (refund.effect, refund.on_interrupt, refund.atomic) == ("atomic", None, True)
        assert (writes.approval_ttl, writes.timeout, writes.reviewers) == (
            timedelta(seconds=90),
            3,
            "Support",
        )

    def test_importing_the_module_is_cheap(self) -> None:
        code = (
            "import sys, anvil_django.tools\n"
            "late = {'anthropic', 'django.db', 'pydantic', 'docstring_parser'}\n"
            "sys.exit(', '.join(late & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stderr == "\n"


def bad_star(*numbers: int) -> str:
    """Take stars."""
    return ""


def bad_double_star(**numbers: int) -> str:
    """Take stars."""
    return ""


def bad_positional(number: int, /) -> str:
    """Take a position."""
    return ""


def bad_untyped(number) -> str:  # type: ignore[no-untyped-def]
    """Take anything."""
    return ""


def bad_contexts(a: ToolContext, b: ToolContext | None) -> str:
    """Take two."""
    return ""


def bad_undocumented(number: int) -> str:
    return ""


def bad_generator() -> Any:
    """Yield."""
    yield 1


class TestDefinitionErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"atomic": True}, "Add side_effect=True"),
            ({"on_interrupt": "ask"}, "read-only tool is simply run again"),
            ({"side_effect": True, "on_interrupt": "maybe"}, '"ask", "retry" or "fail"'),
            ({"side_effect": True, "atomic": True, "on_interrupt": "retry"}, "never in doubt"),
            ({"side_effect": True, "atomic": True, "timeout": 3}, "Remove timeout"),
            ({"timeout": 0}, "above 0"),
            ({"timeout": -1}, "above 0"),
            ({"timeout": float("nan")}, "above 0"),
            ({"timeout": True}, "above 0"),
            ({"name": "no spaces"}, "letters, digits"),
            ({"name": "x" * 129}, "letters, digits"),
            ({"name": "line\n"}, "letters, digits"),
            ({"approval_ttl": 0}, "above 0"),
            ({"approval_ttl": timedelta(0)}, "above 0"),
            ({"approval_ttl": "1h"}, "timedelta or a number of seconds"),
            ({"requires_approval": "yes"}, "plain function"),
            ({"requires_approval": None}, "plain function"),
            ({"reviewers": ""}, "group or a permission"),
            ({"side_effect": "yes"}, "must be True or False"),
        ],
    )
    def test_options_that_cannot_work_say_what_to_do(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(AgentDefinitionError, match=message):
            returning("x", **options)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (bad_star, r"takes \*numbers"),
            (bad_double_star, r"takes \*\*numbers"),
            (bad_positional, "Remove the slash"),
            (bad_untyped, "has no type annotation"),
            (bad_contexts, r"more than one ToolContext parameter \(a, b\)"),
            (bad_undocumented, "Give the function a docstring"),
            (bad_generator, "is a generator"),
            (lambda: "x", "letters, digits"),
            (Line, "decorates a function"),
            (3, "decorates a function"),
            (refund, "is a tool already"),
        ],
    )
    def test_functions_that_cannot_work_say_what_to_do(self, function: Any, message: str) -> None:
        with pytest.raises(AgentDefinitionError, match=message):
            tool(function)

    def test_an_async_approval_rule_is_refused(self) -> None:
        async def rule(arguments: dict[str, Any], ctx: ToolContext) -> bool:
            return False

        with pytest.raises(AgentDefinitionError, match="plain function"):
            returning("x", requires_approval=rule)

    def test_a_docstring_of_parameters_alone_is_no_description(self) -> None:
        def find(number: str) -> str:
            """
            Args:
                number: The number.

            Returns:
                The same.
            """
            return number

        with pytest.raises(AgentDefinitionError, match="does not say what the tool does"):
            tool(find).definition()


class TestValidation:
    def test_arguments_are_python_values_and_defaults_are_filled_in(self) -> None:
        arguments = refund.validate(
            {"number": "7", "amount": "10.50", "reason": "late", "lines": [{"sku": "a", "price": 1}]}
        )
        assert arguments == {
            "number": "7",
            "amount": Decimal("10.50"),
            "reason": Reason.LATE,
            "lines": [Line(sku="a", price=Decimal(1))],
            "tags": frozenset({"a", "b", "c", "d"}),
        }

    def test_the_message_names_every_reason_with_its_path(self) -> None:
        with pytest.raises(InvalidToolInput) as caught:
            refund.validate({"amount": "much", "lines": [{"sku": "a"}], "ctx": {}, "why": 1})
        assert caught.value.message.splitlines() == [
            "The input does not fit the schema of refund; nothing was run. Correct it:",
            "- number: Field required",
            "- amount: Input should be a valid decimal",
            "- lines[0].price: Field required",
            "- ctx: Extra inputs are not permitted",
            "- why: Extra inputs are not permitted",
        ]

    @pytest.mark.parametrize("value", [None, "text", [1], 3])
    def test_anything_but_an_object_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidToolInput, match="must be an object"):
            refund.validate(value)

    def test_the_message_stays_short_and_storable(self) -> None:
        with pytest.raises(InvalidToolInput) as caught:
            refund.validate({f"\0{'x' * 5_000}{n}": n for n in range(500)})
        assert len(caught.value.message) < 20_000
        assert "and 482 more" in caught.value.message
        assert "\0" not in caught.value.message
        with pytest.raises(InvalidToolInput) as caught:
            refund.validate({"\ud800": 1, "number": "\ud800"})
        caught.value.message.encode()

    def test_a_failing_validator_is_invalid_input(self) -> None:
        def check(value: str) -> str:
            raise TypeError("odd")

        @tool
        def find(number: Annotated[str, pydantic.AfterValidator(check)]) -> str:
            """Find."""
            return number

        find.fn.__annotations__["number"] = Annotated[str, pydantic.AfterValidator(check)]
        with pytest.raises(InvalidToolInput, match=r"could not be checked \(TypeError: odd\)"):
            find.validate({"number": "1"})

    def test_a_mutable_default_is_never_shared(self) -> None:
        @tool
        def find(names: list[str] = []) -> str:  # noqa: B006
            """Find."""
            names.append("x")
            return ",".join(names)

        assert [run(find, **find.validate({})).content for _ in range(2)] == ["x", "x"]


class TestGate:
    def test_without_a_rule_nothing_waits(self) -> None:
        assert returning("x").gate({}, context()) == Gate(False)

    def test_true_always_waits(self) -> None:
        assert returning("x", requires_approval=True).gate({}, context()).required is True

    def test_the_rule_sees_arguments_and_context(self) -> None:
        gated = returning("x", requires_approval=lambda args, ctx: args["amount"] > 100 and ctx.user == "bob")
        assert gated.gate({"amount": 101}, context(user="bob")).required is True
        assert gated.gate({"amount": 100}, context(user="bob")).required is False

    @pytest.mark.parametrize("answer", [None, 0, 1, "", "no", [], object()])
    def test_an_answer_that_is_no_bool_waits(self, answer: Any) -> None:
        gate = returning("x", requires_approval=lambda args, ctx: answer).gate({}, context())
        assert gate.required is True
        assert "neither True nor False" in gate.reason

    def test_a_failing_rule_waits(self, caplog: pytest.LogCaptureFixture) -> None:
        gate = returning("x", requires_approval=lambda args, ctx: args["missing"]).gate({}, context())
        assert gate == Gate(True, "The approval rule of look failed (KeyError).", failed=True)
        assert "The approval rule of tool look failed" in caplog.text

    def test_a_rule_that_returns_a_coroutine_waits(self) -> None:
        async def later() -> bool:
            return False

        assert (
            returning("x", requires_approval=lambda args, ctx: later()).gate({}, context()).required is True
        )

    def test_the_rule_cannot_change_what_will_run(self) -> None:
        def rule(arguments: dict[str, Any], ctx: ToolContext) -> bool:
            arguments["lines"].append("more")
            arguments.clear()
            return False

        arguments = {"lines": ["one"]}
        returning("x", requires_approval=rule).gate(arguments, context())
        assert arguments == {"lines": ["one"]}


class TestResults:
    @pytest.mark.parametrize(
        ("value", "content"),
        [
            ("text", "text"),
            ("", "(no output)"),
            (" \n\t", "(no output)"),
            (None, "(no output)"),
            (0, "0"),
            (False, "false"),
            ([], "[]"),
            ({"total": Decimal("1.50"), "day": date(2026, 12, 1)}, '{"total":"1.50","day":"2026-12-01"}'),
            ({"name": "Zoë 😀"}, '{"name":"Zoë 😀"}'),
            (float("nan"), "NaN"),
            ("a\0\ud800", "a\ufffd\ufffd"),
            ({"a": "\0"}, '{"a":"\ufffd"}'),
            ([{"type": "text", "text": "a\0"}], [{"type": "text", "text": "a\ufffd"}]),
            (
                [
                    {"type": "text", "text": " "},
                    {"type": "image", "source": {"type": "url", "url": "x"}},
                    {"type": "tool_reference", "tool_name": "t"},
                ],
                [
                    {"type": "image", "source": {"type": "url", "url": "x"}},
                    {"type": "tool_reference", "tool_name": "t"},
                ],
            ),
            ([{"type": "text", "text": ""}], "(no output)"),
            ([{"type": "document", "id": 3}], '[{"type":"document","id":3}]'),
            ([{"type": "text", "text": "a"}, {"id": 3}], '[{"type":"text","text":"a"},{"id":3}]'),
        ],
    )
    def test_what_a_tool_returns_becomes_valid_content(self, value: Any, content: Any) -> None:
        outcome = run(returning(value))
        assert outcome == ToolOutcome(kind="returned", content=content)
        assert outcome.is_error is False

    def test_a_pydantic_model_is_encoded(self) -> None:
        assert run(returning(Line(sku="a", price=Decimal(2)))).content == '{"sku":"a","price":"2"}'

    @pytest.mark.parametrize("limit", [60, 100, 999])
    def test_long_text_is_cut_with_a_note_inside_the_limit(self, limit: int) -> None:
        content = run(returning("😀" * 1_000), limit=limit).content
        assert isinstance(content, str)
        assert len(content) <= limit
        kept = content.count("😀")
        assert content == "😀" * kept + f"\n[cut: {kept} of 1000 characters]"
        assert kept > limit - 40

    def test_text_of_just_the_limit_is_whole(self) -> None:
        assert run(returning("x" * 100), limit=100).content == "x" * 100

    def test_long_json_is_cut_too(self) -> None:
        content = run(returning(list(range(1_000))), limit=100).content
        assert isinstance(content, str)
        assert "[cut: " in content

    def test_blocks_share_the_limit(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 500}}
        value = [
            {"type": "text", "text": "x" * 300},
            image,
            {"type": "text", "text": "y" * 300},
            image,
            image,
        ]
        content = run(returning(value), limit=400).content
        assert isinstance(content, list)
        assert content[0] == value[0]
        assert content[1] == {"type": "text", "text": "[left out: image of 578 characters, limit 400]"}
        assert content[2]["text"].endswith("of 300 characters]")
        assert content[3:] == [{"type": "text", "text": "[left out: 2 more blocks, limit 400 characters]"}]

    def test_many_blocks_do_not_get_around_the_limit(self) -> None:
        content = run(returning([{"type": "text", "text": "x" * 50}] * 5_000), limit=1_000).content
        assert len(json.dumps(content)) < 3_000

    def test_a_value_without_json_form_is_unstorable_and_the_path_is_named(self) -> None:
        outcome = run(returning({"order": [Group(name="x")]}))
        assert outcome.kind == "unstorable"
        assert outcome.is_error is True
        assert outcome.content == (
            "look returned something that cannot be stored: "
            "result.order[0] is a model instance (auth.Group). Use a dict of the fields the agent needs."
        )

    def test_a_finished_side_effect_says_that_it_must_not_be_repeated(self) -> None:
        content = run(returning(Group.objects.none(), side_effect=True)).content
        assert isinstance(content, str)
        assert "its effect has happened" in content
        assert content.endswith("Do not call it again for that reason.")

    def test_a_value_whose_own_code_fails_is_unstorable(self) -> None:
        @dataclasses.dataclass
        class Odd:
            name: str = "x"

            def __getattribute__(self, key: str) -> Any:
                if key == "name":
                    raise ZeroDivisionError
                return super().__getattribute__(key)

        outcome = run(returning({"a": Odd()}))
        assert (outcome.kind, outcome.error) == ("unstorable", "ZeroDivisionError")


class TestFailures:
    def test_the_model_is_told_class_and_message_and_no_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        outcome = run(raising(LookupError("no such order")))
        assert outcome == ToolOutcome(
            kind="failed", content="LookupError: no such order", error="LookupError"
        )
        assert "no such order" not in caplog.text

    def test_a_message_is_cleaned_and_cut(self) -> None:
        content = run(raising(ValueError("\0\ud800" + "x" * 50_000))).content
        assert isinstance(content, str)
        assert content.startswith("ValueError: \ufffd\ufffdx")
        assert len(content) <= 2_000

    def test_an_exception_without_a_message_is_its_class(self) -> None:
        assert run(raising(KeyError())).content == "KeyError"

    def test_an_exception_that_cannot_be_printed_is_its_class(self) -> None:
        class OddError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        assert run(raising(OddError())).content == "OddError"

    def test_endless_recursion_is_a_failure(self) -> None:
        @tool
        def spin() -> Any:
            """Spin."""
            return spin()

        assert run(spin).error == "RecursionError"

    def test_arguments_the_function_does_not_take_are_a_failure(self) -> None:
        assert run(returning("x"), nonsense=1).error == "TypeError"

    def test_the_content_of_the_sdks_tool_error_is_used(self) -> None:
        assert run(raising(ToolError("plain"))).content == "plain"
        blocks: Any = [
            {"type": "text", "text": "See:"},
            {"type": "image", "source": {"type": "url", "url": "x"}},
        ]
        outcome = run(raising(ToolError(blocks)))
        assert outcome.kind == "failed"
        assert outcome.content == [
            {"type": "text", "text": "See:"},
            {"type": "text", "text": "[left out: image; an error can hold only text]"},
        ]

    @pytest.mark.parametrize("options", [{}, {"timeout": 5}])
    @pytest.mark.parametrize("exc", [Killed(), KeyboardInterrupt(), SystemExit(3)])
    def test_what_ends_the_process_goes_through(self, exc: BaseException, options: dict[str, Any]) -> None:
        with pytest.raises(type(exc)):
            run(raising(exc, **options))

    @pytest.mark.parametrize("options", [{}, {"timeout": 5}])
    def test_what_ends_the_process_goes_through_a_coroutine(self, options: dict[str, Any]) -> None:
        @tool(**options)
        async def look() -> str:
            """Look."""
            raise Killed

        with pytest.raises(Killed):
            run(look)


class TestContext:
    def test_it_is_handed_over_and_not_part_of_the_schema(self) -> None:
        @tool
        def look(number: int, ctx: ToolContext | None = None) -> Any:
            """Look."""
            return [number, ctx.idempotency_key if ctx else None]

        assert list(look.definition()["input_schema"]["properties"]) == ["number"]
        assert run(look, **look.validate({"number": 1})).content == '[1,"key"]'

    def test_the_user_is_loaded_once_and_only_when_asked_for(self) -> None:
        loads: list[str] = []

        def load() -> str:
            loads.append("x")
            return "bob"

        ctx = context(load_user=load)
        assert "bob" not in repr(ctx)
        assert loads == []
        assert (ctx.user, ctx.user, loads) == ("bob", "bob", ["x"])

    def test_a_copy_keeps_the_user(self) -> None:
        assert dataclasses.replace(context(user="bob"), approved=True).user == "bob"
        assert context().user is None

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            context().approved = True  # type: ignore[misc]


def swallows_everything() -> str:
    """Swallow."""
    with contextlib.suppress(Exception):
        raise ApprovalRequiredError({"amount": Decimal("101.00")})
    return "done anyway"


async def swallows_in_a_coroutine() -> str:
    """Swallow."""
    return await asyncio.get_running_loop().run_in_executor(
        None, contextvars.copy_context().run, swallows_everything
    )


def swallows_and_fails() -> str:
    """Swallow."""
    swallows_everything()
    raise ValueError("something else")


def only_makes_it() -> str:
    """Make."""
    ApprovalRequiredError({"amount": Decimal("101.00")})
    return "done anyway"


def raises_it() -> str:
    """Raise."""
    raise ApprovalRequiredError({"amount": Decimal("101.00")})


class TestApprovalRequests:
    @pytest.mark.parametrize("timeout", [None, 5])
    @pytest.mark.parametrize(
        "function",
        [raises_it, swallows_everything, swallows_in_a_coroutine, swallows_and_fails, only_makes_it],
    )
    def test_a_call_that_asked_waits_whatever_became_of_the_error(
        self, function: Callable[..., Any], timeout: float | None
    ) -> None:
        outcome = run(tool(timeout=timeout)(function))
        assert outcome.kind == "needs_approval"
        assert outcome.payload == {"amount": "101.00"}

    @pytest.mark.parametrize("function", [raises_it, swallows_everything])
    def test_a_call_that_asks_again_after_approval_has_failed(self, function: Callable[..., Any]) -> None:
        outcome = run(tool(function), approved=True)
        assert outcome.kind == "failed"
        assert "already approved this call" in str(outcome.content)

    def test_the_next_call_is_not_touched(self) -> None:
        run(tool(raises_it))
        assert run(returning("x")).kind == "returned"

    def test_a_run_within_a_tool_keeps_its_requests_to_itself(self) -> None:
        @tool
        def outer() -> str:
            """Run another agent's tool."""
            return run(tool(raises_it)).kind

        assert run(outer).content == "needs_approval"

    def test_outside_a_call_the_error_is_an_ordinary_exception(self) -> None:
        note_approval_request(ApprovalRequiredError())
        assert run(returning("x")).kind == "returned"

    def test_a_payload_that_cannot_be_stored_does_not_lose_the_request(self) -> None:
        outcome = run(raising(ApprovalRequiredError({"order": Group(name="x")})))
        assert outcome.kind == "needs_approval"
        assert outcome.payload["note"].startswith(
            "The payload cannot be stored: payload.order is a model instance"
        )

    def test_a_long_payload_is_cut(self) -> None:
        outcome = run(raising(ApprovalRequiredError({"text": "x" * 500})), limit=100)
        assert outcome.payload["cut"] == "[cut: 100 of 511 characters]"
        assert len(outcome.payload["text"]) == 100


class TestCoroutinesAndTimeLimits:
    def test_async_tools_run(self) -> None:
        @tool
        async def look(number: int, ctx: ToolContext) -> Any:
            """Look."""
            await asyncio.sleep(0)
            return {"number": number, "run": ctx.run_id}

        assert run(look, number=1).content == '{"number":1,"run":"run"}'

    def test_async_tools_reach_the_orm_in_the_callers_thread(self) -> None:
        from asgiref.sync import sync_to_async

        @tool
        async def look() -> int:
            """Look."""
            return await sync_to_async(threading.get_ident)()

        assert run(look).content == str(threading.get_ident())

    def test_a_plain_function_may_return_a_coroutine(self) -> None:
        async def work() -> str:
            return "done"

        @tool
        def look() -> Any:
            """Look."""
            return work()

        assert run(look).content == "done"

    def test_an_async_tool_over_its_time_is_cancelled(self) -> None:
        ended: list[str] = []

        @tool(side_effect=True, timeout=0.01)
        async def slow() -> str:
            """Be slow."""
            try:
                await asyncio.sleep(30)
            finally:
                ended.append("cancelled")
            return "late"

        outcome = run(slow)
        assert outcome.kind == "timed_out"
        assert outcome.content == (
            "slow was not finished after 0.01 seconds. "
            "It is not known whether its effect has happened or will still happen."
        )
        assert ended == ["cancelled"]

    def test_a_plain_tool_over_its_time_is_left_behind(self) -> None:
        release, finished = threading.Event(), threading.Event()

        @tool(timeout=0.01)
        def slow() -> str:
            """Be slow."""
            release.wait(10)
            finished.set()
            return "late"

        outcome = run(slow)
        assert (outcome.kind, outcome.content) == ("timed_out", "slow was not finished after 0.01 seconds.")
        release.set()
        assert finished.wait(10)

    def test_a_request_for_approval_does_not_hide_that_the_time_is_over(self) -> None:
        release = threading.Event()

        @tool(side_effect=True, timeout=0.05)
        def slow() -> str:
            """Ask, and go on all the same."""
            swallows_everything()
            release.wait(10)
            return "late"

        assert run(slow).kind == "timed_out"
        release.set()

    @pytest.mark.parametrize("exc", [TimeoutError("their side"), concurrent.futures.TimeoutError()])
    def test_a_timeout_of_the_tools_own_is_a_failure(self, exc: Exception) -> None:
        @tool(timeout=5)
        async def look() -> str:
            """Look."""
            raise exc

        assert run(look).kind == "failed"
        assert run(raising(exc, timeout=5)).kind == "failed"

    @pytest.mark.parametrize("timeout", [None, 5])
    def test_a_coroutine_that_cancels_itself_is_a_failure(self, timeout: float | None) -> None:
        @tool(timeout=timeout)
        async def look() -> str:
            """Look."""
            raise asyncio.CancelledError

        assert run(look).kind == "failed"

    def test_a_thread_sees_the_callers_context_variables(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("set")

        @tool(timeout=5)
        def look() -> str:
            """Look."""
            return f"{variable.get()} {threading.current_thread() is threading.main_thread()}"

        assert run(look).content == "set False"

    def test_a_thread_closes_its_own_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import django.db

        closed = threading.Event()
        threads: list[int] = []

        def close_all() -> None:
            threads.append(threading.get_ident())
            closed.set()

        monkeypatch.setattr(django.db.connections, "close_all", close_all)
        assert run(returning("x", timeout=5)).content == "x"
        assert closed.wait(10)
        assert threads != [threading.get_ident()]


@beta_tool
def sdk_weather(city: str, unit: Literal["c", "f"] = "c") -> str:
    """Look up the weather.

    Args:
        city: The city.
    """
    return f"{city} in {unit}"


@beta_async_tool
async def sdk_async(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


class TestAdapt:
    def test_a_tool_is_itself(self) -> None:
        assert adapt(refund) is refund

    def test_the_sdks_tools_are_read_only_tools(self) -> None:
        made = adapt(sdk_weather)
        assert isinstance(made, Tool)
        assert (made.name, made.effect, made.description) == ("sdk_weather", "none", "Look up the weather.")
        assert made.definition() == sdk_weather.to_dict()
        assert run(made, **made.validate({"city": "Rome"})).content == "Rome in c"
        assert made.gate({}, context()) == Gate(False)

    def test_the_sdks_async_tools_run(self) -> None:
        made = adapt(sdk_async)
        assert isinstance(made, Tool)
        assert run(made, city="Rome").content == "sunny in Rome"

    def test_the_sdks_refusal_of_arguments_tells_the_reasons(self) -> None:
        made = adapt(sdk_weather)
        assert isinstance(made, Tool)
        content = run(made, city="Rome", unit="k").content
        assert content == ("Invalid arguments for function sdk_weather\n- unit: Input should be 'c' or 'f'")
        with pytest.raises(InvalidToolInput, match="must be an object"):
            made.validate([1])

    def test_the_sdks_tools_can_be_declared_side_effects(self) -> None:
        made = tool(side_effect=True, requires_approval=True)(sdk_weather)
        assert (made.effect, made.on_interrupt) == ("external", "ask")
        assert adapt(made) is made
        with pytest.raises(AgentDefinitionError, match="SDK's own decorator"):
            tool(name="x")(sdk_weather)

    def test_a_server_tool_is_only_its_definition(self) -> None:
        given = {"type": "web_search_20260318", "name": "web_search", "max_uses": 3}
        made = adapt(given)
        assert isinstance(made, ServerTool)
        assert made.name == "web_search"
        assert made.definition() == given
        assert list(made.definition()) == list(given)

    @pytest.mark.parametrize(
        ("obj", "message"),
        [
            (swallows_everything, "plain function. Decorate it with @tool"),
            ({"name": "x", "input_schema": {}}, "nothing here can run"),
            ({"type": "custom", "name": "x"}, "nothing here can run"),
            ({"type": "web_search_20260318", "x": b""}, "is not JSON"),
            ("refund", "str is not a tool"),
            (None, "NoneType is not a tool"),
        ],
    )
    def test_anything_else_is_refused_with_what_to_do(self, obj: Any, message: str) -> None:
        with pytest.raises(AgentDefinitionError, match=message):
            adapt(obj)
