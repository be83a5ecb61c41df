"""What can go wrong with plain messages.

OutboxError
├── InvalidMessage      publish() was given something that cannot be stored or sent
├── NotPublished        publish() where nothing would make it durable together with the caller's work
├── UnknownConnection   `using=` is nothing that messages can be published on
├── Unreachable         raised by publishers: the destination cannot be reached, whatever the message
│   └── Refused         the same, of one destination of a publisher that reaches others in the same way
└── Unsendable          raised by publishers: this message can never be sent
"""

from __future__ import annotations


class OutboxError(Exception):
    """Something about a plain message went wrong."""


class InvalidMessage(OutboxError, ValueError):
    """What was given cannot be stored or sent; the message of the error names the field."""


class NotPublished(OutboxError):
    """No transaction is open: the message and the business change could part."""


class UnknownConnection(OutboxError):
    """`using=` is nothing that messages can be published on."""


class Unreachable(OutboxError):
    """A destination cannot be reached. It is the fault of no message, so it uses up no try of any."""


class Refused(Unreachable):
    """A destination takes nothing now, such as a queue that is full; others on the same connection may."""


class Unsendable(OutboxError):
    """This message can never be sent, however often it is tried."""
