"""The example end to end: `python -m example_project.demo`, and `--serve` to click through it."""
