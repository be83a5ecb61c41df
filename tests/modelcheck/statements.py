"""The database statements as small pure functions on the world, with exactly the guards of the SQL files.

Each is atomic, as it is in Postgres. `Rules` says which guards are in force: all of them in the product, all
but one where the check has to show that it would notice.
"""

from __future__ import annotations

from typing import Final

from tests.modelcheck import provider
from tests.modelcheck.brain import Brain, Outcome
from tests.modelcheck.provider import UNKNOWN
from tests.modelcheck.value import Value
from tests.modelcheck.world import (
    ANSWER,
    BEGUN,
    Delivery,
    Mark,
    Memory,
    Row,
    World,
    held,
    row_of,
    with_row,
    with_saga,
    with_worker,
)


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
    hand_back_takes_own_off: bool = True
    settling_has_its_own_key: bool = True


ALL_RULES: Final = Rules()


class Store:
    """The statements of one check."""

    def __init__(self, brains: tuple[Brain, ...], rules: Rules) -> None:
        self.brains, self.rules = brains, rules

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
            row = row.but(holder="worker", token=token + bump, deliveries=row.deliveries + 1, due=False)
            world = with_row(world, row)
            memory = world.sagas[row.saga].remembered(row.step)
            begun.append(self._delivery(row, world.sagas[row.saga].state, memory))
        return with_worker(world, who, tuple(begun)) if begun else world

    def _delivery(self, row: Row, state: int, memory: Memory | None) -> Delivery:
        made = Delivery(
            row=row.id, token=row.token, saga=row.saga, kind=row.kind, step=row.step, direction=row.direction,
            deliveries=row.deliveries, state=state, live=True, phase=BEGUN, call=(),
        )  # fmt: skip
        if row.kind != "step":
            return made.but(phase=ANSWER, call=(row.kind, row.step))
        brain = self.brains[row.saga]
        if brain.runs_locally(row.step, row.direction):
            return made  # decided about inside its transaction
        if row.direction == "undo" and memory is not None:
            made = made.but(late=memory.response)
        call = brain.assess(state, made, memory)
        return made.but(phase=BEGUN if call[0] in ("run", "ask") else ANSWER, call=call)

    # --- hand_back.sql, heartbeat.sql, sagas_request_v1 ---------------------------------------------------------

    def hand_back(self, world: World, d: Delivery) -> World:
        """A row whose body never started: only this delivery is taken off the count."""
        row = held(world, d)
        if row is None:
            return world
        left = row.deliveries - 1 if self.rules.hand_back_takes_own_off else 0
        return with_row(world, row.but(holder="", token=row.token + 1, deliveries=max(left, 0)))

    def heartbeat(self, world: World, who: int, d: Delivery) -> World:
        """Renew a lease; it may have ended, as long as nobody claimed the row."""
        row = held(world, d)
        if row is None or row.holder != "worker":
            return world
        world = with_row(world, row.but(due=False))
        return with_worker(world, who, (d.but(live=True), *world.workers[who][1:]))

    def request(self, world: World, saga: int, kind: str) -> World:
        """A caller or an operator asks for something: a row of its own, and nothing else."""
        return self._insert(world, saga, kind, "", "")

    def _insert(self, world: World, saga: int, kind: str, step: str, direction: str) -> World:
        row = Row(
            id=world.next_id, token=0, saga=saga, kind=kind, step=step, direction=direction, holder="", deliveries=0,
            due=False,
        )  # fmt: skip
        return world.but(rows=(*world.rows, row), next_id=world.next_id + 1)

    # --- load.sql, remember.sql, recorded.sql -------------------------------------------------------------------

    def load(self, world: World, d: Delivery) -> int | None:
        """The saga of a row that is still held under this token, as it stands now."""
        return world.sagas[d.saga].state if held(world, d) else None

    def remember(self, world: World, d: Delivery) -> World:
        """An answer that came too late to be recorded is kept in the dedupe table; a saga that turned back is told."""
        if d.call[0] != "succeeded" or d.direction == "settle":
            return world
        saga = world.sagas[d.saga]
        memory = saga.remembered(d.step)
        if d.direction == "undo":
            memory = memory.but(undone=True)
        elif memory.response is None:
            memory = memory.but(response=int(d.call[2]))
        world = with_saga(world, d.saga, saga.with_memory(d.step, memory))
        if memory.closed and d.direction == "do":
            world = self._insert(world, d.saga, "late_answer", d.step, "")
        return world

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
        if d.kind == "cancel" and not self.rules.cancel_bumps_seq:
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
        world = self._rows(with_saga(world, d.saga, saga), d, row, outcome)
        return world.but(broken=world.broken or broken)

    def _rows(self, world: World, d: Delivery, row: Row, outcome: Outcome) -> World:
        if d.kind == "step" and outcome.work is not None:
            on = self._goes_on(d, outcome) and not requested(world, d.saga)
            world = with_row(world, row.but(
                step=outcome.work[0], direction=outcome.work[1], due=False,
                token=row.token + (1 if self.rules.record_bumps_token else 0),
                holder="worker" if on else "", deliveries=1 if on else 0,
            ))  # fmt: skip
        else:
            world = world.but(rows=tuple(each for each in world.rows if each.id != row.id))
            if outcome.work is not None:
                world = self._insert(world, d.saga, "step", *outcome.work)
        if outcome.wake and not self.rules.wake_spares_held_rows:
            world = world.but(rows=tuple(
                each.but(due=True) if each.saga == d.saga and each.holder == "worker" else each
                for each in world.rows
            ))  # fmt: skip
        return world

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
        begun = Row(d.row, d.token + 1, d.saga, "step", outcome.work[0], outcome.work[1], "worker", 1, due=False)
        return self._delivery(begun, outcome.state, None).but(live=d.live)  # nothing is read for it


def requested(world: World, saga: int) -> bool:
    """Whether a request of this saga waits to be applied."""
    return any(row.saga == saga and row.kind != "step" for row in world.rows)


def locally(effect: provider.Effect, direction: str) -> provider.Effect:
    """What the writes of a local step come to, committed with its log entry."""
    if direction == "do":
        return effect.but(stands=(*effect.stands, True))
    return provider.undo(provider.Provider(), effect, UNKNOWN, len(effect.undone)).but(tombstone=False)
