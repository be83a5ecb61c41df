"""Fields of models and migrations."""

from __future__ import annotations

import json
from typing import Any

from django.db import models


class IntegersField(models.Field):
    """A column `integer[]`. Django's own field for it wants `django.contrib.postgres` in INSTALLED_APPS."""

    def db_type(self, connection: Any) -> str:
        return "integer[]"

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))

    def to_python(self, value: Any) -> Any:
        """What a fixture holds is JSON."""
        return json.loads(value) if isinstance(value, str) else value
