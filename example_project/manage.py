#!/usr/bin/env python
"""Django's command line for the shop."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run a management command."""
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # this folder's celery.py would hide Celery
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
