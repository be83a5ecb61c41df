"""Code that already calls Celery tasks, made transactional.

`.delay()`, `.apply_async()` and `send_task` of chosen tasks publish a message in the open transaction instead of
talking to the broker.

    make_transactional(app, ["shop.tasks.*"])                          # beside the app, or:
    SAGAS = {"OUTBOX_TASKS": ["shop.tasks.*"]}                          # in the Django settings

What changes by it is in docs/drop-in.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final
from uuid import UUID, uuid4

from celery import Celery
from kombu.utils.json import dumps

from sagas.errors import ConfigurationError
from sagas_celery.checks import TASK
from sagas_celery.messages import CALL, CODED, KNOWN
from sagas_outbox.encoding import MOST_HEADERS, briefly
from sagas_outbox.errors import InvalidMessage
from sagas_outbox.publishing import NewMessage, publish_many

CANVAS: Final = ("link", "link_error", "chord", "chain", "group_id", "group_index", "stamped_headers", "reply_to")
NOTHING_TO_SAY: Final = (  # how Celery is to talk to the broker just now, which nobody does just now
    "retry", "retry_policy", "router", "route_name", "result_cls", "task_type", "add_to_parent", "timeout",
    "confirm_timeout", "replaced_task_nesting", "event_dispatcher", "declare",
)  # fmt: skip
OURS: Final = ("using", "ordering_key")

_rules: list[_Rule] = []
_original: list[Any] = []  # what Celery has itself
_using: ContextVar[Any] = ContextVar("sagas: where tasks are published", default=None)


class NotTransactional(ConfigurationError):
    """A task of the outbox was called with an option that only the broker can carry out at once."""


@contextmanager
def publishing_on(using: Any) -> Iterator[None]:
    """Have tasks that are called in this block published on a session or connection.

    Args:
        using: what `publish()` takes as `using=`.
    """
    token = _using.set(using)
    try:
        yield
    finally:
        _using.reset(token)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Whose calls are published."""

    app: Celery | None  # None: of every app in this process
    patterns: tuple[str, ...]
    using: Any


def make_transactional(app: Celery | None, tasks: Iterable[str], *, using: Any = None) -> None:
    """Have calls of some tasks published in the caller's transaction.

    Args:
        app: the Celery app; None: every app of this process, also those that are made later.
        tasks: names of tasks, or patterns such as `shop.tasks.*`. Asked again, it adds to them.
        using: where, if neither the call nor `publishing_on` says it; None: Django's default database.

    Raises:
        ConfigurationError: it is no list of names.
    """
    if isinstance(tasks, str):
        raise ConfigurationError(f"tasks={tasks!r}: a list of names, such as [{tasks!r}]")
    patterns = tuple(tasks)
    if not all(isinstance(each, str) for each in patterns):
        raise ConfigurationError(f"tasks={patterns!r}: names of tasks, or patterns of names")
    rule = _Rule(app, patterns, using)
    if rule not in _rules:
        _rules.append(rule)
    if Celery.send_task is not _send_task:
        # on the class: whoever calls a task ends here, and apps may be made after the settings were read
        _original.append(Celery.send_task)
        Celery.send_task = _send_task


def _rule(app: Celery, name: str) -> _Rule | None:
    for rule in _rules:
        if rule.app in (None, app) and name != TASK and any(fnmatchcase(name, each) for each in rule.patterns):
            return rule
    return None


def _send_task(self: Celery, name: str, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
    rule = _rule(self, name)
    if rule is None or _at_once(self, options):
        for each in OURS if rule else ():
            options.pop(each, None)
        return _original[0](self, name, args, kwargs, *rest, **options)
    if rest:
        raise NotTransactional(f"{name}: give options of send_task by name")
    return _publish(self, name, args, kwargs, options, rule.using)


def _at_once(app: Celery, options: Mapping[str, Any]) -> bool:
    """Whether a call goes to the broker all the same.

    So does a retry, which is of a task that runs already; what a worker goes on with; and what brings a connection of
    its own, as celery beat does. A group brings one too, and is refused.
    """
    if options.get("retries") or _goes_on(app, options):
        return True
    brings = any(options.get(each) for each in ("producer", "publisher", "connection"))
    return brings and not any(options.get(each) for each in CANVAS)


def _goes_on(app: Celery, options: Mapping[str, Any]) -> bool:
    """Whether a worker goes on with what was put together before: there is no caller to whom an error could be told.

    A chain, a callback with callbacks of its own, or what replaces a task tells where it comes from. The body of a
    chord does not: it is in a group and has no place in it, and where it is a chain, another thread made that.
    """
    chain = options.get("chain")
    if options.get("parent_id") or options.get("root_id"):
        return chain is not None or any(options.get(each) for each in CANVAS)
    if options.get("group_id") and options.get("group_index") is None:
        return True
    return chain is not None and options.get("reply_to") not in (None, app.thread_oid)


def _publish(
    app: Celery, name: str, args: Any, kwargs: Any, options: Mapping[str, Any], using: Any
) -> Any:  # fmt: skip
    where = options.get("using") or _using.get() or using
    message = message_of(app, name, args, kwargs, options)
    publish_many([message], using=where, own_transaction=True)
    result = (options.get("result_cls") or app.AsyncResult)(str(message.message_id))
    result.ignored = options.get("ignore_result")
    return result


def message_of(app: Celery, name: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> NewMessage:
    """The message that stands for a call.

    Raises:
        NotTransactional: an option has no meaning for a message that is sent later.
        InvalidMessage: an argument cannot be written as Celery's JSON.
    """
    if ":" in name:
        raise NotTransactional(
            f"{name}: a message to a name with a colon goes to a publisher (scheme:address), and not to a task; give "
            f"the task another name, or take it out of OUTBOX_TASKS"
        )
    given = {option: value for option, value in options.items() if value is not None}
    for option in CANVAS:
        if given.get(option):
            raise NotTransactional(
                f"{name}: {option}= cannot be published: chains, groups, chords and callbacks are put together by the "
                f"broker's client. Start a saga, publish from the task that ends, or take {name} out of OUTBOX_TASKS"
            )
    if given.get("serializer") not in (None, "json"):
        raise NotTransactional(f"{name}: serializer={given['serializer']!r}: messages are stored as JSON")
    known = {option: given[option] for option in KNOWN & given.keys()}
    rest = given.keys() - known.keys() - {*CANVAS, *NOTHING_TO_SAY, *OURS, "serializer"}
    rest -= {"task_id", "eta", "countdown", "retries", "headers", "producer", "publisher", "connection"}
    if rest:
        raise NotTransactional(f"{name}: {', '.join(sorted(rest))}: nothing that can be kept with a message")
    if (queue := known.get("queue")) is not None and not isinstance(queue, str):
        known["queue"] = queue.name
    if "expires" in known:
        known["expires"] = _moment(app, known["expires"])
    texts, others = _headers(name, given.get("headers") or {})
    return NewMessage(
        destination=name, payload={**_arguments(name, args, kwargs), **others}, options=known | {CALL: CODED},
        headers=texts, message_id=_id(name, given.get("task_id")), ordering_key=given.get("ordering_key"),
        due_at=_due(app, given),
    )  # fmt: skip


def _arguments(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments in Celery's own JSON, so that they arrive with the types that they have after any other call."""
    try:
        written: str = dumps({"args": list(args or ()), "kwargs": dict(kwargs or {})})  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidMessage(f"{name}: arguments: {problem}") from problem
    found: dict[str, Any] = json.loads(written)
    return found


def _headers(name: str, headers: Any) -> tuple[Mapping[str, str] | None, Mapping[str, Any]]:
    """Headers as those of the message, where they are a few texts; anything else as Celery's own JSON, in the payload.

    Libraries that trace calls add numbers, and a dict of headers within the headers.
    """
    try:
        found = dict(headers)
        written: str = dumps(found)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RecursionError) as problem:
        raise NotTransactional(f"{name}: headers={briefly(headers)}: {problem}") from problem
    if all(isinstance(each, str) for pair in found.items() for each in pair) and len(written) <= MOST_HEADERS:
        return found, {}
    return None, {"headers": json.loads(written)}


def _due(app: Celery, given: Mapping[str, Any]) -> datetime | timedelta | None:
    if (countdown := given.get("countdown")) is not None:
        return timedelta(seconds=countdown)
    eta = given.get("eta")
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    return eta if eta is None or eta.tzinfo is not None else eta.replace(tzinfo=app.timezone)


def _moment(app: Celery, expires: Any) -> str:
    """When a task expires, as Celery writes it: seconds count from the call on, not from the sending."""
    if isinstance(expires, int | float):
        expires = app.now() + timedelta(seconds=expires)
    if isinstance(expires, str):
        return expires
    moment: datetime = expires if expires.tzinfo is not None else expires.replace(tzinfo=app.timezone)
    return moment.isoformat()


def _id(name: str, task_id: Any) -> UUID:
    try:
        id = uuid4() if task_id is None else UUID(str(task_id))
    except ValueError:
        raise NotTransactional(f"{name}: task_id={task_id!r}: the id of a message is a UUID") from None
    if task_id is not None and str(id) != str(task_id):  # whoever keeps the text would look for another id
        raise NotTransactional(f"{name}: task_id={task_id!r}: the id of a message is written {str(id)!r}")
    return id
