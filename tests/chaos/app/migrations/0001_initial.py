"""The tables of the chaos runs."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Line",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("order", models.TextField()),
                ("what", models.TextField()),
                ("cents", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "Account",
            [
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("balance", models.IntegerField(default=0)),
            ],
        ),
    ]
