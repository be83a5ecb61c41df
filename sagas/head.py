"""Entry 0 of a saga log: what the saga is and what it was given. With it the log alone is enough."""

from __future__ import annotations

from uuid import UUID

import msgspec


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `start()` writes; the input is the only copy there is."""

    name: str
    version: int
    key: str
    input: msgspec.Raw
    run: int = 1
    subject_type: str | None = None
    subject_id: str | None = None
    headers: dict[str, str] = {}
    hash: str = ""  # fingerprint of the input where that is not stored as it is
    definition: str = ""  # fingerprint of the steps it was started with
    priority: int = 0  # added to that of its steps
    ordering_key: str | None = None  # in each queue one at a time of those that share it
    root: str = ""  # of a saga that goes on from another: hash of the input that `start()` was given
    parent: UUID | None = None  # the saga that started it
    parent_step: str = ""  # and which of its steps: see `sagas.store.starting.branch`


_reader = msgspec.json.Decoder(Head)


def read_head(raw: bytes | msgspec.Raw) -> Head:
    """Entry 0's account of the saga.

    Raises:
        msgspec.MsgspecError: it cannot be read.
    """
    return _reader.decode(raw)
