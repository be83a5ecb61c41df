"""The shop's own books. Lines are only ever added, so that what was written twice shows."""

# mypy: disable-error-code="var-annotated"
from __future__ import annotations

from django.db import models


class Line(models.Model):
    """What one body, or the caller, wrote once in its transaction."""

    order = models.TextField()
    what = models.TextField()
    cents = models.IntegerField(default=0)

    class Meta:
        app_label = "chaos"


class Account(models.Model):
    """A number that is read by one step and written by a later one: without a lock between, an addition is lost."""

    name = models.TextField(primary_key=True)
    balance = models.IntegerField(default=0)

    class Meta:
        app_label = "chaos"
