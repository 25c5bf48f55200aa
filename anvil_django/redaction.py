"""What people are shown of stored values: secrets are hidden by ``ANVIL["REDACT"]``, for display only.

What is stored, executed, digested and sent to the model are the originals. So this is called where something
is rendered (admin, REST API, commands) and nowhere else, except to undo it: a reviewer who edits the rest of
a call sends our marks back, and ``restored`` puts the originals in their place.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from . import exactjson
from .conf import get_settings
from .errors import UnfitDecisionError

logger = logging.getLogger(__name__)

Path = tuple[str | int, ...]
Rule = Callable[[str, Path, Any], Any]

MARK = "[redacted]"
_MARKS = re.compile(r"\[redacted(?: [0-9a-f]{12})?\]")
# A member of an object as text: a quoted key, and a text or a number; also where the end is cut off.
_MEMBER = re.compile(
    r"""(?P<q>["'])(?P<key>[^"'\\]{1,100})(?P=q)\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"?|"""
    r"""'(?:[^'\\]|\\.)*'?|-?\d[\d.eE+-]*)""",
    re.DOTALL,
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Redaction:
    """Hides what the site's setting hides in the values of one tool.

    Args:
        tool: Whose arguments or result it is; "" for what belongs to no tool.
        scope: Of values that may be edited: makes each mark stand for its value, within that scope. Without
            one, all marks are the same and nothing can be restored.
    """

    def __init__(self, tool: str = "", *, scope: str = "") -> None:
        self.hidden: list[str] = []
        """Where something was hidden, as ``cards.0.number``."""
        self.originals: dict[str, Any] = {}
        """What was hidden, by what is shown in its place."""
        self._tool, self._scope = tool, scope
        rule = get_settings().redact
        if isinstance(rule, str):
            rule = import_string(rule)
        self._rule: Rule | None = rule if callable(rule) else None
        self._names = None if callable(rule) else _pattern(tuple(rule))

    def shown(self, value: Any) -> Any:
        """A copy of a JSON value with marks for what is not to be seen."""
        # A rule is the site's own code: it gets nothing that anybody else still needs.
        return self._walk((), copy.deepcopy(value) if self._rule else value)

    def _walk(self, path: Path, value: Any) -> Any:
        if (shown := self._ruled(path, value)) is not value:
            self.hidden.append(".".join(map(str, path)))
            self.originals[shown] = value
            return shown
        if isinstance(value, dict):
            return {key: self._walk((*path, key), inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._walk((*path, index), inner) for index, inner in enumerate(value)]
        return value

    def _ruled(self, path: Path, value: Any) -> Any:
        """The value itself, or the text that is shown in its place."""
        if self._rule is not None:
            return self._asked(self._rule, path, value)
        if self._names is None:
            return value
        if path and self._is_secret(path[-1], value):
            return self._mark(value)
        return self._without_members(value) if isinstance(value, str) else value

    def _asked(self, rule: Rule, path: Path, value: Any) -> Any:
        try:
            shown = rule(self._tool, path, value)
        except Exception as exc:  # noqa: BLE001 (the site's own code; what it cannot judge is not shown)
            logger.error("ANVIL['REDACT'] failed, so a value is hidden: %s", type(exc).__name__)
            return self._mark(value)
        if shown is value or (type(shown) is type(value) and shown == value):
            return value
        return f"{shown} {self._mark(value)}" if isinstance(shown, str) and shown else self._mark(value)

    def _is_secret(self, key: str | int, value: Any) -> bool:
        # Whether there is one at all is worth knowing, and no secret.
        if self._names is None or not isinstance(key, str) or value is None or isinstance(value, bool):
            return False
        return value not in ("", [], {}) and self._names.search(_words(key)) is not None

    def _without_members(self, text: str) -> str:
        """The text, with marks in JSON that it is or holds: results are stored as text, and may be cut."""
        if ":" not in text or ('"' not in text and "'" not in text):
            return text
        if text.lstrip()[:1] in {"{", "["}:
            try:
                value = exactjson.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                inner = Redaction(self._tool, scope=self._scope)
                shown = inner.shown(value)
                return exactjson.readable(shown) if inner.hidden else text
        changed = _MEMBER.sub(self._member, text)
        return text if changed == text else changed

    def _member(self, match: re.Match[str]) -> str:
        value = match["value"]
        if not self._is_secret(match["key"], value.strip("\"'")):
            return match[0]
        return f"{match[0][: -len(value)]}{json.dumps(self._mark(value))}"

    def _mark(self, value: Any) -> str:
        if not self._scope:
            return MARK
        # Under the site's key and for this scope alone, so that nobody can tell the value from its mark.
        text = json.dumps([self._scope, value], sort_keys=True, default=str)
        tag = salted_hmac("anvil_django.redaction", text, algorithm="sha256").hexdigest()
        return f"[redacted {tag[:12]}]"


def shown(tool: str, value: Any) -> Any:
    """A JSON value as people see it: arguments, a payload or a result of a tool ("" for anything else)."""
    return Redaction(tool).shown(value)


def shown_json(tool: str, text: str) -> Any:
    """The same for stored exact JSON text; None where there is none."""
    return shown(tool, exactjson.loads(text)) if text else None


def shown_arguments(tool: str, arguments: Any, scope: object) -> Any:
    """Arguments of a case that people may edit; ``scope`` is the key of its call.

    ``restored`` finds the originals again.
    """
    return Redaction(tool, scope=str(scope)).shown(arguments)


def hidden(tool: str, value: Any) -> list[str]:
    """Where in a value something is hidden, as ``cards.0.number``: told apart from text that looks so."""
    found = Redaction(tool)
    found.shown(value)
    return found.hidden


def shown_content(content: Any, tools: Mapping[str, str] | None = None) -> Any:
    """The content of a message; ``tools`` names the tools by the ids of their calls, where they are known."""
    if not isinstance(content, list):
        return shown("", content)
    return [_shown_block(block, tools or {}) for block in content]


def _shown_block(block: Any, tools: Mapping[str, str]) -> Any:
    if not isinstance(block, dict):
        return shown("", block)
    if isinstance(block.get("tool_use_id"), str):
        return {**block, "content": shown(tools.get(block["tool_use_id"], ""), block.get("content"))}
    if "input" in block and isinstance(block.get("name"), str):
        return {**block, "input": shown(block["name"], block["input"])}
    return shown("", block)


def shown_event(data: Mapping[str, Any]) -> dict[str, Any]:
    """The particulars of an event of the feed."""
    tool = str(data.get("tool", ""))
    about_tool = {key: shown(tool, data[key]) for key in ("input", "payload") if key in data}
    content = {}
    if "content" in data:
        content["content"] = shown(tool, data["content"]) if tool else shown_content(data["content"])
    return {**data, **about_tool, **content}


def shown_checkpoint(data: dict[str, Any]) -> dict[str, Any]:
    """``AgentCheckpoint.to_dict`` as people see it.

    Where anything is hidden it says ``"redacted": true``, and no run can go on with it.
    """
    tools = {
        block["id"]: block["name"]
        for message in data.get("messages", ())
        if isinstance(message["content"], list)
        for block in message["content"]
        if "input" in block and "id" in block and "name" in block
    }
    changed = {
        **data,
        "messages": [
            {**message, "content": shown_content(message["content"], tools)}
            for message in data.get("messages", ())
        ],
        "calls": [_shown_call(call) for call in data.get("calls", ())],
        "pending": [_shown_call(call) for call in data.get("pending", ())],
        "approvals": {key: shown(tools.get(key, ""), value) for key, value in data["approvals"].items()},
        "metadata": shown("", data.get("metadata")),
        "final_text": shown("", data.get("final_text", "")),
    }
    return data if changed == data else {**changed, "redacted": True}


_CALL_VALUES = ("input", "payload", "content", "decision", "agreed")


def _shown_call(call: dict[str, Any]) -> dict[str, Any]:
    tool = str(call.get("name") or call.get("tool") or "")
    return {**call, **{key: shown(tool, call[key]) for key in _CALL_VALUES if key in call}}


def restored(tool: str, edited: Any, originals: Sequence[Any], scope: object) -> Any:
    """Edited arguments with the originals in place of the marks that a reviewer was shown for them.

    Args:
        edited: What the reviewer sent.
        originals: The arguments that they can have been shown, as they are stored.
        scope: As for ``shown_arguments``.

    Raises:
        UnfitDecisionError: A mark stands for nothing that was shown there: the arguments have changed, or the
            text around a mark has.
    """
    if not _MARKS.search(json.dumps(edited, ensure_ascii=False, default=str)):
        return edited
    was = Redaction(tool, scope=str(scope))
    seen = frozenset().union(*(_texts(was.shown(original)) for original in originals))
    return _restored(edited, was.originals, seen)


def _restored(value: Any, originals: Mapping[str, Any], seen: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _restored(inner, originals, seen) for key, inner in value.items()}
    if isinstance(value, list):
        return [_restored(inner, originals, seen) for inner in value]
    if not isinstance(value, str) or not _MARKS.search(value):
        return value
    if value in originals:
        return copy.deepcopy(originals[value])
    if value in seen:
        return value  # The model itself wrote something that looks like one of our marks.
    raise UnfitDecisionError(
        _(
            "A part of the arguments is hidden, and the mark in its place was changed or is not known here: "
            "leave it exactly as it was shown to keep what it stands for, or write another value."
        ),
        field="edited_input",
    )


def _texts(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    inner: Sequence[Any] = list(value.values()) if isinstance(value, dict) else value
    return frozenset().union(*map(_texts, inner)) if isinstance(value, (dict, list)) else frozenset()


@lru_cache(maxsize=8)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds a name among the words of a key; a star in a name is any part of a word."""
    parts = [re.escape(_words(name)).replace(r"\*", "[^_]*") for name in names]
    return re.compile(rf"(?:^|_)(?:{'|'.join(parts)})(?:_|$)") if parts else None


def _words(key: str) -> str:
    """``apiKey``, ``API-Key`` and ``api key`` are all ``api_key``."""
    return re.sub(r"[^\w*]+", "_", _HUMPS.sub("_", key)).casefold().strip("_")
