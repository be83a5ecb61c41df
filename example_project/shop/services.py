"""What the rest of the site calls."""

from __future__ import annotations

import uuid

from django.db import transaction

from example_project.shop.models import Order, Product
from example_project.shop.sagas import OrderPlaced, PlaceOrder


def place_order(
    sku: str, quantity: int = 1, *, destination: str = "Utrecht", order_id: uuid.UUID | None = None
) -> Order:
    """Take an order: the row and the saga that sees it through are there together or not at all.

    Args:
        sku: what is ordered.
        quantity: how many; at least 1.
        destination: where the parcel goes.
        order_id: given by a caller who must be able to ask twice for the same order.

    Raises:
        Product.DoesNotExist: nothing is sold under this sku.
        ValueError: a quantity below 1.
    """
    if quantity < 1:
        raise ValueError(f"quantity {quantity}: at least 1")
    with transaction.atomic():
        product = Product.objects.get(pk=sku)
        order = Order.objects.create(
            id=order_id or uuid.uuid4(), product=product, quantity=quantity, total=product.price * quantity,
            destination=destination,
        )  # fmt: skip
        PlaceOrder.start(OrderPlaced(order.id, order.total), key=f"order-{order.id}", subject=order)
    return order
