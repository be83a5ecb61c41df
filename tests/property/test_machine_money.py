"""Random sagas against a bank: at the end the books say what the design promises for a bank of its kind.

One delivery at a time; requests whose reply was lost may land late. See "What this gives" in the design's
claim protocol: how late they may land depends on what the bank can do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from sagas.events import Direction, Facts, Kind, Work
from sagas.machine import UNDONE, step_of
from sagas.plan import Plan, StepPlan
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from sagas.takeover import Argument, Memory, Run
from tests.support.machine_driver import Did, Driven, plan, step, undo
from tests.support.machine_worlds import (
    KEY_TTL,
    TAPES,
    Tape,
    begin_to_wait,
    begun,
    finish,
    look_at_condition,
    plans,
    run,
)

BANK = settings(max_examples=1000, deadline=None, derandomize=True)
BEFORE = (Did.FAIL, Did.DIE, Did.REFUSE, Did.GIVE_UP)  # ends of a body that did nothing
AFTER = (Did.FAIL, Did.DIE, Did.GIVE_UP)  # ends of a body whose reply was lost


@dataclass
class Charge:
    """Money that was taken, and perhaps given back."""

    step: str
    number: int
    at: float
    given_back: bool = False

    @property
    def id(self) -> Raw:
        return Raw(b'"%s-%d"' % (self.step.encode(), self.number))


@dataclass
class Bank:
    """A provider: charges under a key, gives back, remembers keys, plants tombstones, finds by key - or not."""

    honours_keys: bool
    plants_tombstones: bool = False
    lands_late: bool = False  # a request may be carried out long after its sender has gone
    charges: dict[str, list[Charge]] = field(default_factory=lambda: defaultdict(list))
    now: Callable[[], float] = lambda: 0.0
    tombstones: set[str] = field(default_factory=set)
    gave_back: set[str] = field(default_factory=set)
    under_way: list[str] = field(default_factory=list)

    def charge(self, step: str) -> Charge | None:
        """Carry out a request; None under a key that was closed."""
        if step in self.tombstones:
            return None
        if not self.honours_keys or not self.charges[step]:
            self.charges[step].append(Charge(step, len(self.charges[step]), self.now()))
        return self.charges[step][-1]

    def give_back(self, step: str, id: Raw | None) -> None:
        """Undo one charge, or whatever there is under the key. Twice is once."""
        for charge in self.charges[step]:
            charge.given_back |= id in (None, charge.id)
        if id is None and self.plants_tombstones:
            self.tombstones.add(step)
        self.gave_back.add(step)

    def land(self, step: str) -> Charge | None:
        """A request that was under way arrives."""
        self.under_way.remove(step)
        return self.charge(step)

    def land_all(self) -> None:
        while self.under_way:
            self.land(self.under_way[0])

    def find(self, step: str) -> Charge | None:
        return next(iter(sorted(self.charges[step], key=lambda charge: charge.given_back)), None)


class ForgetfulBank(Bank):
    """Remembers a key for `KEY_TTL` seconds after its first request."""

    def charge(self, step: str) -> Charge | None:
        made = self.charges[step]
        if made and self.now() - made[0].at >= KEY_TTL:
            made.append(Charge(step, len(made), self.now()))
        return super().charge(step)


class AtTheBank:
    """A world whose bodies charge, whose compensations give back, and whose `resolve` tells the truth."""

    def __init__(self, saga: Driven, bank: Bank, tape: Tape, *, undecided: bool = True) -> None:
        self.saga, self.bank, self.tape, self.undecided = saga, bank, tape, undecided
        self.late_answers: dict[str, Raw] = {}

    def memory(self, work: Work) -> Memory:
        self._let_requests_land(work)
        if work.direction is Direction.UNDO:
            return Memory()
        return Memory(closed=work.step in self.saga.marks, response=self.late_answers.get(work.step))

    def ask(self, work: Work) -> Did | Raw:
        if (trouble := self.tape.choose([None, None, Did.UNDECIDED, Did.DIE])) is not None:
            return trouble if self.undecided else Did.DIE
        if work.direction is Direction.UNDO:
            return Raw(b"null") if work.step in self.bank.gave_back else Did.NOT_DONE
        charge = self.bank.find(work.step)
        return charge.id if charge else Did.NOT_DONE

    def body(self, work: Work, run: Run) -> Did | Raw:
        if work.direction is Direction.DO:
            return self._charge(work.step)
        undo = self.saga.plan.by_name[work.step].undo
        assert undo is not None
        how = self.tape.choose(["well", "before", "well", "after"])
        if how == "before" or (how == "after" and not undo.external):
            return self.tape.choose(BEFORE)
        self.bank.give_back(work.step, self._id_of(work.step, run))
        return self.tape.choose(AFTER) if how == "after" else Did.OK

    def choose(self, work: Work) -> Did:
        return look_at_condition(self.tape)

    def until(self, work: Work, now: float) -> float | Did | None:
        return begin_to_wait(self.saga.plan, work, now, self.tape)

    def _charge(self, step: str) -> Did | Raw:
        external = self.saga.plan.by_name[step].external
        how = self.tape.choose(["well", "before", "after", "late", "unstorable"])
        known = self.bank.honours_keys and self.bank.charges[step]
        if how == "before" or (how != "well" and not external):
            did = self.tape.choose(BEFORE)
            return Did.FAIL if did is Did.REFUSE and known else did  # the bank would repeat its answer
        if how == "late" and self.bank.lands_late:
            self.bank.under_way.append(step)
            return self.tape.choose(AFTER)
        charge = self.bank.charge(step)
        assert charge is not None, "no attempt begins once compensation has"
        if how == "unstorable":
            return Did.UNSTORABLE
        return charge.id if how == "well" else self.tape.choose(AFTER)

    def _id_of(self, step: str, run: Run) -> Raw | None:
        if run.argument is Argument.UNKNOWN:
            return None
        if isinstance(run.argument, Raw):
            return run.argument
        seq = self.saga.state.steps[step].result
        assert seq is not None
        facts: Facts = self.saga.log[seq].data
        assert isinstance(facts.result, Raw)
        return facts.result

    def _let_requests_land(self, work: Work) -> None:
        """Any time; where only settling helps against them, at the latest before it."""
        if work.direction is Direction.SETTLE and not self.bank.plants_tombstones:
            self.bank.land_all()
        elif self.bank.under_way and self.tape.choose(["later", "now"]) == "now":
            charge = self.bank.land(self.bank.under_way[0])
            if charge and self.tape.choose(["gone", "alive"]) == "alive":  # its sender lives and tells the dedupe table
                self.late_answers[charge.step] = charge.id


def lived(plan: Plan, numbers: bytes, bank: Bank, *, undecided: bool = True) -> Driven:
    """A saga from its start, through all the trouble on the tape, to its end; then late requests land."""
    tape = Tape(numbers)
    saga = begun(plan, tape)
    bank.now = lambda: saga.now
    world = AtTheBank(saga, bank, tape, undecided=undecided)
    run(saga, world, tape)
    finish(saga, world)
    bank.land_all()
    return saga


def check_books(saga: Driven, bank: Bank) -> None:
    """Exactly once where completed; net zero where turned back, and no pivot was passed then."""
    for planned in saga.plan.steps:
        charges = bank.charges[planned.name]
        kept = [charge for charge in charges if not charge.given_back]
        if planned.wait is not None or step_of(saga.state, planned.name).status is StepStatus.SKIPPED:
            assert not charges, f"{planned.name} was skipped, and charged: {saga.kinds}"
            continue
        if bank.honours_keys:
            assert len(charges) <= 1, f"{planned.name} charged twice: {saga.kinds}"
        if saga.status is Status.COMPLETED:
            assert len(kept) == len(charges) == 1, f"{planned.name} not exactly once: {charges} {saga.kinds}"
        elif saga.status in UNDONE and (planned.undo is not None or never_undone(saga.plan, planned)):
            assert not kept, f"{planned.name} not given back: {charges} {saga.kinds}"


def never_undone(plan: Plan, planned: StepPlan) -> bool:
    """The pivot and what follows it: where the saga turned back, none of it may have happened."""
    return plan.pivot is not None and plan.position(planned.name) >= plan.pivot


@BANK
@given(plans(key_ttl=None), TAPES, st.booleans())
def test_a_bank_that_honours_keys(plan: Plan, numbers: bytes, undecided: bool) -> None:
    """Exactly once, and net zero if late requests land before settling."""
    bank = Bank(honours_keys=True, lands_late=True)
    check_books(lived(plan, numbers, bank, undecided=undecided), bank)


@BANK
@given(plans(key_ttl=None, undo=undo(accepts_unknown=True), external=True), TAPES)
def test_a_bank_that_plants_tombstones(plan: Plan, numbers: bytes) -> None:
    """Exactly once, and net zero however late a request lands: also after the saga has ended."""
    bank = Bank(honours_keys=True, plants_tombstones=True, lands_late=True)
    check_books(lived(plan, numbers, bank), bank)


@BANK
@given(plans(has_resolve=True), TAPES)
def test_a_bank_that_ignores_keys_but_answers_resolve(plan: Plan, numbers: bytes) -> None:
    """Exactly once and net zero, as long as no request lands late and `resolve` can tell."""
    bank = Bank(honours_keys=False)
    check_books(lived(plan, numbers, bank, undecided=False), bank)


@BANK
@given(plans(has_resolve=False, retry=Retry(max_attempts=1), key_ttl=None), TAPES)
def test_a_bank_that_can_do_neither(plan: Plan, numbers: bytes) -> None:
    """One attempt, and another only when a person asks for it; never none where completed."""
    bank = Bank(honours_keys=False)
    saga = lived(plan, numbers, bank, undecided=False)
    asked = [entry.step for entry in saga.log if entry.kind is Kind.RETRIED and not entry.data.ignored]
    for planned in plan.steps:
        charges = bank.charges[planned.name]
        assert len(charges) <= 1 + asked.count(planned.name)
        skipped = planned.wait or step_of(saga.state, planned.name).status is StepStatus.SKIPPED
        assert charges or skipped or saga.status is not Status.COMPLETED


@BANK
@given(plans(key_ttl=KEY_TTL), TAPES)
def test_a_bank_that_forgets_keys(plan: Plan, numbers: bytes) -> None:
    """No second charge after the bank has forgotten the key: no retry begins then."""
    bank = ForgetfulBank(honours_keys=True)
    check_books(lived(plan, numbers, bank), bank)


def test_the_bank_itself() -> None:
    """The books are able to show what goes wrong."""
    careless, careful = Bank(honours_keys=False), Bank(honours_keys=True, plants_tombstones=True)
    for bank in (careless, careful):
        bank.charge("charge")
        bank.charge("charge")
    assert (len(careless.charges["charge"]), len(careful.charges["charge"])) == (2, 1)
    careful.give_back("refund", None)
    assert careful.charge("refund") is None
    saga = Driven(plan(step("charge")))
    saga.deliver(Did.OK)
    check_books(saga, careful)
    with pytest.raises(AssertionError, match="not exactly once"):
        check_books(saga, careless)
