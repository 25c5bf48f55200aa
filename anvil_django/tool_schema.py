"""From a function's signature and docstring to the schema the model sees, and from its input to arguments."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from . import exactjson
from .errors import AgentDefinitionError, AnvilError
from .tool_context import ToolContext

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

MAX_REASONS = 20
MAX_REASON_CHARS = 300

_NAMES_CONTEXT = re.compile(r"(?:^|[^\w])ToolContext(?:$|[^\w])")


class InvalidToolInput(AnvilError):  # noqa: N818 - reads as what it is: the model's input, not a fault of ours
    """The input of the tool call does not fit the tool's schema."""

    code = "invalid_tool_input"


class Inputs(Protocol):
    """What a tool takes: the part of a definition that differs between our tools and the SDK's."""

    @property
    def context_parameter(self) -> str | None:
        """The name of the parameter that gets the ToolContext."""
        ...

    def describe(self) -> dict[str, Any]:
        """The definition as the Messages API takes it."""
        ...

    def validate(self, input: Any) -> dict[str, Any]:
        """Python arguments for the model's input; raises InvalidToolInput."""
        ...


class FunctionInputs:
    """The inputs of a Python function, read from its type hints and docstring.

    The hints are resolved when they are first needed, not when the function is decorated, so that a module of
    tools can be imported before the app registry is ready.
    """

    def __init__(self, fn: Callable[..., Any], name: str, description: str | None, strict: bool) -> None:
        self.fn = fn
        self.name = name
        self.given_description = description
        self.strict = strict
        self.parameters = list(inspect.signature(fn).parameters.values())
        check_parameters(name, self.parameters)
        if not (description or inspect.getdoc(fn) or "").strip():
            raise AgentDefinitionError(
                f"Tool {name!r} has no description. Give the function a docstring or pass description=..."
            )

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The resolved annotations of all parameters."""
        try:
            return typing.get_type_hints(self.fn, include_extras=True)
        except Exception as exc:
            raise AgentDefinitionError(
                f"The annotations of tool {self.name!r} cannot be resolved ({type(exc).__name__}: {exc}). "
                "Import the types it names at module level, not only for type checking."
            ) from exc

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that gets the ToolContext."""
        found = [p.name for p in self.parameters if _is_context(self.hints.get(p.name))]
        if len(found) > 1:
            raise _two_contexts(self.name, found)
        return found[0] if found else None

    @functools.cached_property
    def _docstring(self) -> tuple[str, dict[str, str]]:
        """The description, and the parameters' descriptions by name."""
        import docstring_parser

        text = inspect.getdoc(self.fn) or ""
        try:
            parsed = docstring_parser.parse(text)
        except docstring_parser.ParseError:
            return text, {}
        parts = [parsed.short_description, parsed.long_description]
        about = "\n\n".join(part.strip() for part in parts if part)
        return about, {p.arg_name: p.description.strip() for p in parsed.params if p.description}

    @property
    def description(self) -> str:
        """What the model is told the tool does."""
        if self.given_description and self.given_description.strip():
            return self.given_description
        about = self._docstring[0].strip()
        if not about:
            raise AgentDefinitionError(
                f"The docstring of tool {self.name!r} does not say what the tool does. "
                "Begin it with a sentence, or pass description=..."
            )
        return about

    @functools.cached_property
    def model(self) -> type[BaseModel]:
        """The pydantic model of the arguments.

        Its fields are named p0, p1, ... with the parameters' names as aliases, so that no parameter can clash
        with an attribute of the model (``schema``, ``json``, a leading underscore).
        """
        from pydantic import ConfigDict, Field, create_model
        from pydantic.fields import FieldInfo

        fields: dict[str, Any] = {}
        for index, parameter in enumerate(self.parameters):
            if parameter.name == self.context_parameter:
                continue
            hint, default = self.hints[parameter.name], parameter.default
            if isinstance(default, FieldInfo):
                hint, default = Annotated[hint, default], parameter.empty
            keywords = {} if default is parameter.empty else {"default": default}
            fields[f"p{index}"] = (hint, Field(alias=parameter.name, **keywords))
        try:
            return create_model(
                self.name, __config__=ConfigDict(extra="forbid"), __module__=self.fn.__module__, **fields
            )
        except Exception as exc:
            raise self._cannot_describe(exc) from exc

    def describe(self) -> dict[str, Any]:
        """The ToolParam: the same keys in the same order in every process."""
        definition: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.schema(),
        }
        if self.strict:
            definition["strict"] = True
        return definition

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the input object."""
        try:
            schema = self.model.model_json_schema(by_alias=True, schema_generator=_generator())
        except AgentDefinitionError:
            raise
        except Exception as exc:
            raise self._cannot_describe(exc) from exc
        about = self._docstring[1]
        titled = {field.alias for field in self.model.model_fields.values() if field.title}
        properties = schema.setdefault("properties", {})
        for name, prop in properties.items():
            if name not in titled:
                prop.pop("title", None)  # pydantic's guess: the name again
            if name in about:
                prop.setdefault("description", about[name])
        schema.pop("title", None)
        ordered = {"type": "object", "properties": properties, **schema}
        if self.strict:
            from anthropic import transform_schema

            try:
                ordered = transform_schema(ordered)
            except Exception as exc:
                raise self._cannot_describe(exc) from exc
        return ordered

    def validate(self, input: Any) -> dict[str, Any]:
        """See ``Tool.validate``."""
        if not isinstance(input, dict):
            raise InvalidToolInput(
                _sentence(self.name, [f"(input): must be an object, not {_json_type(input)}"])
            )
        model = self.model
        from pydantic import ValidationError

        try:
            found = model.model_validate(input)
        except ValidationError as exc:
            raise InvalidToolInput(_sentence(self.name, reasons(exc))) from exc
        except Exception as exc:
            # A validator of the site's own may raise anything.
            text = f"(input): could not be checked ({type(exc).__name__}: {_short(str(exc))})"
            raise InvalidToolInput(_sentence(self.name, [text])) from exc
        return {str(info.alias): getattr(found, key) for key, info in model.model_fields.items()}

    def _cannot_describe(self, exc: Exception) -> AgentDefinitionError:
        return AgentDefinitionError(
            f"The parameters of tool {self.name!r} have no JSON schema: {_short(str(exc))} "
            "Annotate them with types that pydantic can describe."
        )


def check_parameters(name: str, parameters: list[inspect.Parameter]) -> None:
    """Refuse signatures that no schema can describe, without resolving a single annotation."""
    contexts = []
    for parameter in parameters:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise AgentDefinitionError(
                f"Tool {name!r} takes {stars}{parameter.name}, which the model cannot be told about. "
                "Name every parameter."
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise AgentDefinitionError(
                f"Parameter {parameter.name!r} of tool {name!r} is positional-only, "
                "but tools are called by name. Remove the slash from the signature."
            )
        if parameter.annotation is parameter.empty:
            raise AgentDefinitionError(
                f"Parameter {parameter.name!r} of tool {name!r} has no type annotation. "
                "Annotate it: the model's schema is made from the annotations."
            )
        if _looks_like_context(parameter.annotation):
            contexts.append(parameter.name)
    if len(contexts) > 1:
        raise _two_contexts(name, contexts)


def reasons(error: ValidationError) -> list[str]:
    """Pydantic's reasons, one line each with the path of what is wrong."""
    lines = []
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        lines.append(f"{_path(found['loc'])}: {_short(found['msg'])}")
    return lines


def _sentence(name: str, lines: list[str]) -> str:
    more = len(lines) - MAX_REASONS
    shown = [f"- {line}" for line in lines[:MAX_REASONS]]
    if more > 0:
        shown.append(f"- and {more} more")
    text = "\n".join([f"The input does not fit the schema of {name}; nothing was run. Correct it:", *shown])
    return exactjson.clean_text(text)


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return _short(path) or "(input)"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 3] + "..."


def _json_type(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or any(_is_context(part) for part in _union_parts(hint))


def _looks_like_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return _NAMES_CONTEXT.search(annotation) is not None
    return _is_context(annotation)


def _union_parts(hint: Any) -> Iterator[Any]:
    import types

    if typing.get_origin(hint) in {typing.Union, types.UnionType, Annotated}:
        yield from typing.get_args(hint)


def _two_contexts(name: str, found: list[str]) -> AgentDefinitionError:
    return AgentDefinitionError(
        f"Tool {name!r} has more than one ToolContext parameter ({', '.join(found)}). Keep one."
    )


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticSerializationError

    class Generator(GenerateJsonSchema):
        # A default that has no JSON form is left out of the schema; that deserves no warning.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

        def encode_default(self, dft: Any) -> Any:
            # Pydantic writes a set in the order of this process, which would change the request's bytes.
            try:
                return exactjson.encode(dft)
            except AnvilError as exc:
                raise PydanticSerializationError(str(exc)) from exc

    return Generator
