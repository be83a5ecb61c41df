"""The numbers that relays and workers go by. All durations are seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from sagas.errors import ConfigurationError
from sagas.payloads import Payloads
from sagas.queues import declared
from sagas_outbox.encoding import briefly

LONGEST = 30 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of one store, checked when they are made.

    Raises:
        ConfigurationError: a number is out of range, or two do not fit together.
    """

    lease: float = 30.0  # how long a worker may hold a row without a heartbeat
    heartbeat: float = 5.0  # how often it renews; at most a third of the lease
    timeout: float = 60.0  # a body that declares no timeout of its own
    grace: float = 10.0  # past its timeout, before the process of a body is ended
    poll: float = 1.0  # how often an idle relay looks for due rows
    publish_window: float = 10.0  # how long a message may wait in the broker before it is published again
    publish_timeout: float = 5.0  # the longest a broker may take to accept messages
    in_flight: int = 400  # rows published and not begun, per queue and relay
    message_rows: int = 100  # most rows in one message
    message_work: float = 0.05  # work that one message should carry
    hand_back_after: float = 1.0  # a body that takes longer makes its neighbours go elsewhere
    async_concurrency: int = 200  # most `async def` bodies at the same time in one process
    local_group: int = 50  # most local steps in one transaction
    flush: float = 0.02  # longest that a result waits for others to be recorded with it
    unknown_delay: float = 10.0  # until a saga of an unknown name or version is looked at again
    max_payload: int = 1024 * 1024  # bytes of an input or a result
    message_tries: int = 10  # tries to send a plain message before it is dead
    keep_sent: float = 0.0  # how long a plain message that was sent is kept; 0: it is deleted at once
    keep_inbox: float = 14 * 24 * 3600.0  # how long the inbox remembers a message that was taken
    wake: bool = True  # tell relays about new work right after commit
    prepared: bool = True  # prepared statements; off behind a pooler in transaction mode
    stuck_after: float = 300.0  # past what its own limits explain, before a saga counts as stuck
    prune: bool = True  # relays and embedded workers remove sagas that ended long ago
    prune_after_days: int = 90  # days since they ended
    archive: bool = True  # what is pruned is kept in sagas_archive
    queues: Any = None  # limits of queues (`sagas.queues.Limits`) by name; None: leave what the database says
    payload_codec: Any = None  # who seals payloads (`sagas.payloads.PayloadCodec`), several, or "module.attribute"

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload_codec", Payloads.of(self.payload_codec))
        object.__setattr__(self, "queues", declared(self.queues))
        for field in fields(self):
            _check_value(field.name, getattr(self, field.name), field.default)
        if self.heartbeat > self.lease / 3 * 1.000001:  # a third of it may not be a third of it in binary
            raise ConfigurationError(
                f"heartbeat={self.heartbeat} is too slow for lease={self.lease}: two renewals must be able to fail, "
                f"so heartbeat may be at most a third of the lease"
            )
        if self.publish_window < 2 * self.message_work:
            raise ConfigurationError(
                f"publish_window={self.publish_window} is shorter than the work of two messages "
                f"(message_work={self.message_work}): every message would be published twice"
            )

    @property
    def payloads(self) -> Payloads:
        """How payloads are written and read."""
        found: Payloads = self.payload_codec
        return found

    @classmethod
    def of(cls, given: Mapping[str, Any], *, where: str) -> Settings:
        """Settings from a mapping of lower-case names.

        Args:
            given: names and values; what is left out keeps its default.
            where: what to call the mapping in messages.

        Raises:
            ConfigurationError: a name is not known, or a value is wrong.
        """
        known = {field.name for field in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown(name, known, where=where)
        return cls(**given)


def unknown(name: Any, known: Collection[str], *, where: str) -> ConfigurationError:
    """The error about a setting that there is not: says which one was probably meant.

    Args:
        name: it.
        known: those that there are, as they are written there.
        where: what to call the mapping.
    """
    close = get_close_matches(name, known, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
    return ConfigurationError(f"{where}: unknown setting {briefly(name)}{hint}")


def _check_value(name: str, value: Any, default: Any) -> None:
    if default is None:
        return  # a codec, which checks itself
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name}={briefly(value)}: True or False")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name}={briefly(value)}: a number, like the default {default!r}")
    elif isinstance(default, int) and not (isinstance(value, int) and 1 <= value <= 2**31 - 1):
        raise ConfigurationError(f"{name}={briefly(value)}: a whole number of at least 1")
    elif value != default and not 0 < value <= max(LONGEST, 2.0**31):
        raise ConfigurationError(f"{name}={briefly(value)}: above 0 and at most 30 days, in seconds")
    elif isinstance(default, float) and value > LONGEST:
        raise ConfigurationError(f"{name}={briefly(value)}: at most 30 days, in seconds")
