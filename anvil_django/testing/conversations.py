"""The rules that need the requests before: frozen prefix, preserved thinking, verbatim turns of the model.

The history of a conversation is kept as a tree. A node is a message at its place; below it are the user and
system messages that were sent there and the turns that the API answered there. A request walks the tree by
its own messages: whatever leaves the tree before its end was changed after it had been sent.

What is known is not checked again, so the cost of a request is one pass of ``json.dumps`` over its messages.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_django.testing.comparison import (
    blocks_of,
    changed,
    content_of,
    difference,
    has_thinking,
    is_without_leading_thinking,
    long_form,
    marks_of,
    normal,
    role_of,
    same_in_long_form,
    shortened,
    without_key,
    without_markers,
)
from anvil_django.testing.history_rules import (
    MAX_CACHE_MARKERS,
    Standing,
    canonical,
    check_message,
    ending_problems,
    marker_problems,
    request_problems,
)

ConversationKey = Callable[[Mapping[str, Any], Mapping[str, str]], str]
_MARKER = '"cache_control":'
#: Stop reasons after which the assistant turn is sent back last, with nothing added.
PAUSED = ("pause_turn", "compaction")


def conversation_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """What a conversation is recognized by: its system prompt and its first user message, hashed.

    ``cache_control`` plays no part. Two runs with the same prompt and the same input are one conversation;
    give the server another function where that matters, for instance one that reads ``metadata``.
    """
    messages = body.get("messages")
    listed = messages if isinstance(messages, list) else []
    first = next((content_of(message) for message in listed if role_of(message) == "user"), None)
    opening = canonical([long_form(body.get("system")), long_form(first)])
    return hashlib.sha256(opening.encode("utf-8", "backslashreplace")).hexdigest()[:16]


@dataclass(slots=True, eq=False)
class Node:
    """One message of one conversation at its place."""

    depth: int
    text: str = ""
    message: Any = None
    #: What the message leaves for the next one; ``None`` until a request has sent it back correctly.
    standing: Standing | None = None
    #: User and system messages sent here, by their text without ``cache_control``.
    sent: dict[str, Node] = field(default_factory=dict)
    #: Turns answered here, by their text with the keys of blocks sorted.
    replies: dict[str, Node] = field(default_factory=dict)
    #: Children by their exact text, to walk a known history quickly.
    exact: dict[str, Node] = field(default_factory=dict)
    #: For an answer of the API: the whole ``Message``.
    reply: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Conversation:
    prefix: dict[str, str]
    #: Exact texts of system and tools that were found to be no change.
    known_prefixes: set[str] = field(default_factory=set)
    root: Node = field(default_factory=lambda: Node(0, standing=Standing()))
    ids: dict[str, list[Node]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examined:
    """What `HistoryRules.examine` found."""

    conversation: str
    problems: list[str]
    #: The last message; ``None`` when the request broke a rule.
    node: Node | None


class HistoryRules:
    """Every rule of `history_rules.violations`, and those that span the requests of a conversation.

    - ``system``, ``tools`` and every earlier message are, byte for byte and in key order, what was sent
      before (moving ``cache_control``, or leaving out the first thinking blocks, is no change);
    - an assistant turn is what the API answered at that place; blocks may have their keys in another order
      except inside ``input``, and blank text blocks may be left out;
    - an assistant turn comes last only when the API paused it, and then its container is named if it had one;
    - the tools of a turn that did not stop for ``tool_use`` are not run.

    Args:
        conversation: Gives the key of a request's conversation, from its body and its headers (names in
            lower case); `conversation_of` by default.
        forks: Allow a conversation to go on in two ways from the same place, as a copy of a run does.
    """

    def __init__(self, *, conversation: ConversationKey | None = None, forks: bool = False) -> None:
        self._key = conversation or conversation_of
        self._forks = forks
        self._lock = threading.Lock()
        self._conversations: dict[str, _Conversation] = {}
        #: Call ids and signatures the API gave out, and the conversation each is bound to.
        self._issued: dict[str, str] = {}

    def forget(self) -> None:
        """Know no conversation, as at the start."""
        with self._lock:
            self._conversations.clear()
            self._issued.clear()

    def check(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> list[str]:
        """The sentences for one request; it is remembered when there are none."""
        # A copy: the caller may go on to change its own lists.
        return self.examine(json.loads(json.dumps(body)), headers).problems

    def examine(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Examined:
        """As `check`, with the place that `answered` wants.

        The body is kept, and its list of messages is made to share those that are known.
        """
        key = self._key(body, headers or {})
        problems = request_problems(body)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            return Examined(key, problems, None)
        with self._lock:
            conversation = self._conversations.get(key)
            new = conversation is None
            if conversation is None:
                conversation = _Conversation(_prefix(body))
            walk = _Walk(self, key, conversation, new)
            walk.follow(messages)
            thinking = body.get("thinking")
            forgiving = isinstance(thinking, dict) and "block_binding" in thinking
            # Asked to, the API drops the thinking blocks that are bound to another history.
            prefix = canonical([body.get("system"), body.get("tools")])
            changes = list(walk.changes)
            if prefix not in conversation.known_prefixes:
                changes += _prefix_problems(conversation.prefix, _prefix(body))
            problems += ([] if forgiving else changes) + walk.problems
            # Counting in the text is quick and never too low.
            markers = walk.markers + prefix.count(_MARKER) + (body.get("cache_control") is not None)
            if markers > MAX_CACHE_MARKERS:
                problems += marker_problems(body)
            if not walk.problems:
                problems += _last_turn_problems(body, walk.path)
            if problems or changes:
                return Examined(key, problems, None)
            conversation.known_prefixes.add(prefix)
            self._conversations[key] = conversation
            return Examined(key, problems, walk.keep())

    def answered(self, examined: Examined, message: Mapping[str, Any]) -> None:
        """Remember an answer; call it before the answer is sent.

        Args:
            examined: What `examine` gave for the request.
            message: The API's ``Message`` as a dict.
        """
        node = examined.node
        if node is None:
            return
        turn = {"role": "assistant", "content": message["content"]}
        with self._lock:
            name = normal(turn)
            if name not in node.replies:
                node.replies[name] = Node(node.depth + 1, canonical(turn), turn, reply=message)
            for mark in marks_of(message["content"]):
                self._issued.setdefault(mark, examined.conversation)

    def conversation(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """The key of a request's conversation."""
        return self._key(body, headers)

    def issued_elsewhere(self, mark: str, conversation: str) -> bool:
        return self._issued.get(mark, conversation) != conversation


class _Walk:
    """One request's way down the tree; nothing is changed before `keep`."""

    def __init__(self, rules: HistoryRules, key: str, conversation: _Conversation, new: bool) -> None:
        self.rules, self.key, self.conversation, self.new = rules, key, conversation, new
        self.path: list[Node] = [conversation.root]
        self.problems: list[str] = []
        self.changes: list[str] = []
        self.markers = 0
        self._learned: list[tuple[Node, str, Node]] = []
        self._validated: list[tuple[Node, Standing]] = []
        self._fresh_ids: set[str] = set()
        self._may_drop_thinking = True

    def follow(self, messages: list[Any]) -> None:
        standing = Standing()
        for index, message in enumerate(messages):
            parent = self.path[-1]
            text = canonical(message)
            if _MARKER in text:
                self.markers += text.count(_MARKER)
            node = parent.exact.get(text)
            if node is None:
                node = self._find(index, message, text)
            elif self._may_drop_thinking and 'thinking"' in text:
                self._may_drop_thinking = not has_thinking(message)
            if node.text == text:
                messages[index] = node.message
            if node.standing is None:
                found, standing = check_message(index, message, standing, self._seen)
                self.problems += found + _unwanted_results(index, message, parent)
                self._fresh_ids.update(standing.new_ids)
                self._validated.append((node, standing))
            else:
                standing = node.standing
            self.path.append(node)
        last = self.path[-1]
        paused = last.reply.get("stop_reason") in PAUSED if last.reply else _ends_in_server_tool(last.message)
        self.problems += ending_problems(standing, paused=paused)

    def keep(self) -> Node:
        """Add the request to the tree."""
        for parent, text, node in self._learned:
            parent.exact[text] = node
            if node.reply is None:
                family = parent.replies if role_of(node.message) == "assistant" else parent.sent
                name = normal(node.message) if family is parent.replies else without_markers(node.message)
                family.setdefault(name, node)
        for node, standing in self._validated:
            node.standing = standing
            for call_id in standing.new_ids:
                self.conversation.ids.setdefault(call_id, []).append(node)
        return self.path[-1]

    def _find(self, index: int, message: Any, text: str) -> Node:
        parent = self.path[-1]
        if role_of(message) == "assistant":
            return self._find_reply(index, message, text)
        bare = without_markers(message) if _MARKER in text else text
        node = parent.sent.get(bare)
        if node is None:
            for other in parent.sent.values():
                if (_MARKER in text or _MARKER in other.text) and same_in_long_form(message, other.message):
                    self._learned.append((parent, text, other))
                    return other
            if parent.sent and not self.rules._forks:
                before = next(iter(parent.sent.values()))
                self._change(changed(index, before.text, text))
            node = Node(parent.depth + 1, text, message)
        self._learned.append((parent, text, node))
        return node

    def _find_reply(self, index: int, message: Any, text: str) -> Node:
        parent = self.path[-1]
        node = parent.replies.get(normal(message))
        if node is not None:
            self._may_drop_thinking = self._may_drop_thinking and not has_thinking(message)
            self._learned.append((parent, text, node))
            return node
        if self._may_drop_thinking:
            for node in parent.replies.values():
                if is_without_leading_thinking(message, node.message):
                    self._may_drop_thinking = not has_thinking(message)
                    return node
        marks = marks_of(message.get("content"))
        if self.new and any(self.rules.issued_elsewhere(mark, self.key) for mark in marks):
            self._change(
                f"messages.{index}: this turn is bound to a different conversation: the system prompt or the "
                "first message is not what it was answered to"
            )
        elif parent.replies:
            given = next(iter(parent.replies.values()))
            self._change(changed(index, normal(given.message), normal(message)))
        elif not self.new:
            self._change(
                f"messages.{index}: this assistant turn was never sent by the API at this place: "
                f"{shortened(text)}"
            )
        node = Node(parent.depth + 1, text, message)
        self._learned.append((parent, text, node))
        return node

    def _change(self, sentence: str) -> None:
        # What comes after the first change is off the tree for that reason alone.
        if not self.changes:
            self.changes.append(sentence)

    def _seen(self, call_id: str) -> bool:
        if call_id in self._fresh_ids:
            return True
        nodes = self.conversation.ids.get(call_id, ())
        return any(node.depth < len(self.path) and self.path[node.depth] is node for node in nodes)


def _prefix(body: Mapping[str, Any]) -> dict[str, str]:
    """The part of a request that no later request may change, as text without ``cache_control``."""
    tools = body.get("tools")
    if isinstance(tools, list):
        # Only at the top of a tool is it a marker; a schema may have a property of that name.
        tools = [without_key(tool, "cache_control") if isinstance(tool, dict) else tool for tool in tools]
    return {"system": canonical(long_form(body.get("system"))), "tools": canonical(tools)}


def _prefix_problems(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: changed since the first request of this conversation. {difference(text, now[name])}"
        for name, text in before.items()
        if text != now[name]
    ]


def _unwanted_results(index: int, message: Any, parent: Node) -> list[str]:
    """What an answer's stop reason forbids the next message."""
    stop = parent.reply.get("stop_reason") if parent.reply else None
    if stop is None:
        return []
    if role_of(message) == "assistant" and stop not in PAUSED:
        return [f"messages.{index}: an assistant turn that stopped for {stop} cannot be gone on with"]
    results = [block for block in blocks_of(message) if block.get("type") == "tool_result"]
    if stop not in ("tool_use", *PAUSED) and any(not block.get("is_error") for block in results):
        return [
            f"messages.{index}: tools were run though the turn stopped for {stop}: their input may be cut"
        ]
    return []


def _last_turn_problems(body: Mapping[str, Any], path: list[Node]) -> list[str]:
    """Code execution that the API will go on with needs its container."""
    reply = next((node.reply for node in reversed(path) if node.reply is not None), None)
    if reply is None or not reply.get("container") or body.get("container"):
        return []
    blocks = [block for block in reply["content"] if isinstance(block, dict)]
    done = {block.get("tool_use_id") for block in blocks}
    pending = [
        block
        for block in blocks
        if (block.get("type") == "server_tool_use" and block.get("id") not in done)
        or (block.get("type") == "tool_use" and (block.get("caller") or {}).get("type", "direct") != "direct")
    ]
    if not pending:
        return []
    return ["container: container_id is required when there are pending tool uses of code execution"]


def _ends_in_server_tool(message: Any) -> bool:
    """A turn answered before this server knew the conversation; only a paused one ends like this."""
    blocks = blocks_of(message)
    kind = str(blocks[-1].get("type")) if blocks else ""
    if role_of(message) != "assistant":
        return False
    return kind in ("server_tool_use", "compaction") or kind.endswith("_tool_result")
