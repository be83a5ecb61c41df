"""An admin site with a name of its own: sagas, and business objects that show theirs."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.urls import path

from sagas_django.admin import SagaAdmin
from sagas_django.admin_inline import SagaInline
from sagas_django.models import SagaRow
from tests.shop.models import Order

site = admin.AdminSite(name="back")


class WithSagas(admin.ModelAdmin):
    inlines = (SagaInline,)


class OnlyUsername(WithSagas):
    fields = ("username",)


site.register(SagaRow, SagaAdmin)
site.register(Order, WithSagas)  # its primary key is a number
site.register(Session, WithSagas)  # a text
site.register(User, OnlyUsername)

urlpatterns = [path("back/", site.urls)]
