"""The time that statements go by; see `sagas_outbox.clock`."""

from sagas_outbox.clock import Source, go_by, now

__all__ = ["Source", "go_by", "now"]
