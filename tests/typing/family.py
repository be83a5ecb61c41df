"""How users write sagas with children, checked by type checkers only. See `api.py`."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

from sagas import COLLECT, Saga, StepRun, child_saga, external_step, tolerate


class Kid(Saga[int], name="typing.kid", version=1):
    @external_step(compensate=None)
    def act(self) -> str:
        return ""


class Parent(Saga[int], name="typing.parent", version=1):
    kid = child_saga(Kid, input=lambda self: 1, result=Kid.act)
    silent = child_saga(Kid, input=lambda self: 1)

    @external_step(for_each=lambda self: [1, 2], compensate=None, on_failure=COLLECT)
    def each(self, item: int) -> str:
        return str(item)

    @external_step(for_each=lambda self: [1, 2], concurrency=5, max_items=10, on_failure=tolerate(1))
    async def other(self, item: int) -> bytes:
        return b""

    @other.compensate
    def back(self, item: int, result: bytes) -> None: ...

    @external_step(compensate=None)
    def last(self) -> int:
        assert_type(self.kid, StepRun[str])
        assert_type(self.kid.result, str)
        assert_type(self.silent.result, None)
        assert_type(self.each.result, list[str])
        assert_type(self.other.result, list[bytes])
        return 1
