"""Sagas in Django: add ``"sagas_django"`` to `INSTALLED_APPS`, run `migrate`, write `sagas.py` beside your models."""
