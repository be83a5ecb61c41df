"""App config."""

from __future__ import annotations

from django.apps import AppConfig


class DeploysConfig(AppConfig):
    name = "tests.deploys.app"
    label = "deploys"
