"""The shop's pages in Django admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import Order, Product, Reservation, Shipment
from sagas_django.admin_inline import SagaInline


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """What is for sale."""

    list_display = ("sku", "name", "price", "stock")


class ReservationInline(admin.TabularInline):
    """What was put aside."""

    model = Reservation
    extra = 0


class ShipmentInline(admin.TabularInline):
    """What was sent."""

    model = Shipment
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Orders and how far they got."""

    list_display = ("id", "product", "quantity", "total", "status", "created")
    list_filter = ("status",)
    search_fields = ("id",)
    inlines = (ReservationInline, ShipmentInline, SagaInline)
