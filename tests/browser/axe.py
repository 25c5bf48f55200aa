"""What axe-core has against a page."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

RUN = """
() => axe.run(document, {resultTypes: ["violations"]}).then((results) => results.violations.flatMap(
    (violation) => violation.nodes.map((node) => ({
        rule: violation.id,
        help: violation.help,
        target: node.target.flat().join(" "),
        html: node.html.slice(0, 300),
        summary: node.any.concat(node.all, node.none).map((check) => check.message).join(" "),
    }))
))
"""
OWNED = """
([target, selectors]) => selectors.some((selector) => document.querySelector(target)?.closest(selector))
"""


def violations(page: Any, *, allowed: Collection[tuple[str, str]] = ()) -> list[str]:
    """Each violation in a line; without those of a rule in a part of the page (a selector) that are allowed.

    The page has to be one of a context with ``bypass_csp``: axe-core measures by inline styles.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    page.evaluate(AXE_SCRIPT)
    found = []
    for each in page.evaluate(RUN):
        parts = [selector for rule, selector in allowed if rule == each["rule"]]
        if not (parts and page.evaluate(OWNED, [each["target"], parts])):
            found.append(
                f"{each['rule']}: {each['target']} ({each['help']}; {each['summary']})\n{each['html']}"
            )
    return found
