"""Several runs at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def all_at_once(work: Callable[[str], None], keys: list[str]) -> None:
    """Call ``work`` with each key in a thread of its own; raises what one of them raised."""
    with ThreadPoolExecutor(len(keys)) as pool:
        for done in [pool.submit(work, key) for key in keys]:
            done.result()
