"""Settings of the processes of these tests: those of the relay tests, with another application."""

from __future__ import annotations

import tests.relay.settings as relay
from tests.relay.settings import *  # noqa: F403 - as settings modules do

INSTALLED_APPS = ["django.contrib.contenttypes", "sagas_django", "tests.ticking"]
SAGAS, LOGGING = relay.SAGAS, relay.LOGGING
CELERY_BROKER_URL = relay.CELERY_BROKER_URL
