"""`explore`: a saga under every single fault, and the shortest story in which it goes wrong. See docs/explore.md."""

from sagas.testing.explorer.search import explore
from sagas.testing.explorer.stage import note
from sagas.testing.explorer.story import Exploration, ExplorationFailed, Story

__all__ = ["Exploration", "ExplorationFailed", "Story", "explore", "note"]
