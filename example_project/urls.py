"""URLs of the shop."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from example_project.shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.place, name="place"),
    path("orders/<uuid:order_id>", views.show, name="show"),
]
