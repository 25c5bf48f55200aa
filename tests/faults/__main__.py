"""``python -m tests.faults``: one campaign; see ``docs/faults.md``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from .databases import DATABASES, Redis


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--db", choices=sorted(DATABASES), default="sqlite")
    parser.add_argument("--broker", choices=["orm", "redis"], default="orm")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--faults", type=int, default=30, help="those of the model come on top")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="of each cluster")
    parser.add_argument("--minutes", type=float, default=10.0, help="bound of the part with faults")
    parser.add_argument("--drain-seconds", type=float, default=120.0, help="bound of what comes after it")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--keep", action="store_true", help="keep the folder although nothing was lost")
    options = parser.parse_args()
    # A campaign that is stopped takes its processes and databases with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    folder = Path(tempfile.mkdtemp(prefix="anvil-faults-"))
    database = DATABASES[options.db](folder)
    redis = Redis(folder) if options.broker == "redis" else None
    keep = True
    try:
        database.create()
        if redis is not None:
            redis.start()
            os.environ["ANVIL_FAULTS_REDIS"] = str(redis.socket)
        os.environ.update(database.environment())
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.faults.settings"
        os.environ["ANVIL_FAULTS_WORKERS"] = str(options.workers)
        failed = _campaign(options, folder, database, redis)
        keep = failed or options.keep
    finally:
        if redis is not None:
            redis.stop()
        database.drop()
        if keep:
            print(f"Logs, effect log and dump are kept in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return int(failed)


def _campaign(options: argparse.Namespace, folder: Path, database: Any, redis: Redis | None) -> bool:
    """Run it, have it audited, print the table; whether anything is wrong."""
    import django

    django.setup()
    import django_q.conf  # noqa: F401 (sets the level of its logger)

    # It would tell of every doorbell.
    logging.getLogger("django-q").setLevel(logging.WARNING)
    from .audit import audit
    from .campaign import Campaign, Options
    from .report import missing, summary, table

    asked = {name: getattr(options, name) for name in Options.__dataclass_fields__}
    campaign = Campaign(Options(**asked), folder, database, redis)
    facts = campaign.run()
    audited = audit(facts)
    told = [finding for finding in audited if campaign.is_told(finding)]
    findings = [*campaign.findings, *(finding for finding in audited if finding not in told)]
    figures = summary(campaign, findings, told=len(told))
    print(table(figures))
    for finding in findings:
        print(f"LOSS  {finding.kind}  {finding.run_id}  {finding.sentence}")
    if short := missing(figures):
        print(f"{short} of the faults asked for were not injected.")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1, default=str) + "\n")
    if findings:
        _dump(folder)
    return bool(findings or short)


def _dump(folder: Path) -> None:
    from django.core.management import call_command

    apps = ["anvil_django", "shop", "django_q.ormq"]
    call_command("dumpdata", *apps, indent=1, output=str(folder / "dump.json"), verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
