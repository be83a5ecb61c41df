"""Finding the user's Celery app."""

from __future__ import annotations

from celery import Celery, current_app
from celery.app.utils import find_app

from sagas.errors import ConfigurationError

FALLBACK = "default"  # what Celery names the app it makes when the project has set none


DJANGO = (
    "import it in the project's __init__.py, as Celery's Django guide does, or name it with --app mysite.celery:app"
)


def celery_app(name: str | None = None, *, option: str = "--app", remedy: str = DJANGO) -> Celery:
    """The Celery app of this project.

    Args:
        name: as for `celery -A`; None: the app that the project has set as current.
        option: what the name was given as, for messages.
        remedy: what to do where there is none.

    Raises:
        ConfigurationError: there is none, or the name leads to none.
    """
    if name is not None:
        try:
            found = find_app(name)
        except (ImportError, AttributeError) as problem:
            raise ConfigurationError(f"{option} {name}: no Celery app found there: {problem}") from problem
        if isinstance(found, Celery):
            return found
        raise ConfigurationError(f"{option} {name}: that is a {type(found).__name__}, not a Celery app")
    app: Celery = current_app._get_current_object()
    if app.main == FALLBACK:
        raise ConfigurationError(f"this project has no Celery app: {remedy}")
    return app
