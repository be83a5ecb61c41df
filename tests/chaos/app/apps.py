"""App config."""

from __future__ import annotations

import os

from django.apps import AppConfig

from tests.chaos.mutants import plant


class ChaosConfig(AppConfig):
    name = "tests.chaos.app"
    label = "chaos"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        if mutant := os.environ.get("CHAOS_MUTANT"):
            plant(mutant)
        from tests.chaos.app import going_on, sagas, together

        assert going_on and sagas and together  # they are what this process can run
