"""Fields of models and migrations."""

from __future__ import annotations

from typing import Any

from django.db import models


class IntegersField(models.Field):
    """A column `integer[]`. Django's own field for it wants `django.contrib.postgres` in INSTALLED_APPS."""

    def db_type(self, connection: Any) -> str:
        return "integer[]"
