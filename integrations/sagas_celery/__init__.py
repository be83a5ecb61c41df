"""Sagas on Celery: the relay publishes to it, its workers run the steps. With ``"sagas_django"`` in
`INSTALLED_APPS` the task is registered in every Celery app of the project."""
