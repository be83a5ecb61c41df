"""A transactional outbox for plain messages, and an inbox; useful without sagas, and what sagas stand on.

publish("shop.tasks.send_invoice", {"order": 7}, using=connection)      # in your own transaction
if take(message_id, handler="invoices", using=connection): ...           # in the receiver's own
"""

from sagas_outbox.errors import InvalidMessage, NotPublished, OutboxError, UnknownConnection, Unreachable, Unsendable
from sagas_outbox.inbox import atake, take
from sagas_outbox.publishers import Message, MessagePublisher, Routes, one_by_one
from sagas_outbox.publishing import NewMessage, apublish, apublish_many, publish, publish_many

__all__ = [
    "InvalidMessage",
    "Message",
    "MessagePublisher",
    "NewMessage",
    "NotPublished",
    "OutboxError",
    "Routes",
    "UnknownConnection",
    "Unreachable",
    "Unsendable",
    "apublish",
    "apublish_many",
    "atake",
    "one_by_one",
    "publish",
    "publish_many",
    "take",
]
