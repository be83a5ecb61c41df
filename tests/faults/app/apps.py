"""App config."""

from __future__ import annotations

from django.apps import AppConfig


class FaultsConfig(AppConfig):
    name = "tests.faults.app"
    label = "faults"
    default_auto_field = "django.db.models.BigAutoField"
