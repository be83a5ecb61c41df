"""The Celery app of the chaos runs."""

from __future__ import annotations

from celery import Celery

app = Celery("tests.chaos")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["tests.chaos.app"])
