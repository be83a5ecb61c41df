"""What all models of ours have in common."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models


class ReadOnly(models.Model):
    """Refuses to be written: a saga changes through the engine, never by editing its rows."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only; use Saga.start(), cancel() and the operator commands")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only; old sagas are removed by pruning")
