"""Local steps: what a body writes commits together with its log entry, once, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from sagas.context import Missing, OnExisting
from sagas.errors import Refused
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Answer, Asking, Local, There, Told, stage

TOGETHER = (
    "select count(*) from conformance_note n join sagas_saga s on n.text = 'body ' || s.key"
    " join sagas_log l on l.saga_id = s.id and l.kind = 'step_done' and l.xmin::text = n.transaction"
)
COMPANY = "select count(*) from conformance_note group by transaction having bool_or(text in ('body c', 'body d'))"
DONE = "select key from sagas_saga where id in (select saga_id from sagas_log where kind = 'step_done')"
TRANSACTIONS = "select count(distinct transaction) from conformance_note"


def raises(problem: BaseException) -> Any:
    """A body that raises."""

    def body(run: Any) -> None:
        raise problem

    return body


class BodySuite(Suite):
    """Bodies of local steps, one transaction with their log entries."""

    def test_one_transaction(self, integration: Integration) -> None:
        """The note and the log entry were written by the same transaction."""
        self.begin(integration, Local, "a")
        outside.drain(integration.store)
        assert outside.notes(integration.url) == ["body a"]
        assert outside.rows(integration.url, TOGETHER) == [1]
        self.ended(integration, Status.COMPLETED, "a")

    def test_one_that_raises_did_not_happen(self, integration: Integration) -> None:
        """It is tried again, and leaves one note; or none if it never succeeds."""
        stage.plays("once", lambda run: 1 / 0 if run.attempt == 1 else "fine")
        stage.plays("always", raises(ZeroDivisionError()))
        stage.plays("refused", raises(Refused("no")))
        self.begin(integration, There, "a", what="once")
        self.begin(integration, There, "b", what="always")
        self.begin(integration, There, "c", what="refused")
        outside.drain(integration.store)
        assert outside.notes(integration.url) == ["body a"]
        assert [stage.calls["body", key] for key in "abc"] == [2, 3, 1]
        assert [stage.calls["back from first", key] for key in "abc"] == [0, 1, 1]
        self.ended(integration, Status.COMPLETED, "a")
        self.ended(integration, Status.COMPENSATED, "b", "c")

    def test_neighbours_share_a_transaction_but_no_fate(self, integration: Integration) -> None:
        """One raises, one is refused: their writes are undone, and the others commit together."""
        stage.plays("raises", raises(ZeroDivisionError()))
        stage.plays("refused", raises(Refused("no")))
        self.begin(integration, Local, "a", "b", "c")
        self.begin(integration, Local, "d", what="raises")
        self.begin(integration, Local, "e", what="refused")
        outside.run_together(integration.store)
        assert outside.notes(integration.url) == ["body a", "body b", "body c"]
        assert outside.rows(integration.url, TRANSACTIONS) == [1]
        outside.drain(integration.store)
        assert outside.rows(integration.url, TOGETHER) == [3]
        self.ended(integration, Status.COMPLETED, "a", "b", "c")
        self.ended(integration, Status.COMPENSATED, "d", "e")

    def test_a_violated_constraint(self, integration: Integration) -> None:
        """It is the failure of the one whose writes violate it, also when they are sent after its body."""
        stage.plays("violates", lambda run: integration.write(run, "body a"))
        self.begin(integration, Local, "a", "b")
        self.begin(integration, Local, "c", what="violates")
        outside.run_together(integration.store)
        assert outside.notes(integration.url) == ["body a", "body b"]
        outside.drain(integration.store)
        self.ended(integration, Status.COMPLETED, "a", "b")
        self.ended(integration, Status.COMPENSATED, "c")
        assert stage.calls["body", "a"] + stage.calls["body", "b"] <= 4  # once together and once alone, at most

    def test_a_broken_transaction_is_not_success(self, integration: Integration) -> None:
        """A body that swallows the error of its own statement has lost its writes: it has failed."""

        def swallows(run: Any) -> str:
            with pytest.raises(Exception, match="division by zero"):
                integration.execute(run, "select 1 / 0")
            return "fine"

        stage.plays("swallows", swallows)
        self.begin(integration, Local, "a", "b")
        self.begin(integration, Local, "c", what="swallows")
        outside.run_together(integration.store)
        outside.drain(integration.store)
        assert outside.notes(integration.url) == ["body a", "body b"]
        self.ended(integration, Status.COMPENSATED, "c")

    def test_a_savepoint_of_its_own(self, integration: Integration) -> None:
        """Who wraps the statement in a savepoint may go on."""

        def careful(run: Any) -> None:
            with pytest.raises(Exception, match="division by zero"), integration.savepoint(run):  # noqa: PT012
                integration.write(run, "gone")
                integration.execute(run, "select 1 / 0")
            integration.write(run, "after")

        stage.plays("careful", careful)
        self.begin(integration, Local, "a", what="careful")
        outside.run_together(integration.store)
        assert outside.notes(integration.url) == ["after", "body a"]
        self.ended(integration, Status.COMPLETED, "a")

    def test_a_body_does_not_end_its_transaction(self, integration: Integration) -> None:
        """However it tries, it is told not to; nothing of it stays, and its neighbours do not notice."""
        endings = integration.endings()
        for name, ending in endings.items():
            stage.plays(name, ending)
            self.begin(integration, Local, name, what=name)
        self.begin(integration, Local, "neighbour")
        outside.run_together(integration.store)
        outside.drain(integration.store)
        assert outside.notes(integration.url) == ["body neighbour"]
        self.ended(integration, Status.COMPLETED, "neighbour")
        self.ended(integration, Status.COMPENSATED, *endings)

    def test_nor_when_it_swallows_the_refusal(self, integration: Integration) -> None:
        """What it was told not to do it has not done, and either all of its step stays or nothing."""
        endings = integration.endings()
        for name, ending in endings.items():
            stage.plays(name, swallowing(ending))
            self.begin(integration, Local, name, what=name)
            outside.run_together(integration.store)
        outside.drain(integration.store)
        done = outside.rows(integration.url, DONE)
        kept = sorted(f"body {name}" for name in done)
        assert outside.notes(integration.url) == kept
        assert outside.rows(integration.url, TOGETHER) == [len(kept)]

    def test_commit_hooks(self, integration: Integration) -> None:
        """They run once, after the commit, and not for a body that failed. Such a body has a transaction to itself."""
        seen: list[Any] = []

        def hooked(run: Any) -> None:
            note = f"body {run.key}"
            integration.after_commit(run, lambda: seen.append((note, outside.notes(integration.url).count(note))))

        def fails(run: Any) -> None:
            hooked(run)
            raise ZeroDivisionError

        stage.plays("hooked", hooked)
        stage.plays("fails", fails)
        self.begin(integration, Local, "a", "b")
        self.begin(integration, Local, "c", "d", what="hooked")
        self.begin(integration, Local, "e", what="fails")
        outside.run_together(integration.store)
        outside.drain(integration.store)
        assert sorted(seen) == [("body c", 1), ("body d", 1)]
        assert outside.notes(integration.url) == ["body a", "body b", "body c", "body d"]
        alone = (
            "select count(*) from conformance_note group by transaction having bool_or(text in ('body c', 'body d'))"
        )
        assert outside.rows(integration.url, alone) == [1, 1]

    def test_a_hook_that_fails_costs_nothing(self, integration: Integration) -> None:
        """The step is committed by then: it is not run again, and the saga goes on."""
        stage.plays("hooked", lambda run: integration.after_commit(run, lambda: 1 / 0))
        self.begin(integration, Local, "a", what="hooked")
        outside.drain(integration.store)
        assert (outside.notes(integration.url), stage.calls["body", "a"]) == (["body a"], 1)
        self.ended(integration, Status.COMPLETED, "a")

    def test_what_a_signal_said(self, integration: Integration) -> None:
        """Sent after the start, or kept from before it: the step after the wait reads it, and once."""
        with integration.transaction() as unit:
            unit.send(Asking.answer, Answer("early"), key="b", missing=Missing.KEEP)
            unit.commit()
        with integration.transaction() as unit:
            for key, text in (("a", "late"), ("b", "second")):
                unit.start(Asking, Told(), key=key)
                unit.send(Asking.answer, Answer(text), key=key, dedupe_id="1")
                unit.send(Asking.answer, Answer("again"), key=key, dedupe_id="1")
            unit.commit()
        outside.drain(integration.store)
        said = "select data->>'result' from sagas_log where kind = 'step_done' and step = 'body' order by 1"
        assert outside.rows(integration.url, said) == ["done: early", "done: late"]
        assert (stage.calls["body", "a"], stage.calls["body", "b"]) == (1, 1)

    def test_cancelled_and_started_again(self, integration: Integration) -> None:
        """A cancel that was committed before the body began stops it; then the key may be used again."""
        with integration.transaction() as unit:
            first = unit.start(There, Told(), key="a")
            unit.cancel(There, key="a", reason="a test")
            unit.commit()
        outside.drain(integration.store)
        self.ended(integration, Status.CANCELLED, "a")
        assert outside.notes(integration.url) == []
        with integration.transaction() as unit:
            again = unit.start(There, Told("x"), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
            unit.commit()
        assert (again.created, again.run, again.id != first.id) == (True, 2, True)


def swallowing(ending: Any) -> Any:
    """A body that does not care whether it was refused."""

    def body(run: Any) -> str:
        try:
            ending(run)
        except Exception:
            return "swallowed"
        return "fine"

    return body
