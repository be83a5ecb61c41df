"""Pages of lines: shown in place where rich is installed and somebody watches, else one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from sagas.commanding import visible


def shown_live(pages: Iterable[list[str]], say: Callable[[str], Any]) -> None:
    """Show pages of lines, each in place of the one before.

    Args:
        pages: each as soon as it is there.
        say: writes a line, where pages cannot be shown in place.
    """
    if not sys.stdout.isatty() or find_spec("rich") is None:
        for page in pages:
            for line in page:
                say(line)
            say("")
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=True) as live:
        for page in pages:
            live.update(Text("\n".join(map(visible, page)), no_wrap=True, overflow="ellipsis"), refresh=True)
