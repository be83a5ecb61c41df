"""What the local steps write."""

from __future__ import annotations

from django.db import models


class Reservation(models.Model):
    """Goods put aside for an order; there while the order stands."""

    order = models.TextField()

    class Meta:
        app_label = "faults"


class Movement(models.Model):
    """One line for each time that a local step happened; never removed, so a step that happened twice shows."""

    order = models.TextField()
    what = models.TextField()

    class Meta:
        app_label = "faults"
