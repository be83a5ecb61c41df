"""Everything at once, by a seed: `python -m tests.chaos`, and a short run in `test_chaos.py`; see docs/chaos.md."""
