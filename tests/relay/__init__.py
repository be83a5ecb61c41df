"""Relay and Celery workers on real parts: Postgres, Redis, and processes of their own."""
