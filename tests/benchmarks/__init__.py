"""Benchmarks: our side and its peers, measured side by side in one run on one Postgres.

`python -m tests.benchmarks.quick` is the command; `report` turns what it measured into ratios.
Everything named `ours_*` and everything in `peers/` is a script of its own that prints one JSON line
per measurement; peers run in an environment of their own, so that their needs are not ours.
"""
