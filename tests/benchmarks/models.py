"""A business of two tables: what a transaction writes with and without a saga in it."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """One order."""

    number = models.CharField(max_length=40)
    total = models.DecimalField(max_digits=12, decimal_places=2)


class Line(models.Model):
    """One line of an order."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    article = models.CharField(max_length=40)


class Note(models.Model):
    """What a local step inserts."""

    text = models.CharField(max_length=40)
