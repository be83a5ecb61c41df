"""Named points on the way of a saga, where a test can stop the process; see `sagas_outbox.points`."""

from sagas_outbox.points import Listener, Point, listen, reached

__all__ = ["Listener", "Point", "listen", "reached"]
