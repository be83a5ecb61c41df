"""The shop's side of the demo: goods on the shelf, orders, and what its own books say. Needs Django to be set up."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from django.db.models import Sum

from example_project.demo.plan import CATALOGUE, SOLD_OUT, PlannedOrder
from example_project.demo.summary import Books
from example_project.shop.models import Order, Product, Reservation, Shipment
from example_project.shop.services import place_order

STOCK = 1_000


def open_shop() -> None:
    """Fill the shelves."""
    Product.objects.create(sku=SOLD_OUT, name=SOLD_OUT.title(), price=Decimal("999.99"), stock=0)
    for sku, price in CATALOGUE.items():
        Product.objects.create(sku=sku, name=sku.title(), price=Decimal(price), stock=STOCK)


def place(orders: Iterable[PlannedOrder]) -> None:
    """Place orders the way the site does: one transaction each."""
    for order in orders:
        place_order(order.sku, order.quantity, destination=order.city, order_id=order.order_id)


def read_books() -> Books:
    """The shop's books as they are now."""
    confirmed = Order.objects.filter(status=Order.Status.CONFIRMED)
    settled = (Order.Status.CONFIRMED, Order.Status.CANCELLED)
    return Books(
        paid={str(order.id): order.total for order in confirmed},
        open_orders=Order.objects.exclude(status__in=settled).count(),
        goods_add_up=_goods_add_up(),
    )


def _goods_add_up() -> bool:
    """Each product's shelf and reservations make up its stock, and what is confirmed is what was reserved and sent."""
    confirmed = set(Order.objects.filter(status=Order.Status.CONFIRMED).values_list("pk", flat=True))
    reserved = set(Reservation.objects.values_list("order_id", flat=True))
    sent = set(Shipment.objects.values_list("order_id", flat=True))
    shelves = Product.objects.exclude(sku=SOLD_OUT).annotate(reserved=Sum("reservations__quantity"))
    return confirmed == reserved == sent and all(shelf.stock + (shelf.reserved or 0) == STOCK for shelf in shelves)
