"""The Celery app of the kill tests."""

from __future__ import annotations

from celery import Celery

app = Celery("tests.faults")
app.config_from_object("django.conf:settings", namespace="CELERY")
