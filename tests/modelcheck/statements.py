"""The database statements as small pure functions on the world, with exactly the guards of the SQL files.

Each is atomic, as it is in Postgres. `Rules` says which guards are in force: all of them in the product, all
but one where the check has to show that it would notice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sagas.machine import TERMINAL
from tests.modelcheck import provider
from tests.modelcheck.brain import Brain, Outcome, named
from tests.modelcheck.family import called, standing, told_parent
from tests.modelcheck.provider import UNKNOWN
from tests.modelcheck.telling import MISSED, kept, told, waits_for
from tests.modelcheck.value import Value
from tests.modelcheck.world import (
    ANSWER,
    BACK,
    BEGUN,
    Delivery,
    Mark,
    Memory,
    Row,
    Saga,
    World,
    held,
    row_of,
    with_row,
    with_saga,
    with_worker,
)

FOLLOW: Final = ("cancel", "pause", "resume")  # requests that go over to the next run
LOST: Final = "a request was dropped, although another run had gone on from its saga"


class Rules(Value, frozen=True):
    """The guards of the claim protocol; a mutation takes one away."""

    begin_consumes_token: bool = True
    begin_wants_publication: bool = True
    claim_renews_token: bool = True
    begun_travels_alone: bool = True
    record_checks_seq: bool = True
    record_checks_token: bool = True
    record_bumps_token: bool = True
    lost_ack_looks_in_log: bool = True
    log_entry_is_compared: bool = True
    goes_on_with_its_own_only: bool = True
    cancel_bumps_seq: bool = True
    wake_spares_held_rows: bool = True
    branches_keep_their_rows: bool = True
    hand_back_takes_own_off: bool = True
    hand_back_keeps_age: bool = True
    key_ttl_is_minded: bool = True
    settling_has_its_own_key: bool = True
    guard_looks_for_closed: bool = True
    guard_writes_started: bool = True
    guard_writes_done: bool = True
    refused_knows_of_effects: bool = True
    guard_tells_late_answers: bool = True
    unstorable_is_told: bool = True
    signal_bumps_seq: bool = True
    signals_in_order: bool = True
    carried_come_first: bool = True
    signal_before_the_timeout: bool = True
    request_of_an_ended_saga_goes_back: bool = True
    requests_follow_runs: bool = True
    begin_minds_pause: bool = True
    hold_up_takes_own_off: bool = True
    continues_in_the_record: bool = True
    end_of_a_child_is_told: bool = True
    begun_look_is_no_telling: bool = True
    cancel_reaches_children: bool = True
    answer_with_a_next_is_not_kept: bool = True


ALL_RULES: Final = Rules()


class Store:
    """The statements of one check."""

    def __init__(
        self, brains: tuple[Brain, ...], rules: Rules, *, timed: bool = False, effects: Collection[str] = ()
    ) -> None:
        self.brains, self.rules, self.effects = brains, rules, effects
        self.family = any(step.children for brain in brains for step in brain.plan.steps)
        self.ages = any(step.key_ttl is not None for brain in brains for step in brain.plan.steps)
        self.timed, self.latest = timed or self.ages, 0.0
        self.kept = True  # whether what children return can be

    # --- claim.sql, release.sql -------------------------------------------------------------------------------

    def claim(self, world: World, rows: tuple[Row, ...]) -> World:
        """A relay takes due rows. A begun row gets a new token: whoever held it is fenced off."""
        for row in rows:
            bump = 1 if row.deliveries > 0 and self.rules.claim_renews_token else 0
            world = with_row(world, row.but(holder="relay", token=row.token + bump, due=False))
        return world

    def release(self, world: World, row: Row) -> World:
        """The broker did not take it: as if it had not been claimed; a begun row keeps its new token."""
        now = row_of(world, row.id)
        assert now is not None and now.holder == "relay"
        return with_row(world, now.but(holder=""))

    # --- begin.sql --------------------------------------------------------------------------------------------

    def begin(self, world: World, who: int, wanted: tuple[tuple[int, int], ...], *, published: bool) -> World:
        """A worker takes rows over by id and token; what does not match is simply not begun."""
        begun: list[Delivery] = []
        for id, token in wanted:
            row = row_of(world, id)
            if row is None or row.token != token:
                continue
            if published and self.rules.begin_wants_publication and row.holder != "relay":
                continue
            bump = 1 if self.rules.begin_consumes_token else 0
            first = world.clock if self.ages and row.first is None else row.first
            if row.kind == "signal":  # for the latest run; none: it is kept until there is one
                row = row.but(saga=len(world.sagas) - 1)
            if row.kind in FOLLOW and self.rules.requests_follow_runs:
                row = row.but(saga=gone_on(world, row.saga))
            row = row.but(holder="worker", token=token + bump, deliveries=row.deliveries + 1, due=False, first=first)
            row = row.but(asleep=False)
            world = with_row(world, row)
            made = self._begun(world, row)
            if made.call == ("timed_out",) and made.phase != BACK and waits_for(world, row.step):
                world = world.but(broken=MISSED)
            begun.append(made)
        return with_worker(world, who, tuple(begun)) if begun else world

    def _begun(self, world: World, row: Row) -> Delivery:
        """What begin.sql loads with a row, and what is not to be worked on for now (`sagas.reception`)."""
        if row.saga < 0:
            return self._delivery(row, -1, None, world.clock).but(phase=BACK)
        saga, brain = world.sagas[row.saga], self.brains[row.saga]
        memory = None
        if row.kind == "step":
            memory = saga.remembered(named(row.step, brain.generation(saga.state, row.step)))
            memory = memory.but(undone=saga.remembered(row.step).undone)
        made = self._delivery(row, saga.state, memory, world.clock)
        signals = [each for each in world.rows if each.kind == "signal"]
        if row.kind == "signal" and self.rules.signals_in_order:
            first = any(self._order(each) < self._order(row) for each in signals)
        else:
            first = bool(row.kind == "step" and signals and brain.waiting(saga.state, row.step))
            first = first and self.rules.signal_before_the_timeout
        paused = row.kind == "step" and brain.states[saga.state].paused and self.rules.begin_minds_pause
        if row.kind == "children":
            made = made.but(
                call=(
                    "children",
                    row.step,
                    *standing(self.brains, world),
                    self.noticed(world),
                    *brain.begotten(saga.state, row.step),
                    "" if self.kept else "what its child returned is too large",
                )
            )
        return made.but(phase=BACK) if first or paused else made

    def noticed(self, world: World) -> float:
        """When the end of a child is noticed: a backoff of a second from then on passes before time stops."""
        return min(world.clock, max(self.latest - 1.0, 0.0))

    def _order(self, row: Row) -> tuple[int, int]:
        """The order of signals: those that an earlier run had heard come first."""
        return (-row.carried if self.rules.carried_come_first else 0, row.id)

    def _delivery(self, row: Row, state: int, memory: Memory | None, now: float) -> Delivery:
        made = Delivery(
            row=row.id, token=row.token, saga=row.saga, kind=row.kind, step=row.step, direction=row.direction,
            deliveries=row.deliveries, state=state, live=True, phase=BEGUN, call=(),
        )  # fmt: skip
        if row.kind != "step":
            said = (row.number,) if row.kind == "signal" else row.said
            return made.but(phase=ANSWER, call=(row.kind, row.step, *said), number=row.number)
        brain = self.brains[row.saga]
        if self.timed:
            made = made.but(now=now)
        if self.ages:
            known = (row.first, brain.first_begun(state, row.step, row.direction))
            made = made.but(first=min((each for each in known if each is not None), default=None))
        if brain.runs_locally(row.step, row.direction):
            return made  # decided about inside its transaction
        if row.direction == "undo" and memory is not None:
            made = made.but(late=memory.response)
        call = brain.assess(state, made, memory)
        return made.but(phase=BEGUN if call[0] in ("run", "ask", "wait", "choose", "beget") else ANSWER, call=call)

    # --- hand_back.sql, heartbeat.sql, sagas_request_v1 ---------------------------------------------------------

    def hand_back(self, world: World, d: Delivery) -> World:
        """A row whose body never started: only this delivery is taken off the count."""
        row = held(world, d)
        if row is None:
            return world
        left = row.deliveries - 1 if self.rules.hand_back_takes_own_off else 0
        first = row.first if row.deliveries > 1 and self.rules.hand_back_keeps_age else None
        return with_row(world, row.but(holder="", token=row.token + 1, deliveries=max(left, 0), first=first))

    def put_off(self, world: World, d: Delivery) -> World:
        """hold_up.sql, or hand_back.sql with a delay."""
        row = held(world, d)
        if row is None or self.rules.hold_up_takes_own_off or d.kind != "step":
            return self.hand_back(world, d)
        return with_row(world, row.but(holder="", token=row.token + 1, deliveries=0, first=None))

    def heartbeat(self, world: World, who: int, d: Delivery) -> World:
        """Renew a lease; it may have ended, as long as nobody claimed the row."""
        row = held(world, d)
        if row is None or row.holder != "worker":
            return world
        world = with_row(world, row.but(due=False))
        return with_worker(world, who, (d.but(live=True), *world.workers[who][1:]))

    def request(self, world: World, saga: int, kind: str, step: str = "", said: tuple[int, ...] = ()) -> World:
        """A caller or an operator asks for something: a row of its own, and nothing else."""
        return self._insert(world, saga, kind, step, "", said=said)

    def send(self, world: World, step: str) -> World:
        """sagas_send_v1: a row that finds the latest run when it is begun."""
        number = world.sent + 1
        return self._insert(world.but(sent=number), len(world.sagas) - 1, "signal", step, "", number=number)

    def start(self, world: World, carry: tuple[tuple[str, int], ...] = ()) -> World:
        """sagas_start_v1: another run, its row, and the signals that the run before it had heard and did not need."""
        which = len(world.sagas)
        brain = self.brains[which]
        world = world.but(sagas=(*world.sagas, Saga(brain.start)))
        for work in brain.works(brain.start):
            world = self._insert(world, which, "step", *work)
        for step, number in carry:
            world = self._insert(world, which, "signal", step, "", number=number, carried=which)
        return world

    def rebuild(self, world: World, saga: int) -> World:
        """The rows of a saga were lost, and are made again from its log; dedupe lines and requests are still there."""
        outcome = self.brains[saga].rebuilt(world.sagas[saga].state)
        world = world.but(rows=tuple(row for row in world.rows if row.saga != saga or row.kind != "step"))
        world = with_saga(world, saga, world.sagas[saga].but(state=outcome.state))
        assert outcome.work is not None
        for work in outcome.beside:
            world = self._insert(world, saga, "step", *work)
        return self._insert(world, saga, "step", *outcome.work, first=outcome.first)

    def _insert(
        self,
        world: World,
        saga: int,
        kind: str,
        step: str,
        direction: str,
        first: float | None = None,
        number: int = 0,
        carried: int = 0,
        said: tuple[int, ...] = (),
    ) -> World:
        row = Row(
            id=world.next_id, token=0, saga=saga, kind=kind, step=step, direction=direction, holder="", deliveries=0,
            due=False, first=first, number=number, carried=carried, said=said,
        )  # fmt: skip
        return world.but(rows=(*world.rows, row), next_id=world.next_id + 1)

    # --- load.sql, remember.sql, recorded.sql -------------------------------------------------------------------

    def load(self, world: World, d: Delivery) -> int | None:
        """The saga of a row that is still held under this token, as it stands now."""
        return world.sagas[d.saga].state if held(world, d) else None

    def remember(self, world: World, d: Delivery) -> World:
        """An answer that came too late to be recorded is kept in the dedupe table; a saga that turned back is told."""
        says_next = len(d.call) > 3 and self.rules.answer_with_a_next_is_not_kept  # which cannot be kept
        known = d.call[0] == "succeeded" and not says_next
        told = d.call[0] == "succeeded" or (d.call[0] == "unstorable" and self.rules.unstorable_is_told)
        if not told or d.direction == "settle" or not d.step:
            return world
        saga = world.sagas[d.saga]
        name = named(d.step, self.brains[d.saga].generation(d.state, d.step)) if d.direction == "do" else d.step
        memory = saga.remembered(name)
        if d.direction == "undo":
            memory = memory.but(undone=known)
        elif known and memory.response is None:
            memory = memory.but(response=int(d.call[2]))
        world = with_saga(world, d.saga, saga.with_memory(name, memory))
        if memory.closed and d.direction == "do":
            world = self.tell(world, d)
        return world

    def tell(self, world: World, d: Delivery) -> World:
        """A saga that has turned back is told of an answer."""
        return self._insert(world, d.saga, "late_answer", d.step, "")

    def recorded(self, world: World, d: Delivery) -> Mark | None:
        """After a lost acknowledgement: the entry by which one sees that the decision was written, if it was.

        Tokens of two rows may be the same number, so an entry of another row counts as one with the same token.
        """
        outcome = self.decide(d)
        for mark in world.sagas[d.saga].log:
            if mark.seq == outcome.seq and (mark.row != d.row or mark.token == d.token):
                same = bool(outcome.entries) and outcome.entries[-1] == (mark.seq, mark.kind, mark.step)
                return mark if same or not self.rules.log_entry_is_compared else None
        return None

    # --- record.sql -------------------------------------------------------------------------------------------

    def decide(self, d: Delivery) -> Outcome:
        brain = self.brains[d.saga]
        outcome = brain.decide(d.state, d, d.call)
        if (d.kind == "cancel" and not self.rules.cancel_bumps_seq) or (
            outcome.heard is not None and not self.rules.signal_bumps_seq
        ):
            return brain.unlogged(d.state, outcome)
        return outcome

    def record(self, world: World, d: Delivery) -> World | None:
        """Write a decision where the row's token and the saga's seq are still those it was made from; else nothing."""
        outcome, saga = self.decide(d), world.sagas[d.saga]
        row = held(world, d) if self.rules.record_checks_token else row_of(world, d.row)
        now = self.brains[d.saga].states[saga.state].seq
        if row is None or (self.rules.record_checks_seq and now != outcome.before):
            return None
        broken = ""
        if outcome.entries and now != outcome.before:
            broken = f"two log entries with seq {outcome.before + 1}"
        elif not outcome.folds:
            broken = "the saga row is not what its log folds to"
        elif d.kind == "step" and outcome.counted > row.deliveries:
            broken = (
                f"{outcome.counted} begun bodies are counted, and {row.deliveries} were begun since the last answer"
            )
        marks = tuple(Mark(seq, row.id, row.token, kind, step) for seq, kind, step in outcome.entries)
        saga = saga.but(state=outcome.state, log=saga.log + marks)
        if outcome.result is not None:
            saga = saga.with_result(*outcome.result)
        for step in outcome.closes:
            saga = saga.with_memory(step, saga.remembered(step).but(closed=True))
        if self._local(d) and d.call[0] == "succeeded":
            saga = saga.with_effect(d.step, locally(saga.effect(d.step), d.direction))
        broken = broken or told(self.brains[d.saga], world, d, outcome)
        saga = kept(self.brains[d.saga], world, saga, d, outcome, self.effects)
        world = self._rows(with_saga(world, d.saga, saga), d, row, outcome)
        if d.kind == "signal" and outcome.heard is None and not outcome.noted:
            world = world.but(dropped=(*world.dropped, d.number))
        if d.kind in FOLLOW and not outcome.entries and gone_on(world, d.saga) != d.saga:
            broken = broken or LOST
        world = called(self, world, outcome)
        if d.saga and self.family and outcome.entries and self.brains[d.saga].status(outcome.state) in TERMINAL:
            world = told_parent(self, world)
        if outcome.next and self.rules.continues_in_the_record:
            world = self.start(world, self._carried(self.brains[d.saga], saga))
        return world.but(broken=world.broken or broken)

    def _carried(self, brain: Brain, saga: Saga) -> tuple[tuple[str, int], ...]:
        """Signals that nobody waited for, with their waits."""
        numbers = dict(saga.heard)
        steps = brain.states[saga.state].steps.items()
        return tuple(
            (name, numbers[seq]) for seq, name in sorted((seq, name) for name, step in steps for seq in step.signals)
        )

    def _rows(self, world: World, d: Delivery, row: Row, outcome: Outcome) -> World:
        others = [each for each in world.rows if (each.saga, each.kind) == (d.saga, "step") and each.id != row.id]
        spared = outcome.spare and outcome.work in {(each.step, each.direction) for each in others}
        if d.kind == "step" and outcome.work is not None and not spared:
            on = self._goes_on(d, outcome) and not requested(world, d.saga)
            world = with_row(world, row.but(
                step=outcome.work[0], direction=outcome.work[1], due=False,
                token=row.token + (1 if self.rules.record_bumps_token else 0),
                holder="worker" if on else "", deliveries=1 if on else 0, first=self._first(world, outcome, on),
                asleep=outcome.asleep,
            ))  # fmt: skip
        else:
            world = world.but(rows=tuple(each for each in world.rows if each.id != row.id))
            if outcome.work is not None and not spared:
                world = self._insert(world, d.saga, "step", *outcome.work, first=outcome.first)
        for work in outcome.beside:
            world = self._insert(world, d.saga, "step", *work)
        over = self.brains[d.saga].status(outcome.state) in TERMINAL
        gone = {
            each.id for each in others if not each.holder and (over or (each.step, each.direction) in outcome.surplus)
        }
        world = world.but(rows=tuple(each for each in world.rows if each.id not in gone))
        if not self.rules.branches_keep_their_rows and any(kind == "turning" for _, kind, _ in outcome.entries):
            gone = {each.id for each in others}
            world = world.but(rows=tuple(each for each in world.rows if each.id not in gone))
        if outcome.wake or outcome.surplus:
            world = world.but(rows=tuple(
                each.but(asleep=False) if each.asleep and each.saga == d.saga and not each.holder else each
                for each in world.rows
            ))  # fmt: skip
        if (outcome.wake or outcome.surplus) and not self.rules.wake_spares_held_rows:
            world = world.but(rows=tuple(
                each.but(due=True) if each.saga == d.saga and each.holder == "worker" else each
                for each in world.rows
            ))  # fmt: skip
        return world

    def _first(self, world: World, outcome: Outcome, on: bool) -> float | None:
        return world.clock if self.ages and on and outcome.first is None else outcome.first

    def _local(self, d: Delivery) -> bool:
        return d.kind == "step" and self.brains[d.saga].runs_locally(d.step, d.direction)

    def _goes_on(self, d: Delivery, outcome: Outcome) -> bool:
        """Whether a worker may continue with what comes next."""
        if d.kind != "step" or outcome.work is None or not outcome.at_once or d.call[0] == "misplaced":
            return False
        brain = self.brains[d.saga]
        if outcome.work[1] == "settle" or brain.has_one_attempt(*outcome.work):
            return False
        return brain.queue(d.step, d.direction) == brain.queue(*outcome.work)

    def continued(self, world: World, d: Delivery, *, looked: bool = False) -> Delivery | None:
        """What the worker goes on with after its decision was written, if the row is kept for it.

        After a look into the log (`looked`) somebody else may have taken the row over meanwhile.
        """
        outcome = self.decide(d)
        row = row_of(world, d.row)
        kept = row is not None and row.token == d.token + 1 and row.holder == "worker"
        believes = looked and not self.rules.goes_on_with_its_own_only
        if not self._goes_on(d, outcome) or not (kept or believes):
            return None
        assert outcome.work is not None
        begun = Row(
            d.row, d.token + 1, d.saga, "step", outcome.work[0], outcome.work[1], "worker", 1, due=False,
            first=self._first(world, outcome, True),
        )  # fmt: skip
        return self._delivery(begun, outcome.state, None, world.clock).but(live=d.live)  # nothing is read for it


def gone_on(world: World, saga: int) -> int:
    """The run that has gone on from this one by now."""
    while world.sagas[saga].continued and saga + 1 < len(world.sagas):
        saga += 1
    return saga


def requested(world: World, saga: int) -> bool:
    """Whether a request of this saga waits to be applied, or one of the run before that is on its way to this one."""
    return any(
        row.kind not in ("step", "signal", "children")
        and (row.saga == saga or (row.kind in FOLLOW and row.saga + 1 == saga and world.sagas[row.saga].continued))
        for row in world.rows
    )


def locally(effect: provider.Effect, direction: str) -> provider.Effect:
    """What the writes of a local step come to, committed with its log entry."""
    if direction == "do":
        return effect.but(stands=(*effect.stands, True))
    return provider.undo(provider.Provider(), effect, UNKNOWN, len(effect.undone)).but(tombstone=False)
