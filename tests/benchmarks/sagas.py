"""The saga that is measured: three external steps that do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from sagas import Saga, external_step


@dataclass(frozen=True)
class NoopInput:
    """What the steps are given: as little as the peers' are."""

    number: int


class Noop(Saga[NoopInput], name="bench.noop", version=1):
    """The same work as the peers' workflows and chains."""

    @external_step(compensate=None)
    def first(self) -> None:
        """Do nothing."""

    @external_step(compensate=None)
    def second(self) -> None:
        """Do nothing."""

    @external_step(pivot=True)
    def third(self) -> None:
        """Do nothing."""
