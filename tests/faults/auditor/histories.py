"""Each run's history: rebuilt from the rows by the documented rule, and held to the rules of the API.

The rule of storage: a message has a row, but for the user turn that answers tool calls. That one is composed
of the calls' results in the order of their places, and its number stays free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..facts import Finding
from .rows import Call, Message, Run, Tables

Block = dict[str, Any]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PAUSED = {"pause_turn", "compaction"}
_RESUMED = {*_PAUSED, "tool_use"}
"""Stop reasons after which the model's turn may go on in a further assistant message."""


@dataclass
class Turn:
    """One message as it is sent."""

    seq: int
    role: str
    blocks: list[Block]
    row: Message | None = None
    """None: composed of results."""


@dataclass
class History:
    """What could be rebuilt, and what is wrong with how it is stored."""

    turns: list[Turn] = field(default_factory=list)
    open_calls: list[Call] = field(default_factory=list)
    """Those of a turn that is not answered yet."""
    problems: list[tuple[str, str]] = field(default_factory=list)


def check_histories(tables: Tables) -> Iterator[Finding]:
    """Every history is one that the API takes, and agrees with the calls."""
    for run in tables.runs:
        history = rebuild(run, tables)
        for kind, sentence in (*history.problems, *_broken_rules(run, history), *_calls_differ(run, tables)):
            yield Finding(kind, run.run_id, sentence)


def rebuild(run: Run, tables: Tables) -> History:
    """The messages of a run as they are sent."""
    history = History()
    by_seq: dict[int, list[Call]] = {}
    for call in tables.calls_of[run.id]:
        by_seq.setdefault(call.seq, []).append(call)
    rows = {row.seq: row for row in tables.messages_of[run.id]}
    for seq in range(max([run.message_count, *(number + 1 for number in rows)])):
        row = rows.get(seq)
        if row is not None:
            if seq >= run.message_count:
                history.problems.append(("history gap", f"message {seq} is beyond the run's message_count"))
            history.turns.append(Turn(seq, row.role, _blocks(row, history), row))
            continue
        answered = by_seq.pop(seq - 1, [])
        asked = history.turns[-1].blocks if history.turns else []
        if not answered and not any(block.get("type") == "tool_use" for block in asked):
            history.problems.append(
                ("history gap", f"message {seq} has no row, and no calls to compose it of")
            )
        history.turns.append(Turn(seq, "user", [_result(call) for call in answered]))
        for call in answered:
            if call.status != "done":
                history.problems.append(
                    ("tool_use unanswered", f"{call.call_id} is answered without a result")
                )
    history.open_calls = by_seq.pop(len(history.turns) - 1, [])
    for seq, calls in by_seq.items():
        ids = ", ".join(call.call_id for call in calls)
        history.problems.append(
            (
                "tool_result orphaned",
                f"the results of {ids} are for message {seq}, which is answered otherwise",
            )
        )
    return history


def _blocks(row: Message, history: History) -> list[Block]:
    try:
        content = json.loads(row.content)
    except ValueError:
        history.problems.append(("content unreadable", f"message {row.seq} is not JSON"))
        return []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        history.problems.append(("content unreadable", f"message {row.seq} is no list of blocks"))
        return []
    return blocks


def _result(call: Call) -> Block:
    content = json.loads(call.result) if call.result is not None else ""
    return {"type": "tool_result", "tool_use_id": call.call_id, "content": content, "is_error": call.is_error}


def _broken_rules(run: Run, history: History) -> Iterator[tuple[str, str]]:
    used: set[str] = set()
    asked: list[str] = []
    before: Turn | None = None
    for turn in history.turns:
        yield from _contents(turn)
        yield from _role(turn, before)
        if turn.role == "assistant":
            ids = [str(block.get("id")) for block in turn.blocks if block.get("type") == "tool_use"]
            for call_id in ids:
                if call_id in used:
                    yield "tool_use id repeated", f"{call_id} is asked for again in message {turn.seq}"
                used.add(call_id)
            asked += ids
        elif turn.role == "user":
            yield from _answers(turn, asked, used)
            asked = []
        before = turn
    # Calls of a paused turn get their rows with the answer that ends it.
    paused = before is not None and before.row is not None and before.row.stop_reason in _PAUSED
    open_ids = {call.call_id for call in history.open_calls}
    if asked and (run.is_over or (open_ids != set(asked) and not paused)):
        yield "tool_use unanswered", f"{', '.join(asked)} at the end of a run that is {run.status}"


def _role(turn: Turn, before: Turn | None) -> Iterator[tuple[str, str]]:
    if turn.role not in {"user", "assistant", "system"}:
        yield "history roles", f"message {turn.seq} has the role {turn.role!r}"
    if before is None:
        if turn.role != "user":
            yield "history roles", f"the history begins with the role {turn.role!r}"
    elif turn.role == before.role == "assistant":
        reason = before.row.stop_reason if before.row is not None else ""
        if reason and reason not in _RESUMED:
            yield "history roles", f"message {turn.seq} follows an assistant turn that ended with {reason}"


def _answers(turn: Turn, asked: list[str], used: set[str]) -> Iterator[tuple[str, str]]:
    """A user turn answers all that was asked, once each, before it says anything else."""
    results = [str(b.get("tool_use_id")) for b in turn.blocks if b.get("type") == "tool_result"]
    for call_id in sorted(set(results)):
        if call_id not in used:
            yield "tool_result orphaned", f"message {turn.seq} answers {call_id}, which nobody asked for"
        elif results.count(call_id) > 1 or call_id not in asked:
            yield "tool_result doubled", f"message {turn.seq} answers {call_id}, which has an answer already"
    for call_id in asked:
        if call_id not in results:
            yield "tool_use unanswered", f"message {turn.seq} does not answer {call_id}"
    kinds = [block.get("type") == "tool_result" for block in turn.blocks]
    if kinds != sorted(kinds, reverse=True):
        yield "results not first", f"message {turn.seq} says something before its results"
    if turn.row is None and set(results) == set(asked) and results != asked:
        yield "results out of order", f"message {turn.seq} answers in another order than was asked"


def _contents(turn: Turn) -> Iterator[tuple[str, str]]:
    where = f"message {turn.seq}"
    if not turn.blocks and turn.row is not None:
        yield "empty content", f"{where} is empty"
    for place, block in enumerate(turn.blocks):
        kind = block.get("type")
        if kind == "text" and not str(block.get("text") or "").strip():
            yield "empty content", f"{where} has a blank text"
        elif kind == "tool_use":
            yield from _call_block(turn, block)
        elif kind in {"thinking", "redacted_thinking"}:
            if not block.get("signature" if kind == "thinking" else "data"):
                yield "thinking damaged", f"{where} has thinking without its signature"
            if any(b.get("type") in {"text", "tool_use"} for b in turn.blocks[:place]):
                yield "thinking damaged", f"{where} has thinking that is not at its start"
            if turn.role != "assistant":
                yield "thinking damaged", f"{where} has thinking and the role {turn.role}"
        elif kind == "tool_result" and isinstance(block.get("content"), list):
            texts = [str(b.get("text") or "") for b in block["content"] if b.get("type") == "text"]
            if not block["content"] or not all(text.strip() for text in texts):
                yield "empty content", f"{where} has a result with a blank text"


def _call_block(turn: Turn, block: Block) -> Iterator[tuple[str, str]]:
    if turn.role != "assistant":
        yield "history roles", f"message {turn.seq} asks for a tool and has the role {turn.role}"
    for key in ("id", "name"):
        if not isinstance(block.get(key), str) or not _NAME.fullmatch(block[key]):
            yield "tool_use malformed", f"message {turn.seq} has a call whose {key} is {block.get(key)!r}"
    if not isinstance(block.get("input"), dict):
        yield "tool_use malformed", f"message {turn.seq} has a call whose input is no object"


def _calls_differ(run: Run, tables: Tables) -> Iterator[tuple[str, str]]:
    """Each row of a call is the ``tool_use`` block it stands for; a paused turn's blocks get theirs later."""
    blocks: dict[str, tuple[int, Block]] = {}
    for row in tables.messages_of[run.id]:
        if row.is_answer:
            for block in _blocks(row, History()):
                if block.get("type") == "tool_use":
                    blocks[str(block.get("id"))] = row.seq, block
    for call in tables.calls_of[run.id]:
        seq, block = blocks.get(call.call_id, (-1, {}))
        if not block:
            yield "call without tool_use", f"the model never asked for {call.call_id} ({call.name})"
        elif (block.get("name"), _text(block.get("input"))) != (call.name, _text(json.loads(call.input))):
            yield "call differs", f"{call.call_id} is stored with another tool or input than the model wrote"
        elif seq > call.seq:
            yield "call differs", f"{call.call_id} belongs to message {call.seq}, and was asked for in {seq}"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
