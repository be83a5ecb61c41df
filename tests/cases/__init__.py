"""Accidents that happened to others, each a test named after the scenario it plays; see README.md."""
