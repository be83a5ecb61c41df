"""What the shop keeps: products, orders, and what was reserved and shipped for them."""

from __future__ import annotations

import uuid

from django.db import models

from sagas_django.models import HasSagas


class Product(models.Model):
    """Something for sale."""

    sku = models.CharField(max_length=40, primary_key=True)
    name = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.PositiveIntegerField(default=0)  # what can still be reserved

    def __str__(self) -> str:
        return self.name


class Order(HasSagas):
    """What a customer ordered."""

    class Status(models.TextChoices):
        """How far it got."""

        PLACED = "placed"
        ACCEPTED = "accepted"  # being seen through
        CONFIRMED = "confirmed"  # paid and shipped
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="orders")
    quantity = models.PositiveIntegerField(default=1)
    total = models.DecimalField(max_digits=12, decimal_places=2)
    destination = models.CharField(max_length=80, default="Utrecht")
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PLACED)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Newest first."""

        ordering = ("-created",)

    def __str__(self) -> str:
        return f"order {self.id}"


class Reservation(models.Model):
    """Stock put aside for an order."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="reservation")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="reservations")
    quantity = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} of {self.product_id} for order {self.order_id}"


class Shipment(models.Model):
    """A parcel on its way, and the charge that paid for it."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="shipment")
    paid_with = models.CharField(max_length=100)
    created = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"shipment of order {self.order_id}"
