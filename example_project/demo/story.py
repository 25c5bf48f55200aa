"""The demo: a worker is killed in mid-run, the run recovers, a person approves, and the proof is printed."""

import os
import signal
import time
from dataclasses import dataclass, field

from anvil_django.models import Approval, Run
from anvil_django.states import ApprovalStatus, RunStatus
from example_project.shop.script import CUSTOMER_MESSAGE
from example_project.shop.seed import CLERK, REVIEWER, Person

from . import site
from .conversations import INTERRUPTED_CALL
from .processes import DemoError, Processes
from .proof import Interruption, checks, rows

RESTING = {str(s) for s in (RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.PAUSED)}


@dataclass
class Told:
    """Prints what happens, with the seconds since the start."""

    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def __call__(self, line: str) -> None:
        print(f"{self.seconds:6.2f} s  {line}", flush=True)


def tell(processes: Processes) -> int:
    told = Told()
    site.prepare()
    told("Tables, orders and people are in a new SQLite database.")
    shop = site.start(processes, "example_project.demo.conversations:demo_script")
    model = "the real API" if shop.model_url is None else "a scripted model"
    told(f"The site and its workers run; the model is {model}, reached by the real SDK over HTTP.")

    run = _start(shop, told)
    killed = _interrupt(shop, run, told)
    _approve(shop, run, told)
    _wait_until_at_rest(shop, run)
    told(f"The run is {run.status}.")

    print("\nWhat the database has of the run:\n")
    print("\n".join(rows(run)))
    print("\nThe proof:\n")
    results = checks(run, killed, None if shop.model_url is None else shop.model_report())
    for good, sentence in results:
        print(f"  {'ok ' if good else 'NOT'}  {sentence}")
    print(f"\n{told.seconds:.1f} s in all.")
    return 0 if all(good for good, _ in results) else 1


def _name(person: Person) -> str:
    return f"{person.first_name} {person.last_name}"


def _start(shop: site.Site, told: Told) -> Run:
    clerk = shop.browser()
    clerk.log_in("api-auth/login/", CLERK)
    answer = clerk.post_json("api/agents/v1/runs/", {"agent": "support", "input": CUSTOMER_MESSAGE})
    told(f"{_name(CLERK)} starts run {answer['run_id']} over REST: {CUSTOMER_MESSAGE}")
    return Run.objects.get(run_id=answer["run_id"])


def _interrupt(shop: site.Site, run: Run, told: Told) -> Interruption:
    """Kill the worker that holds the lease while it waits for the model's second answer."""

    def in_second_call() -> bool:
        run.refresh_from_db()
        if run.status != str(RunStatus.RUNNING) or run.iterations < INTERRUPTED_CALL - 1:
            return False
        return shop.model_url is None or shop.model_report()["requests"] >= INTERRUPTED_CALL

    shop.processes.wait_for("The second call of the model", in_second_call, seconds=60)
    pid, token = _pid(run.lease_owner), run.token
    os.kill(pid, signal.SIGKILL)
    at = time.monotonic()
    told(
        f"SIGKILL for worker {pid}, which holds the run under fencing token {token} and waits for the model."
    )

    def taken_over() -> bool:
        run.refresh_from_db()
        return run.token > token

    shop.processes.wait_for("The recovery of the run", taken_over, seconds=40, every=0.01)
    took = time.monotonic() - at
    by = _pid(run.lease_owner) if run.lease_owner else None
    told(f"{f'Worker {by}' if by else 'Another worker'} has taken it over under token {run.token}.")
    return Interruption(pid, token, by, run.token, took)


def _pid(owner: str) -> int:
    # host/pid namespace/pid/start time/something unique; a host's name has no slash.
    return int(owner.split("/")[2])


def _approve(shop: site.Site, run: Run, told: Told) -> None:
    """As the reviewer at a browser: select the case, choose Approve, confirm."""

    def asked() -> Approval | None:
        run.refresh_from_db()
        if run.status in RESTING:
            raise DemoError(
                f"The run is {run.status} without having asked anybody: {run.error or run.stop_reason}"
            )
        return run.approvals.filter(status=str(ApprovalStatus.PENDING)).first()

    approval = shop.processes.wait_for("The request for an approval", asked, seconds=60)
    told(f"It waits for a person: {approval.tool} {approval.payload}")
    reviewer, page = shop.browser(), "admin/anvil_django/approval/"
    reviewer.log_in("admin/login/", REVIEWER)
    chosen = {"action": "approve", "_selected_action": str(approval.pk)}
    form = reviewer.post(page, chosen).form_with("reason", "_selected_action")
    reviewer.post(page, form.pressed(reason="The photo shows the crack."))
    approval.refresh_from_db()
    if approval.status != str(ApprovalStatus.APPROVED):
        raise DemoError(f"The approval is {approval.status} after it was approved in the admin.")
    told(f"{_name(REVIEWER)} approves it in the admin.")


def _wait_until_at_rest(shop: site.Site, run: Run) -> None:
    def at_rest() -> bool:
        run.refresh_from_db()
        return run.status in RESTING

    shop.processes.wait_for("The end of the run", at_rest, seconds=90)
