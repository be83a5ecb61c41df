"""The same project under the theme django-unfold."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = ["unfold", *APPS]
