"""What sagas call the business object they are about."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models

from sagas.errors import InvalidInput
from sagas.failure import clean


def subject_of(instance: models.Model) -> tuple[str, str]:
    """Type and id of an instance: the same before and after it was loaded, and for proxies of its model.

    Raises:
        InvalidInput: its primary key is none of its model's.
    """
    concrete = instance._meta.concrete_model or type(instance)
    try:
        return concrete._meta.label, str(concrete._meta.pk.to_python(instance.pk))
    except ValidationError as problem:
        raise InvalidInput(
            f"subject={concrete._meta.label}: {clean(repr(instance.pk), 100)} cannot be a primary key of it",
            path="subject",
        ) from problem
