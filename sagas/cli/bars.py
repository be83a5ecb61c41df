"""Progress bars of long work: click's own, where somebody watches."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, cast

from sagas.commanding import Bar, no_bars


def bar(total: int, label: str) -> AbstractContextManager[Bar]:
    """A progress bar on the terminal; nothing where there is none, or click is not installed.

    Args:
        total: when it is full.
        label: what is counted.
    """
    if not sys.stderr.isatty() or find_spec("click") is None:
        return no_bars(total, label)
    import click

    shown: Any = click.progressbar(length=total, label=label, file=sys.stderr)
    return cast(AbstractContextManager[Bar], shown)
