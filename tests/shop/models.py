"""Business tables of the tests' shop."""

# mypy: disable-error-code="var-annotated, no-any-return"
from __future__ import annotations

from django.db import models

from sagas_django.models import HasSagas


class Order(HasSagas):
    """What sagas are started for."""

    title = models.TextField()

    def __str__(self) -> str:
        return self.title


class Booking(models.Model):
    """What local steps write: one row for each time one did."""

    saga = models.TextField()
    step = models.TextField()

    def __str__(self) -> str:
        return f"{self.saga} {self.step}"


class Seat(models.Model):
    """Can be taken once."""

    number = models.IntegerField(unique=True)

    def __str__(self) -> str:
        return str(self.number)
