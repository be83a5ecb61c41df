"""A small shop (Django, Celery) whose bank is another process; runs in the tests and in `make demo`."""

from example_project.celery import app as celery_app

__all__ = ["celery_app"]
