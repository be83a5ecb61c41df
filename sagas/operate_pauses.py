"""Pausing a whole queue or a whole definition from the command line, and what is paused."""

from __future__ import annotations

from collections.abc import Iterator

from sagas import pauses
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.operate import one_line, table
from sagas.operate_asking import user
from sagas.pauses import Scope
from sagas.registry import registry

HEAD = ("what", "name", "since", "by", "reason")
EVERY = 0  # version of a pause of every version


def pause(desk: Desk, scope: Scope, wanted: str, *, reason: str, actor: str = "") -> Iterator[str]:
    """Pause a queue or a definition; yields what that means.

    Args:
        desk: where.
        scope: what is paused.
        wanted: a queue, or NAME or NAME:VERSION of a definition.
        reason: why.
        actor: who; nothing: the user of this machine.

    Raises:
        InvalidInput: the version is no number, or there is no reason.
    """
    name, version = named(scope, wanted)
    if not reason.strip():
        raise InvalidInput("--reason: say why, for those who find it paused", path="reason")
    with desk.connect() as connection:
        pauses.pause(connection, scope, name, version=version, actor=actor or user(), reason=reason)
    if not _known(scope, name):
        yield f"note: this process knows no {scope} {name!r}; is it spelled right?"
    if scope is Scope.QUEUE:
        yield f"queue {name} is paused in {desk.name!r}: nothing of it is claimed, requests included"
    else:
        yield f"definition {wanted} is paused in {desk.name!r}: its sagas begin nothing; requests are applied"
    yield f"what is under way is finished and recorded; `{desk.command} resume-{scope} {wanted}` lets it go on"


def resume(desk: Desk, scope: Scope, wanted: str) -> str:
    """Let a queue or a definition go on, and say what came of it.

    Raises:
        InvalidInput: it is not paused; the message says what is.
    """
    name, version = named(scope, wanted)
    with desk.connect() as connection:
        if pauses.resume(connection, scope, name, version=version):
            return f"{scope} {wanted} goes on in {desk.name!r}"
        there = [_label(each.name, each.version) for each in pauses.pauses(connection) if each.kind == scope]
    raise InvalidInput(f"{scope} {wanted} is not paused; paused are: {', '.join(there) or 'none'}", path="name")


def listing(desk: Desk) -> Iterator[str]:
    """Everything that is paused as a whole, oldest first."""
    found = desk.rows("pauses", {})
    if not found:
        yield f"no queue and no definition is paused in {desk.name!r}"
        return
    yield from table([
        HEAD,
        *(
            (each.kind, _label(each.name, each.version), desk.words.clock(each.at, "seconds"),
             one_line(each.actor), one_line(each.reason))
            for each in found
        ),
    ])  # fmt: skip
    yield f"`{desk.command} resume-queue NAME` and `resume-definition NAME` let one go on"


def named(scope: Scope, wanted: str) -> tuple[str, int]:
    """Name and version; 0: every version.

    Raises:
        InvalidInput: nothing is named, or the version is no number.
    """
    if scope is Scope.QUEUE:
        name, colon, version = wanted, "", ""
    else:
        name, colon, version = wanted.partition(":")
    if not name or (colon and not (version.isdecimal() and int(version) > 0)):
        raise InvalidInput(f"{wanted!r}: write NAME, or NAME:VERSION such as shop.place_order:2", path="name")
    return name, int(version) if colon else EVERY


def _label(name: str, version: int) -> str:
    return name if version == EVERY else f"{name}:{version}"


def _known(scope: Scope, name: str) -> bool:
    return name in (registry.queues() if scope is Scope.QUEUE else {each.saga_name for each in registry.definitions()})
