"""Spans of the relay are for looking at: whatever becomes of them, work is published."""

from __future__ import annotations

from typing import Any

import pytest

from sagas.tracing_relay import PublishSpans
from sagas_outbox.claims import Claimed

ROW = Claimed(1, 0, "q", "step", "n", "act", "do", 0, 1)


class Breaking:
    """A span whose processor fails when it ends."""

    def end(self) -> None:
        raise RuntimeError("exporter is broken")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("exporter is broken")


class Spans(PublishSpans):
    """One saga is known; its span is `made`."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self._sagas, self.made = {1: ()}, made

    def _span(self, queue: str, row: Claimed, together: int) -> Any:
        if self.made is None:
            raise RuntimeError("exporter is broken")
        return self.made


@pytest.mark.parametrize("made", [None, Breaking()], ids=["at its start", "at its end"])
def test_a_span_that_fails_costs_the_message_nothing(made: Any) -> None:
    """The message goes out once, without a trace."""
    sent = []
    with Spans(made).sending("q", [ROW]) as traces:
        sent.append(dict(traces))
    assert sent == [{}]


def test_an_error_of_the_broker_is_not_hidden() -> None:
    """It is the relay's to know."""
    with pytest.raises(OSError, match="no broker"), Spans(Breaking()).sending("q", [ROW]):
        raise OSError("no broker")
