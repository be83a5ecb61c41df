"""Wiring: nothing but connecting the core to Django."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db import connections
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class SagasConfig(AppConfig):
    name = "sagas_django"
    label = "sagas"
    verbose_name = _("Sagas")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from sagas import ports, typed
        from sagas.registry import registry
        from sagas_django import checks
        from sagas_django.caller import django_caller
        from sagas_django.store import DjangoStore

        typed.begin_with("manage.py sagas", unless_known=True)
        ports.register_adapter(django_caller)
        for alias in connections:
            ports.register_store(alias, lambda alias=alias: DjangoStore(alias), owner=self.name)  # type: ignore[misc]
        register(checks.check_settings, "sagas")
        register(checks.check_engines, "sagas")
        register(checks.check_definitions, "sagas")
        register(checks.check_schedules, "sagas")
        register(checks.check_databases, "sagas", Tags.database)
        register(checks.check_celery, "sagas")
        register(checks.check_deployment, "sagas", deploy=True)
        register(checks.check_celery_deployment, "sagas", deploy=True)
        if find_spec("celery") is not None:
            import_module("sagas_celery.tasks")  # a worker that does not know the task would throw its messages away
            process = import_module("sagas_celery.process")
            process.check_at_start("the checks of this project", lambda _: checks.insist())
            _make_transactional()
        import_module("sagas_django.signals").connect()
        autodiscover_modules("sagas")
        registry.load()


def _make_transactional() -> None:
    """Calls of the Celery tasks in `SAGAS["OUTBOX_TASKS"]` become messages."""
    from sagas_django.conf import outbox_tasks

    if tasks := outbox_tasks():
        from sagas_celery.drop_in import make_transactional

        make_transactional(None, tasks)
