"""The table at the end, for people and as JSON."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from . import effect_log
from .campaign import Campaign
from .facts import Finding


def summary(campaign: Campaign, findings: list[Finding], *, told: int) -> dict[str, Any]:
    """All figures of a campaign; Django's models are still to be reached."""
    import django
    from django.db.models import Count, Sum
    from django_q import VERSION as Q_VERSION

    from anvil_django.models import Run

    rows = Run.objects.values_list("status").annotate(Count("id")).order_by("status")
    planned, injected = Counter(campaign.planned), campaign.injector.injected
    model_faults: Counter[str] = Counter()
    for scenario in campaign.scenarios:
        model_faults += scenario.model_faults
    lines = effect_log.read(campaign.effect_log)
    return {
        "options": asdict(campaign.options),
        "versions": {
            "python": platform.python_version(),
            "django": django.get_version(),
            "django-q2": ".".join(map(str, Q_VERSION)),
        },
        "seconds": round(campaign.now(), 1),
        "drained in seconds": round(campaign.drained_in, 1),
        "hosts": "two host names" if campaign.several_hosts else "one host name (unshare is not permitted)",
        "supervisor": campaign.hosts[0].has_supervisor,
        "faults": {name: [planned[name], injected[name]] for name in sorted({*planned, *injected})},
        "model faults": {
            **{name: [number, None] for name, number in sorted(model_faults.items())},
            "all of them": [model_faults.total(), campaign.model.faults_served],
        },
        "runs": dict(rows),
        "effects": {
            **dict(sorted(Counter(f"{ln['kind']}, {ln['event']}" for ln in lines).items())),
            "look-ups cut off, and the model told so": told,
        },
        "people": dict(sorted(campaign.clerk.decided.items())),
        "recoveries": {
            **{f"swept: {why}": number for why, number in sorted(campaign.sweeper.recovered.items())},
            "claims of a run": Run.objects.aggregate(Sum("token"))["token__sum"],
            "clusters restarted by the watchdog": sum(host.restarts for host in campaign.hosts),
            "deploys that hung": campaign.injector.deploys_that_hung,
            **campaign.logs,
        },
        "transactions": {
            "looks": campaign.transactions.looks,
            "longest, s": round(campaign.transactions.longest, 2),
        },
        "losses": dict(Counter(finding.kind for finding in findings)),
    }


def table(figures: Mapping[str, Any]) -> str:
    """The same as text."""
    options, versions = figures["options"], figures["versions"]
    lines = [
        "",
        f"{options['db']} + {options['broker']}, seed {options['seed']}, {options['runs']} runs",
        f"{options['clusters']} clusters of {options['workers']} workers, {figures['hosts']}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"{figures['seconds']} s, drained {figures['drained in seconds']} s after the last fault",
        "",
        f"{'fault':<44}{'planned':>9}{'injected':>10}",
    ]
    for name, (planned, injected) in [*figures["faults"].items(), *figures["model faults"].items()]:
        prefix = "model: " if name in figures["model faults"] else ""
        lines.append(f"{prefix + name:<44}{planned:>9}{'' if injected is None else injected:>10}")
    total = sum(injected for _, injected in figures["faults"].values())
    lines.append(f"{'faults, those of the model apart':<44}{options['faults']:>9}{total:>10}")
    for title in ("runs", "effects", "people", "recoveries", "transactions", "losses"):
        lines += ["", title]
        lines += [f"  {name:<50}{number:>8}" for name, number in figures[title].items()] or ["  0"]
    return "\n".join(lines)


def missing(figures: Mapping[str, Any]) -> int:
    """How many faults were asked for and not injected."""
    return int(figures["options"]["faults"]) - sum(injected for _, injected in figures["faults"].values())
