"""The code on the page about payloads works as it stands there."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

from sagas.codec import check_type
from sagas.payloads import Payloads, shown

PAGE = Path(__file__).parents[2] / "docs" / "payloads.md"


def run_blocks() -> dict[str, Any]:
    module = ModuleType("docs_payloads")  # dataclasses look their module up
    sys.modules[module.__name__] = module
    names = vars(module)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    return names


def test_the_codecs_seal_and_open() -> None:
    """Encrypted, compressed, and the one after the other."""
    names = run_blocks()
    payment = names["Payment"]
    value = payment(card="4111", amount=Decimal("1.10"))
    encrypted, compressed = names["payload_codec"], names["Compressed"]()
    stored = Payloads([encrypted]).store(value, payment, limit=1000, what="input")
    assert b"4111" not in stored
    for payloads in (Payloads([encrypted]), Payloads([compressed, encrypted])):
        assert payloads.read(stored, payment, what="input") == value
    stored = Payloads([compressed]).store(value, payment, limit=1000, what="input")
    assert Payloads([encrypted, compressed]).read(stored, payment, what="input") == value


def test_the_sensitive_field_is_not_shown() -> None:
    """The marked field is masked, the other one is not."""
    payment = run_blocks()["Payment"]
    check_type(payment)
    stored = Payloads().store(payment(card="4111", amount=Decimal("1.10")), payment, limit=1000, what="input")
    assert shown(stored) == '{"card":"***","amount":"1.10"}'
