"""Log lines that say which saga they are about, in fields of their own, and hold no payload.

Every line of the logger `sagas.worker` that is about a saga has `saga_id`, `saga_name`, `saga_key` and `saga_step`.
`SagaFilter`, put on a handler, gives them to the lines that your own steps write as well; `JsonFormatter` writes lines
as JSON.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Protocol

FIELDS: Final = ("saga_id", "saga_name", "saga_key", "saga_step")


class Label(str):
    """What a message calls a saga, which also knows it by fields."""

    __slots__ = FIELDS

    saga_id: str
    saga_name: str
    saga_key: str
    saga_step: str

    @classmethod
    def of(cls, *, id: object, name: str, key: str, step: str, work: str) -> Label:
        """A label.

        Args:
            id: of the saga.
            name: of the saga.
            key: of the saga.
            step: that it is about; nothing: about none.
            work: what is done, for the text.
        """
        found = cls(f"saga {name} {id} (key {key!r}), {work}")
        found.saga_id, found.saga_name, found.saga_key, found.saga_step = str(id), name, key, step
        return found


class Labelled(Protocol):
    """What lines can be about."""

    @property
    def label(self) -> Label: ...


about: ContextVar[Labelled | None] = ContextVar("sagas_about", default=None)  # set around each body


class SagaFilter(logging.Filter):
    """Gives each line the fields of the saga that it is about; empty ones where it is about none. Lets all through."""

    def filter(self, record: logging.LogRecord) -> bool:
        given = record.args if isinstance(record.args, tuple) else ()
        label = next((each for each in given if isinstance(each, Label)), None)
        if label is None and (now := about.get()) is not None:
            label = now.label
        for field in FIELDS:
            if label is not None or not hasattr(record, field):
                setattr(record, field, "" if label is None else getattr(label, field))
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields of the saga, and the error, if any."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname, "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        line |= {field: value for field in FIELDS if (value := getattr(record, field, ""))}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


logging.getLogger("sagas.worker").addFilter(SagaFilter())
