"""A small Django app whose models and sagas the tests use."""
