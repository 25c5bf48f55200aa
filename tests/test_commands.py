"""The commands: what they do, what they say, and how they exit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import F

from anvil_django import Agent, runs, tasks
from anvil_django.management import terminal
from anvil_django.management.commands import anvil_run
from anvil_django.models import Run
from anvil_django.testing import Kill, ScriptedMessagesAPI, fault, fixed_clock, kill_at, say, tool_call

from .world import registered_agent, reviewer

pytestmark = pytest.mark.django_db

DEAD = "elsewhere/1/2/3/abc"
DEPLOY = tool_call("deploy", {"version": "1.2"}, id="toolu_1")


@pytest.fixture
def agent() -> Iterator[Agent]:
    with registered_agent() as known:
        yield known


def run_command(name: str, *args: str, error: str = "") -> tuple[str, str]:
    """What a command writes to stdout and stderr; ``error`` is the whole message it must fail with."""
    out, err = StringIO(), StringIO()
    if error:
        with pytest.raises(CommandError) as caught:
            call_command(name, *args, stdout=out, stderr=err, no_color=True)
        assert str(caught.value) == error
    else:
        call_command(name, *args, stdout=out, stderr=err, no_color=True)
    return out.getvalue(), err.getvalue()


def interrupted(run_id: str, **columns: Any) -> Run:
    """A run whose worker has gone and whose lease is over."""
    run = runs.start("worldly", "Hello", run_id=run_id)
    values = {"status": "running", "token": 1, "lease_owner": DEAD, "lease_until": None, **columns}
    Run.objects.filter(pk=run.pk).update(**values)
    return run


def status_of(run_id: str) -> str:
    return runs.get(run_id).status


# anvil_resume: the sweep.


def test_resume_queues_interrupted_runs_and_says_which(agent):
    interrupted("a")
    interrupted("b")

    out, err = run_command("anvil_resume")

    assert out == "2 interrupted runs: 2 queued again.\n"
    assert err == (
        "a (worldly): its lease has expired; queued again\nb (worldly): its lease has expired; queued again\n"
    )
    assert [status_of("a"), status_of("b")] == ["queued", "queued"]


def test_resume_twice_does_nothing_the_second_time(agent):
    interrupted("a")
    run_command("anvil_resume")

    assert run_command("anvil_resume") == ("No interrupted runs.\n", "")


def test_resume_dry_run_changes_nothing(agent):
    interrupted("a")

    out, err = run_command("anvil_resume", "--dry-run")

    assert out == "1 interrupted run: 1 would be queued again.\n"
    assert err == "a (worldly): its lease has expired; would be queued again\n"
    assert status_of("a") == "running"


def test_resume_takes_at_most_the_limit(agent):
    for run_id in "abc":
        interrupted(run_id)

    assert run_command("anvil_resume", "--limit", "2")[0] == "2 interrupted runs: 2 queued again.\n"
    assert sorted(map(status_of, "abc")) == ["queued", "queued", "running"]


def test_resume_of_one_agent_leaves_others_alone(agent):
    interrupted("a")
    with registered_agent("other"):
        interrupted("b", agent="other")

        assert run_command("anvil_resume", "--agent", "other")[0] == "1 interrupted run: 1 queued again.\n"

    assert (status_of("a"), status_of("b")) == ("running", "queued")


def test_resume_of_a_misspelt_agent_is_an_error(agent):
    run_command(
        "anvil_resume",
        "--agent",
        "wordly",
        error="No agent named 'wordly' is registered (registered: support, worldly). "
        "Register it in an agents.py of an installed app.",
    )


def test_resume_takes_failed_runs_only_when_asked(agent):
    interrupted("a", status="failed", error_code="poison", error="It broke.", lease_owner="")

    assert run_command("anvil_resume")[0] == "No interrupted runs.\n"
    assert run_command("anvil_resume", "--failed") == (
        "1 interrupted run: 1 queued again.\n",
        "a (worldly): it failed; queued again\n",
    )


def test_one_run_that_cannot_be_recovered_does_not_stop_the_sweep(agent, monkeypatch):
    interrupted("a")
    interrupted("b")
    ring = runs.queue.ring

    def broken(run_id: str, **kwargs: Any) -> None:
        if run_id == "a":
            raise RuntimeError("queue \x1b[31mdown")
        ring(run_id, **kwargs)

    monkeypatch.setattr(runs.queue, "ring", broken)

    out, err = run_command(
        "anvil_resume",
        error="1 of 2 runs could not be recovered; the reasons are above. "
        "Mend them and run this command again.",
    )

    assert out == "2 interrupted runs: 1 queued again, 1 not recovered.\n"
    assert err == (
        "a (worldly): its lease has expired; not recovered: RuntimeError: queue down\n"
        "b (worldly): its lease has expired; queued again\n"
    )
    assert (status_of("a"), status_of("b")) == ("running", "queued")


def test_resume_answers_in_json_on_stdout_with_progress_apart(agent):
    interrupted("a")

    out, err = run_command("anvil_resume", "--json", "--verbosity", "0")

    assert json.loads(out) == [
        {"run_id": "a", "agent": "worldly", "action": "queued", "why": "its lease has expired", "error": ""}
    ]
    assert err == ""


# anvil_resume --run.


def test_resume_of_an_unknown_run_is_an_error():
    run_command(
        "anvil_resume",
        "--run",
        "nope",
        error="No run with run_id 'nope' is stored. List them with: manage.py anvil_runs",
    )


def test_resume_of_an_interrupted_run_queues_it(agent):
    interrupted("a")

    assert run_command("anvil_resume", "--run", "a") == (
        "Run a was queued again: its lease has expired.\n",
        "",
    )


def test_resume_of_a_paused_run_queues_it(agent):
    runs.start("worldly", "Hello", run_id="a")
    runs.pause("a")

    assert run_command("anvil_resume", "--run", "a", "--dry-run")[0] == (
        "Run a would be queued again: it was paused.\n"
    )
    assert status_of("a") == "paused"
    assert run_command("anvil_resume", "--run", "a")[0] == "Run a was queued again: it was paused.\n"
    assert status_of("a") == "queued"


def test_resume_of_a_queued_run_tells_the_queue_again(agent):
    runs.start("worldly", "Hello", run_id="a")

    assert run_command("anvil_resume", "--run", "a")[0] == (
        "Run a was queued again: the queue was told before.\n"
    )


def test_resume_leaves_a_run_that_waits_for_its_next_attempt(agent):
    runs.start("worldly", "Hello", run_id="a")
    Run.objects.update(next_attempt_at="2199-01-01T00:00:00Z", error="The API is overloaded.")

    assert run_command("anvil_resume", "--run", "a")[0] == (
        "Run a is queued: The API is overloaded; it is tried again at 2199-01-01 00:00:00 UTC.\n"
    )


def test_resume_leaves_a_run_that_a_worker_holds(agent):
    interrupted("a", lease_until="2199-01-01T00:00:00Z")

    assert run_command("anvil_resume", "--run", "a")[0] == (
        "Run a is running, advanced by process 2 on elsewhere; nothing was done.\n"
    )
    assert runs.get("a").lease_owner == DEAD


def test_resume_of_a_finished_run_says_that_nothing_was_done(agent):
    runs.start("worldly", "Hello", run_id="a")
    runs.cancel("a")

    assert run_command("anvil_resume", "--run", "a")[0] == (
        "Run a is cancelled: Cancelled by a person; nothing was done.\n"
    )


def test_resume_of_a_suspended_run_says_for_which_decisions_it_waits(agent, messages_api):
    messages_api.script(say(DEPLOY))
    run = runs.start("worldly", "Deploy it", run_id="a")
    tasks.advance("a")
    approval = run.approvals.get()

    assert run_command("anvil_resume", "--run", "a")[0] == (
        "Run a is suspended until a person decides; nothing was done. It waits for:\n"
        f'  approval {approval.pk}: may it run? deploy {{"version":"1.2"}}; '
        'asked with {"reason":"deploy always needs approval."}\n'
    )


def test_resume_finishes_what_a_dead_worker_began(agent, messages_api):
    messages_api.script(say("Hello to you."))
    interrupted("a")

    run_command("anvil_resume")
    tasks.advance("a")

    assert status_of("a") == "done"


# anvil_runs.


def test_runs_are_listed_newest_first_with_why_they_wait(agent):
    runs.start("worldly", "Hello", run_id="first")
    runs.start("worldly", "Hello", run_id="second", user=reviewer())
    runs.pause("second")
    Run.objects.update(updated_at="2026-01-02T03:04:05Z")
    used = {"input_tokens": 30, "output_tokens": 2, "cache_read_tokens": 10}
    Run.objects.filter(run_id="second").update(iterations=3, **used)

    out, err = run_command("anvil_runs")

    assert out == (
        "RUN     AGENT    STATUS  USER  ITERATIONS  TOKENS  COST     UPDATED (UTC)        WHY\n"
        "second  worldly  paused  rita  3           42      $0.0000  2026-01-02 03:04:05  "
        "Paused by an operator. Resume it to go on.\n"
        "first   worldly  queued  -     0           0       $0.0000  2026-01-02 03:04:05  Waits for a "
        "worker.\n"
    )
    assert err == ""


def listed(*options: str) -> list[str]:
    """The ids of the runs that are listed."""
    return [
        json.loads(line)["run_id"] for line in run_command("anvil_runs", "--json", *options)[0].splitlines()
    ]


def test_runs_are_filtered_and_cut_off(agent):
    for run_id in "abc":
        runs.start("worldly", "Hello", run_id=run_id)
    runs.pause("c")

    out, err = run_command("anvil_runs", "--status", "queued", "--agent", "worldly", "--limit", "1", "--json")

    assert [json.loads(line)["run_id"] for line in out.splitlines()] == ["b"]
    assert err == "There are more than these 1; --limit shows more.\n"


def test_runs_are_filtered_by_person_reason_and_time(agent):
    with fixed_clock() as clock:
        for hours, (run_id, user) in enumerate({"a": None, "b": reviewer(), "c": reviewer()}.items()):
            runs.start("worldly", "Hello", run_id=run_id, user=user)
            Run.objects.filter(run_id=run_id).update(created_at=clock.now() - timedelta(hours=hours))
        ended = {"status": "done", "stop_reason": "end_turn"}
        Run.objects.filter(run_id__in=["a", "c"]).update(**ended)

        assert listed("--user", "rita") == ["c", "b"]
        assert listed("--user", "rita", "--stop-reason", "end_turn") == ["c"]
        assert listed("--stop-reason", "max_cost") == []
        assert listed("--status", "done", "--status", "queued", "--since", "1.5h") == ["b", "a"]
        assert listed("--until", "0.5h") == ["c", "b"]
        assert listed("--since", (clock.now() - timedelta(hours=1)).isoformat(), "--until", "0.5h") == ["b"]
        assert listed("--since", "2999-01-01") == []


def test_filters_that_cannot_be_meant_are_errors(agent):
    run_command("anvil_runs", "--user", "nobody", error="There is no user 'nobody'.")
    wrong = (
        "Error: argument --since: {} is no time: "
        "give an age such as 2d or 12h, or 2026-12-01 or 2026-12-01T15:00"
    )
    for text in ("yesterday", "2026-13-01", "-1d", "2026-12-01T25:00"):
        run_command("anvil_runs", f"--since={text}", error=wrong.format(repr(text)))
    backwards = "--since is not before --until, so no run could be between them."
    run_command("anvil_runs", "--since", "1h", "--until", "2h", error=backwards)
    run_command(
        "anvil_runs",
        "--watch",
        "0",
        error="Error: argument --watch: '0' is not a number of seconds above zero",
    )


class Terminal(StringIO):
    """A terminal, as far as a command can tell."""

    def isatty(self) -> bool:
        return True


def watched(out: StringIO, *options: str, looks: int = 3) -> str:
    """What is written while a run goes on from look to look, until Ctrl-C."""

    def go_on(seconds: float) -> None:
        clock.advance(seconds)
        Run.objects.filter(run_id="a").update(iterations=F("iterations") + 1)
        if Run.objects.get(run_id="a").iterations == looks:
            raise KeyboardInterrupt

    with fixed_clock() as clock:
        clock.sleep = go_on  # type: ignore[method-assign]
        call_command("anvil_runs", "--watch", "5", *options, stdout=out, stderr=StringIO(), no_color=True)
    return out.getvalue()


def test_a_watched_list_is_drawn_anew_on_a_terminal(agent, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "5")
    for run_id in "cba":
        runs.start("worldly", "Hello", run_id=run_id)

    shown = watched(Terminal())

    screens = shown.split("\x1b[H\x1b[2J")
    assert [screen.count("\n") for screen in screens[1:]] == [3, 3, 4]  # The last one ends with Ctrl-C.
    assert all(len(line) <= 60 for screen in screens for line in screen.splitlines())
    assert screens[2].splitlines()[2:] == [
        "RUN  AGENT    STATUS  USER  ITERATIONS  TOKENS  COST     UPD",
        "a    worldly  queued  -     1           0       $0.0000  202",
    ]


def test_a_watched_list_is_printed_anew_elsewhere(agent):
    runs.start("worldly", "Hello", run_id="a")

    shown = watched(StringIO())

    assert "\x1b" not in shown
    assert shown.count("RUN  AGENT") == 3


def test_a_watched_list_in_json_repeats_what_has_changed(agent):
    for run_id in "ba":
        runs.start("worldly", "Hello", run_id=run_id)

    told = [json.loads(line) for line in watched(StringIO(), "--json").splitlines() if line]

    assert [(run["run_id"], run["iterations"]) for run in told] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]


def test_no_runs_is_said():
    assert run_command("anvil_runs") == ("No runs.\n", "")


def test_runs_in_json_say_money_exactly(agent):
    runs.start("worldly", "Hello", run_id="a")
    Run.objects.update(cost_usd="0.0000000012")

    run = json.loads(run_command("anvil_runs", "--json")[0])

    assert (run["run_id"], run["status"], run["cost_usd"]) == ("a", "queued", "0.0000000012")


# anvil_run.


@pytest.fixture
def worker(monkeypatch) -> Iterator[None]:
    """A worker that advances every queued run between two looks of the follower."""
    with fixed_clock() as clock:
        sleep = clock.sleep

        def work(seconds: float) -> None:
            sleep(seconds)
            for run_id in list(Run.objects.filter(status="queued").values_list("run_id", flat=True)):
                tasks.advance(run_id)

        monkeypatch.setattr(clock, "sleep", work)
        yield


def test_run_follows_what_the_workers_do(agent, messages_api, worker):
    messages_api.script(
        say("I look.", tool_call("look", {"thing": "lamp"}), tool_call("broken", {"why": "smoke"})),
        say("It is fine."),
    )

    out, err = run_command("anvil_run", "worldly", "Look at\nthe lamp", "--run-id", "a")

    run = runs.get("a")
    assert out == (
        "Run a of worldly.\n"
        "> Look at\n> the lamp\n"
        "I look.\n"
        '  -> look {"thing":"lamp"}\n'
        '  -> broken {"why":"smoke"}\n'
        '  <- look: {"thing":"lamp","state":"fine"}\n'
        "  <- broken failed: RuntimeError: smoke\n"
        "It is fine.\n"
        f"Run a is done (end_turn). Model calls: 2; tokens: "
        f"{run.input_tokens + run.cache_read_tokens + run.cache_write_tokens} in, {run.output_tokens} out; "
        f"${run.cost_usd:.4f}.\n"
    )
    assert err == ""


def test_a_terminal_shows_how_far_the_run_has_come_and_what_it_waits_for(agent, messages_api, worker):
    messages_api.script(say("I look.", tool_call("look", {"thing": "lamp"})), say("It is fine."))
    out, err = StringIO(), Terminal()

    call_command("anvil_run", "worldly", "Look", "--run-id", "a", stdout=out, stderr=err, no_color=True)

    assert err.getvalue() == (
        "\r\x1b[Kmodel calls: 0, tool calls: 0, tokens: 0, $0.0000; Waits for a worker.\r\x1b[K"
    )


def test_a_follower_says_for_what_a_run_waits_while_it_is_advanced(agent, messages_api):
    messages_api.script(say(tool_call("look", {"thing": "lamp"}), tool_call("mail", {"to": "ann"})))
    run = runs.start("worldly", "Look", run_id="a")
    follower = anvil_run.Follower(run)
    follower.news()
    assert (follower.asked, follower.awaited()) == (0, "waits for the model")
    with pytest.raises(Kill), kill_at("tool.before#2"):
        tasks.advance("a")

    follower.news()

    assert (follower.asked, follower.awaited()) == (2, "runs mail")


def test_run_stops_following_where_a_person_has_to_decide(agent, messages_api, worker):
    messages_api.script(say(DEPLOY))

    out, _ = run_command("anvil_run", "worldly", "Deploy it", "--run-id", "a")

    approval = runs.get("a").approvals.get()
    assert out.splitlines()[-1] == (
        f'  approval {approval.pk}: may it run? deploy {{"version":"1.2"}}; '
        'asked with {"reason":"deploy always needs approval."}'
    )


def test_run_here_shows_the_text_as_it_comes_and_needs_no_worker(agent, messages_api):
    messages_api.script(say("I look.", tool_call("look", {"thing": "lamp"})), say("It is fine."))

    out, _ = run_command("anvil_run", "worldly", "Look", "--run-id", "a", "--here")

    assert out.splitlines()[:-1] == [
        "Run a of worldly.",
        "I look.",
        '  -> look {"thing":"lamp"}',
        '  <- look: {"thing":"lamp","state":"fine"}',
        "It is fine.",
    ]
    assert out.splitlines()[-1].startswith("Run a is done (end_turn). Model calls: 2; tokens: ")


def test_a_terminal_shows_how_far_a_run_here_has_come(agent, messages_api):
    messages_api.script(say("I look.", tool_call("look", {"thing": "lamp"})), say("It is fine."))
    err = Terminal()

    call_command(
        "anvil_run",
        "worldly",
        "Look",
        "--run-id",
        "a",
        "--here",
        stdout=StringIO(),
        stderr=err,
        no_color=True,
    )

    shown = [line for line in err.getvalue().split("\r\x1b[K") if line]
    used = [line.partition(", tokens")[0] for line in shown]
    assert [line.partition("; ")[2] for line in shown][:3] == [
        "waits for the model",
        "runs look",
        "waits for the model",
    ]
    assert used[:3] == [
        "model calls: 1, tool calls: 0",
        "model calls: 1, tool calls: 1",
        "model calls: 1, tool calls: 1",
    ]
    assert used[-1] == "model calls: 2, tool calls: 1"


def test_run_is_for_the_named_user_and_carries_metadata(agent):
    user = reviewer("rita")
    with pytest.raises(SystemExit):
        interrupt_while_following("--user", "rita", "--metadata", '{"ticket": 7}')

    run = runs.get("a")
    assert run.user == user
    assert json.loads(run.metadata) == {"ticket": 7}


def interrupt_while_following(*args: str) -> str:
    """Press Ctrl-C while the command waits; what it says to stderr is attached to the SystemExit."""

    def press(seconds: float) -> None:
        raise KeyboardInterrupt

    err = StringIO()
    with fixed_clock() as clock:
        clock.sleep = press  # type: ignore[method-assign]
        try:
            call_command(
                "anvil_run", "worldly", "It's\nme", "--run-id", "a", *args, stdout=StringIO(), stderr=err
            )
        except SystemExit as left:
            left.add_note(err.getvalue())
            raise
    return ""


def test_ctrl_c_leaves_the_run_to_the_workers_and_says_how_to_follow_it_again(agent):
    with pytest.raises(SystemExit) as caught:
        interrupt_while_following("--metadata", '{"ticket": 7}')

    assert caught.value.code == 130
    (said,) = caught.value.__notes__
    assert said == (
        "\nNo longer followed; the workers go on with it. To follow it again: "
        "manage.py anvil_run worldly 'It'\"'\"'s\nme' --run-id a --metadata '{\"ticket\": 7}'\n"
    )
    assert status_of("a") == "queued"


def test_ctrl_c_during_a_run_here_leaves_it_resumable(agent, messages_api, monkeypatch):
    messages_api.script(say("I look.", tool_call("look", {"thing": "lamp"})))

    def press(thing: Any) -> Any:
        raise KeyboardInterrupt

    err = StringIO()
    monkeypatch.setattr(anvil_run, "_event_lines", press)
    with pytest.raises(SystemExit) as caught:
        call_command("anvil_run", "worldly", "Look", "--run-id", "a", "--here", stdout=StringIO(), stderr=err)
    monkeypatch.undo()

    assert caught.value.code == 130
    assert err.getvalue() == (
        "\nStopped. What was completed is stored, and a worker goes on from there. "
        "If none does, or not soon enough: manage.py anvil_resume --run a\n"
    )
    assert runs.get("a").iterations == 1
    assert status_of("a") == "queued"


HOSTILE = "\x1b]0;owned\x07red \x1b[31mtext\x1b[0m\r\x9b2J \u202eecil\u202c\x00"


def hostile_script(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(HOSTILE, tool_call("look", {"thing": "\x1b[2Jx"})), say(HOSTILE))


def test_stored_text_cannot_steer_the_terminal(agent, messages_api, worker):
    hostile_script(messages_api)

    out, _ = run_command("anvil_run", "worldly", "Look", "--run-id", "a")

    assert out.splitlines()[2:6] == [
        "red text ecil",
        r'  -> look {"thing":"\u001b[2Jx"}',
        r'  <- look: {"thing":"\u001b[2Jx","state":"fine"}',
        "red text ecil",
    ]


def test_text_that_is_shown_piece_by_piece_cannot_steer_the_terminal(agent, messages_api):
    hostile_script(messages_api)

    out, _ = run_command("anvil_run", "worldly", "Look", "--run-id", "a", "--here")

    assert not set(out) & set("\x1b\x9b\r\x07\x00\u202e\u202c")
    assert r'  -> look {"thing":"\u001b[2Jx"}' in out


def test_a_run_that_is_parked_or_failed_ends_the_command_with_an_error(agent, messages_api):
    messages_api.script(say("x").after(fault.http(401, "authentication_error", "invalid x-api-key")))

    out, _ = run_command(
        "anvil_run",
        "worldly",
        "Hello",
        "--run-id",
        "a",
        "--here",
        error="It can go on from its last completed step: manage.py anvil_resume --run a",
    )

    assert out.splitlines()[1].startswith(
        f"Run a is paused: {runs.get('a').error.rstrip('.')}. Model calls: 0;"
    )
    run_command("anvil_resume", "--run", "a")
    tasks.advance("a")
    assert status_of("a") == "done"


UNKNOWN_AGENT = (
    "No agent named 'nobody' is registered (registered: support, worldly). "
    "Register it in an agents.py of an installed app."
)
NOT_JSON = (
    "--metadata is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
)
BAD_RUN_ID = (
    "run_id 'a b' may hold only ASCII letters, digits and . _ : @ ~ + = , - "
    "and starts with a letter or digit."
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "Hello"], UNKNOWN_AGENT),
        (["worldly", " "], "messages[0].content is blank."),
        (["worldly", "Hello", "--user", "nobody"], "There is no user 'nobody'."),
        (["worldly", "Hello", "--metadata", "{"], NOT_JSON),
        (["worldly", "Hello", "--metadata", "[1]"], "metadata must be an object."),
        (["worldly", "Hello", "--run-id", "a b"], BAD_RUN_ID),
    ],
)
@pytest.mark.parametrize("here", [[], ["--here"]])
def test_bad_input_is_a_clear_error_and_stores_nothing(agent, arguments, message, here):
    run_command("anvil_run", *arguments, *here, error=message)

    assert not Run.objects.exists()


def test_a_run_id_of_another_request_is_an_error(agent):
    runs.start("worldly", "Hello", run_id="a")

    run_command(
        "anvil_run",
        "worldly",
        "Something else",
        "--run-id",
        "a",
        error="run_id 'a' is already used by a run of another request. "
        "Choose another run_id, or send exactly the same request to get that run.",
    )


def test_a_run_that_no_worker_takes_is_explained(agent, monkeypatch):
    def tick(seconds: float) -> None:
        clock.advance(seconds)
        if clock.monotonic() > 1000 + 2 * anvil_run.PATIENCE:
            runs.cancel("a")

    with fixed_clock() as clock:
        monkeypatch.setattr(clock, "sleep", tick)
        out, err = run_command("anvil_run", "worldly", "Hello", "--run-id", "a")

    assert (
        err == "Run a is queued: Waits for a worker. If no worker runs, "
        "start one with: manage.py anvil_worker\n"
    )
    assert "Run a is cancelled: Cancelled by a person." in out


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain, \tas\nit is: é 漢 🙂", "plain, \tas\nit is: é 漢 🙂"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\control", "control"),
        ("\x1b", ""),
        ("cut \x1b[3", "cut 3"),
        ("\x9b31mred", "red"),
        ("half a pair \ud83d", "half a pair \N{REPLACEMENT CHARACTER}"),
        ("over\rwritten\x08\x7f", "overwritten"),
    ],
)
def test_plain_text_keeps_words_and_drops_what_steers(raw, shown):
    assert terminal.plain(raw) == shown
