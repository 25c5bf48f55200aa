"""The named points between durable steps, where a test may stop the process.

In production ``reach`` is one comparison. ``anvil_django.testing`` installs a hook to raise, exit or kill at
a boundary. What is stored when a boundary is reached, and what a crash there makes the next process do again:

====================  ===========================================  ==========================================
boundary              stored when it is reached                    done again after a crash there
====================  ===========================================  ==========================================
run.before_ring       a new run: nothing, it goes with the         the caller's request
                      transaction that starts it; the end of a
                      slice: all of it
run.rung              the run and its doorbell, once the caller's  nothing
                      transaction is committed
run.claimed           the lease                                    nothing
model.before          what the request holds, but for results of   those read-only tools
                      read-only tools that ride with the next
                      commit
model.answered        the same: the answer is only in memory       the model call, and those read-only tools
tool.before           of a side effect: that it is started         a read-only or atomic tool; another side
                                                                   effect is in doubt, though it has not
                                                                   begun
atomic.before_commit  nothing of this call: its writes and its     the atomic tool; what it wrote is rolled
                      result are not committed                     back
tool.returned         an atomic tool: all of it; any other:        a read-only tool; a side effect is in
                      nothing since it began                       doubt
save.before           nothing since the last save                  a model call, a read-only or atomic tool;
                                                                   another side effect is in doubt
save.done             the step, and that the next side effect is   nothing, or the atomic tool; a side effect
                      started; inside an atomic tool: nothing yet  that is next is in doubt, though it has
                                                                   not begun
run.giving_up         what was saved before the error              what was not; the lease has to run out
====================  ===========================================  ==========================================

Instead of being in doubt, a tool with ``on_interrupt="retry"`` is run again, with the same key.
"""

from __future__ import annotations

from collections.abc import Callable

BOUNDARIES = (
    "run.before_ring",
    "run.rung",
    "run.claimed",
    "model.before",
    "model.answered",
    "tool.before",
    "atomic.before_commit",
    "tool.returned",
    "save.before",
    "save.done",
    "run.giving_up",
)
"""Every boundary, in the order in which a run meets them; a save comes after each step."""

Hook = Callable[[str], None]

_hook: Hook | None = None


def reach(name: str) -> None:
    """Say that the process is at boundary ``name``."""
    if _hook is not None:
        _hook(name)


def set_hook(hook: Hook | None) -> Hook | None:
    """Call ``hook`` with the name of every boundary that is reached (None: nothing is called).

    Returns:
        The hook it replaces.
    """
    global _hook
    previous, _hook = _hook, hook
    return previous
