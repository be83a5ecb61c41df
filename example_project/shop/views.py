"""A JSON door for orders."""

from __future__ import annotations

import json
from uuid import UUID

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from example_project.shop.models import Order, Product
from example_project.shop.services import place_order


@csrf_exempt
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    """POST {"sku": ..., "quantity": ...}: 201 and where to ask for it."""
    try:
        wish = json.loads(request.body)
        order = place_order(str(wish["sku"]), int(wish.get("quantity", 1)))
    except (ValueError, KeyError, TypeError, AttributeError, Product.DoesNotExist) as error:
        return JsonResponse({"error": f"{type(error).__name__}: {error}"}, status=400)
    return JsonResponse(_as_json(order), status=201, headers={"Location": reverse("show", args=[order.id])})


@require_GET
def show(request: HttpRequest, order_id: UUID) -> JsonResponse:
    """How far an order got."""
    return JsonResponse(_as_json(get_object_or_404(Order, pk=order_id)))


def _as_json(order: Order) -> dict[str, str]:
    return {"id": str(order.id), "status": order.status, "total": str(order.total)}
