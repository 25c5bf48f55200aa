"""The fault campaign: many runs on real workers while things break; `python -m tests.faults --help`."""
