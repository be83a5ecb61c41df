"""Children of a saga: what is sent to start them, and how they stand when their parent looks."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from msgspec import UNSET, Raw

from sagas import clock, codec, machine, tracing
from sagas.body import Body, step_named
from sagas.children import Child
from sagas.duty import SagaClass
from sagas.each import Each
from sagas.errors import CodecError, InvalidInput
from sagas.events import Begot, Children, Failed, Start
from sagas.failure import clean
from sagas.head import Head
from sagas.payloads import PLAIN, Payloads
from sagas.registry import registry
from sagas.settings import Settings
from sagas.states import State, Status
from sagas.step import Step
from sagas.store import large
from sagas.store.rows import Connection, Delivery
from sagas.store.starting import branch
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.worker")

PACKAGE = "sagas.store"
BATCH = 500  # children that are started with one commit, at most
NULL = Raw(b"null")
START_ANEW = sorted(machine.TERMINAL - {Status.COMPLETED})  # a child that ended so is started once more by a retry


class Given(msgspec.Struct, frozen=True):
    """One child that is to be started; its id follows from its parent's, and from its run: `sagas_children_v1`."""

    key: str
    input_hash: str
    saga: Head


def to_start(
    definition: SagaClass, parent: Delivery, step: str, inputs: Iterable[tuple[str, Any]], *, limit: int,
    payloads: Payloads = PLAIN,
) -> Raw:  # fmt: skip
    """What starts children.

    Args:
        definition: of the children.
        parent: a delivery of the saga that starts them.
        step: of the parent.
        inputs: what each is given, with what its key ends in.
        limit: bytes that an input may take.
        payloads: how it is stored.

    Raises:
        CodecError: an input cannot be stored.
    """
    first = machine.decide(definition.plan, None, Start(NULL))
    generation = machine.step_of(parent.state, step).generation
    headers = dict(parent.reader.head(parent.history).headers) | tracing.headers()  # of the attempt that starts them
    children = []
    for ending, given in inputs:
        raw = codec.encode(given, declared=definition.input_type, limit=limit, of=f"saga {definition.saga_name}")
        stored = payloads.seal(raw, definition.input_type)
        hashed = payloads.hash_of(raw, stored)
        head = Head(
            name=definition.saga_name, version=definition.saga_version,
            key=f"{parent.saga_id}:{branch(step, generation)}{ending}", input=Raw(stored), headers=headers,
            definition=definition.fingerprint(), hash=hashed, parent=parent.saga_id,
            parent_step=branch(step, generation),
        )  # fmt: skip
        children.append(Given(head.key, hashed or codec.fingerprint(bytes(head.input)), head))
    return Raw(msgspec.json.encode({
        "name": definition.saga_name, "version": definition.saga_version, "definition": definition.fingerprint(),
        "status": first.state.status, "seq": first.state.seq, "headers": headers, "rows": first.rows,
        "deadline": definition.deadline and definition.deadline.total_seconds(), "again": START_ANEW,
        "anew": machine.step_of(parent.state, step).do.attempts > 0,
        "children": children,
    }))  # fmt: skip


def beget(body: Body) -> Begot | Failed:
    """What the children of the step that is at work are given, as its author says."""
    event, step = body.attempt_event, body.declared()
    stored = _stored(body, step.name)  # outside: where the database is away, the step has not failed
    try:
        run = body.definition._for_run(body)
        if isinstance(step, Each):
            return _beget_each(body, step, run, stored)
        assert isinstance(step, Child)
        request = to_start(
            step.of, body.delivery, step.name, [("", step.given(run))], limit=body.limit,
            payloads=body.delivery.reader.payloads,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return body.failed(problem, began=False, give_up=isinstance(problem, CodecError))  # it would be refused again
    return Begot(event, request, count=1, total=1)


def _stored(body: Body, step: str) -> bytes | None:
    """The log entry that holds the items of a step, where an earlier round of it has asked for them."""
    seq, fetch = machine.step_of(body.delivery.state, step).items, body.delivery.reader.fetch
    if seq is None:
        return None
    assert fetch is not None
    return fetch(seq)


def _beget_each(body: Body, step: Each[Any, Any, Any], run: Any, stored: bytes | None) -> Begot:
    """The items are stored, so that those that are started later, or anew, are the same; the first are started."""
    payloads, new = body.delivery.reader.payloads, stored is None
    found = list(step.items(run)) if stored is None else _items(step, body.delivery, stored, payloads)
    if new and len(found) > step.max_items:
        raise InvalidInput(
            f"step {step.name!r}: {len(found):,} items, and max_items={step.max_items:,}; raise it, or let several "
            f"sagas do parts of the work"
        )
    items = payloads.store(found, step.items_type, limit=body.limit, what=_items_of(step)) if new else None
    assert step.options.children is not None
    count = min(BATCH, step.options.children.at_once, len(found))
    request = _items_to_start(step, body.delivery, found, 0, count, limit=body.limit, payloads=payloads)
    return Begot(
        body.attempt_event, request, count=count, total=len(found), items=UNSET if items is None else Raw(items)
    )  # fmt: skip


def _items_of(step: Each[Any, Any, Any]) -> str:
    return f"items of step {step.name!r}"


def _items(step: Each[Any, Any, Any], parent: Delivery, stored: bytes, payloads: Payloads) -> Sequence[Any]:
    """The items that a log entry holds."""
    facts = parent.reader.read(stored)
    assert isinstance(facts.result, Raw)
    items: Sequence[Any] = payloads.read(bytes(facts.result), step.items_type, what=_items_of(step))
    return items


def _items_to_start(
    step: Each[Any, Any, Any], parent: Delivery, items: Sequence[Any], begin: int, count: int, *, limit: int,
    payloads: Payloads,
) -> Raw:  # fmt: skip
    assert step.of is not None
    numbered = ((f":{_number(number)}", items[number]) for number in range(begin, begin + count))
    return to_start(step.of, parent, step.name, numbered, limit=limit, payloads=payloads)


def _number(item: int) -> str:
    """What the key of its saga ends in: as many digits for each, so that they sort."""
    return f"{item:06}"


def look(connection: Connection, deliveries: Sequence[Delivery], settings: Settings) -> list[Delivery]:
    """See how the children of sagas stand that are to be told, one statement for all of them.

    Returns:
        Those that this process cannot make anything of: a result that it cannot open, a row that was damaged.
    """
    if not deliveries:
        return []
    told, wrong = [], []
    wanted: dict[tuple[UUID, str], str | None] = {}
    for each in deliveries:
        try:
            declared = step_named(registry.get(each.name, each.version), _step_of(each))
        except (KeyError, msgspec.MsgspecError) as problem:
            wrong.append(_odd(each, problem))
            continue
        told.append((each, declared.name))
        wanted[each.saga_id, branch(declared.name, _generation(each, declared.name))] = _to_come(each.state, declared)
    parameters = {
        "parents": [parent for parent, _ in wanted], "branches": [name for _, name in wanted],
        "to_come": list(wanted.values()), "again": START_ANEW, "now": clock.now(),
    }  # fmt: skip
    stands: dict[tuple[UUID, str], list[Any]] = {}
    for parent, name, *line in run(connection, query(PACKAGE, "children"), parameters):
        stands.setdefault((parent, name), []).append(line)
    for each, step in told:
        lines = stands.get((each.saga_id, branch(step, _generation(each, step))), [])
        try:
            each.children = _seen(connection, each, step, lines, settings)
        except psycopg.Error:
            raise
        except Exception as problem:
            wrong.append(_odd(each, problem))
    return wrong


def _to_come(state: State, step: Step[Any, Any]) -> str | None:
    """The first item that the present round has not come to yet; None: it has come to all, or the saga turns back.
    What an earlier round has left of those that come is begun anew, so it says nothing of this one."""
    known = machine.step_of(state, step.name)
    to_come = machine.goes_forward(state) and known.started < known.total
    return _number(known.started) if isinstance(step, Each) and to_come else None


def _odd(delivery: Delivery, problem: Exception) -> Delivery:
    log.error("%s: it waits: how its children stand cannot be told: %s", delivery.label, clean(repr(problem), 500))
    return delivery


def _step_of(delivery: Delivery) -> str:
    return str(msgspec.json.decode(delivery.payload or "{}", type=dict[str, Any]).get("step", ""))


def _generation(delivery: Delivery, step: str) -> int:
    return machine.step_of(delivery.state, step).generation


def _seen(connection: Connection, each: Delivery, step: str, lines: list[Any], settings: Settings) -> Children:
    counts = {Status(status): count for status, count, *_ in lines}
    ended = sum(count for status, count in counts.items() if status in machine.TERMINAL)
    undone = sum(count for status, count in counts.items() if status in machine.UNDONE)
    completed = counts.get(Status.COMPLETED, 0)
    known, generation = machine.step_of(each.state, step), _generation(each, step)
    seen = Children(
        step=step, generation=generation, round=known.do.attempts, started=known.started,
        open=sum(counts.values()) - ended, completed=completed, undone=undone,
        aborted=counts.get(Status.ABORTED, 0), now=max((line[-1] for line in lines), default=0.0),
        jitter=random.random(), reason=_reason(lines),
    )  # fmt: skip
    declared = step_named(registry.get(each.name, each.version), step)
    if isinstance(declared, Each) and known.started < known.total:
        return _with_more(connection, each, declared, seen, settings)
    if known.started and not seen.open and (completed or isinstance(declared, Each)):
        return _with_result(connection, each, declared, seen, settings)
    return seen


def _with_more(
    connection: Connection, parent: Delivery, step: Each[Any, Any, Any], seen: Children, settings: Settings
) -> Children:
    """The items that are to be started next, once there is room for a good part of them."""
    assert step.options.children is not None
    known, at_once = machine.step_of(parent.state, step.name), step.options.children.at_once
    room = at_once - seen.open
    if room * 4 < at_once and seen.open:
        return seen
    assert known.items is not None
    payloads = settings.payloads
    items = _items(step, parent, large.fetch(connection, parent.saga_id, known.items), payloads)
    count = min(BATCH, room, known.total - known.started)
    _load_head(connection, parent)
    request = _items_to_start(
        step, parent, items, known.started, count, limit=settings.max_payload, payloads=payloads
    )  # fmt: skip
    return msgspec.structs.replace(seen, request=request, count=count)


def _load_head(connection: Connection, parent: Delivery) -> None:
    """A row that is no step's is begun without the log."""
    if 0 not in parent.history:
        parent.history[0] = large.fetch(connection, parent.saga_id, 0)


def _reason(lines: list[Any]) -> str:
    """Which child came to nothing, and why."""
    ends = [Status.COMPENSATED, Status.ABORTED, Status.CANCELLED]  # what was cancelled was so because of the others
    for status, count, name, key, error, _ in sorted(lines, key=lambda line: [*ends, line[0]].index(line[0])):
        if Status(status) in ends:
            others = f" (and {count - 1} more)" if count > 1 else ""
            return f"its child {name} (key {key!r}) has ended as {status}{others}" + (f": {error}" if error else "")
    return ""


def _with_result(
    connection: Connection, parent: Delivery, step: Step[Any, Any], seen: Children, settings: Settings
) -> Children:
    """The result of the step, from those of its children."""
    if isinstance(step, Child) and step.result is None:
        return msgspec.structs.replace(seen, result=NULL)
    of = step.result.name if isinstance(step, Child) and step.result is not None else step.name
    parameters = {"parent": parent.saga_id, "branch": branch(step.name, seen.generation), "step": of}
    found = [text for _, text in run(connection, query(PACKAGE, "children_results"), parameters)]
    if isinstance(step, Each):
        return _joined(step, found, seen, settings)
    if not found or found[0] is None:
        return msgspec.structs.replace(seen, problem=f"its child has no result of step {of!r}")
    return msgspec.structs.replace(seen, result=Raw(found[0].encode()))


def _joined(step: Each[Any, Any, Any], found: list[str | None], seen: Children, settings: Settings) -> Children:
    what, payloads = f"result of step {step.name!r}", settings.payloads
    opened = [b"null" if text is None else payloads.open(text, what=what) for text in found]
    raw = b"[" + b",".join(opened) + b"]"
    if len(raw) > settings.max_payload:
        problem = f"the results of its items take {len(raw):,} bytes together, {settings.max_payload:,} are allowed"
        return msgspec.structs.replace(seen, problem=problem)
    if None in found and not _fits(raw, step.result_type):
        problem = f"its item {found.index(None)} has no result: an operator has skipped it"
        return msgspec.structs.replace(seen, problem=problem)
    return msgspec.structs.replace(seen, result=Raw(payloads.seal(raw, step.result_type)))


def _fits(raw: bytes, declared: Any) -> bool:
    try:
        codec.decode(raw, declared)
    except CodecError:
        return False
    return True
