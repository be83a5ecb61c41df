"""Business tables of the tests' shop."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def key() -> tuple[str, models.Field[Any, Any]]:
    return "id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel("Booking", [key(), ("saga", models.TextField()), ("step", models.TextField())]),
        migrations.CreateModel("Order", [key(), ("title", models.TextField())]),
        migrations.CreateModel("Seat", [key(), ("number", models.IntegerField(unique=True))]),
    ]
