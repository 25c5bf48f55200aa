"""Ways to break a site at rest, past all that protects it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from anvil_django.models import Approval, Decision, Message, Run, Steering, ToolCall

from ..audit import audit
from ..facts import Facts

PAST = datetime(2026, 1, 1, tzinfo=UTC)


class Borrowed:
    """The test's own connection, in whose transaction the damage is, as the plain driver's."""

    def cursor(self) -> Any:
        connection.ensure_connection()
        return connection.connection.cursor()

    def close(self) -> None:
        """It is the test's."""


@dataclass
class Broken:
    """Ways to break it."""

    facts: Facts

    def found(self) -> set[tuple[str, str]]:
        return {(finding.kind, finding.run_id) for finding in audit(self.facts)}

    # The tables.

    def change(self, row: Any, **columns: Any) -> None:
        """Past all the model's own rules."""
        names = ", ".join(f"{connection.ops.quote_name(name)} = %s" for name in columns)
        values = [row._meta.get_field(n).get_db_prep_save(v, connection) for n, v in columns.items()]
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {row._meta.db_table} SET {names} WHERE id = %s", [*values, row.pk])

    def again(self, row: Any, **columns: Any) -> None:
        """A second row like it."""
        copy = type(row)._base_manager.get(pk=row.pk)
        copy.pk, copy._state.adding = None, True
        for name, value in columns.items():
            setattr(copy, name, value)
        copy.save(force_insert=True)

    def run(self, run_id: str) -> Run:
        return Run.objects.get(run_id=run_id)

    def message(self, run_id: str, seq: int) -> Message:
        """Counted from the end of the stored ones where ``seq`` is negative."""
        return list(Message.objects.filter(run__run_id=run_id).order_by("seq"))[seq]

    def blocks(self, row: Message, change: Callable[[list[Any]], None]) -> None:
        content = json.loads(row.content)
        change(content)
        self.change(row, content=json.dumps(content))

    def call(self, name: str) -> ToolCall:
        return ToolCall.objects.get(run__run_id=name.split(".")[0], input__contains=f'"{name}"')

    def approval(self, name: str) -> Approval:
        return Approval.objects.get(call=self.call(name))

    def decision(self, name: str) -> Decision:
        return Decision.objects.get(approval=self.approval(name))

    def said(self, content: Any, run_id: str = "asks") -> None:
        """Another content of the first message that was sent to the run and is stored after its results."""
        sent = Steering.objects.filter(run__run_id=run_id).order_by("id")[0]
        self.change(sent, content="")
        row = Message.objects.get(run__run_id=run_id, seq=sent.placed_seq)
        self.change(row, content=json.dumps(content))

    # The effect log.

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.facts.effect_log.read_text().splitlines()]

    def write(self, lines: list[dict[str, Any]]) -> None:
        self.facts.effect_log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def log(self, event: str, name: str, **values: Any) -> None:
        """One more line of the call that asks for ``name``."""
        call = self.call(name)
        place = {"run": name.split(".")[0], "call": call.call_id}
        like = next(line for line in self.lines() if line["kind"] == values.get("kind", line["kind"]))
        at = datetime.now(UTC).timestamp()
        key = f"{place['run']}:{place['call']}"
        self.write(
            [*self.lines(), {**like, **place, "event": event, "effect": name, "key": key, "at": at, **values}]
        )

    def relog(self, name: str, event: str | None = None, **values: Any) -> None:
        """Other values in the lines of an effect; without values they are gone."""
        kept = []
        for line in self.lines():
            if line["effect"] == name and event in {None, line["event"]}:
                if not values:
                    continue
                line |= values
            kept.append(line)
        self.write(kept)


Damage = Callable[[Broken], Any]
DAMAGES: list[tuple[str, str, Damage]] = []
"""What is broken, and the findings it must give, all of the run that is named."""


def damage(run_id: str, *kinds: str) -> Callable[[Damage], Damage]:
    def note(function: Damage) -> Damage:
        DAMAGES.append((run_id, "|".join(kinds), function))
        return function

    return note
