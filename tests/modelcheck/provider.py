"""The other side: a service in which the effects of steps happen, and what it offers those who call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.modelcheck.value import Value

UNKNOWN: Final = -1  # an undo is asked for without the result of the step
CLOSED: Final = -2  # the answer of a provider that had been told to let no request under this key through
NOTHING: Final = -3  # there is no result
SHARE: Final = 8  # more than an effect can have happened


class Provider(Value, frozen=True):
    """What a service offers. Whatever it offers, undoing the same effect twice undoes it once."""

    keys: bool = True  # requests under one idempotency key are one effect, and get one answer
    tombstones: bool = True  # an undo without a result also stops requests under that key that arrive later
    resolve: bool = True  # it can be asked what became of the requests under one key
    forgets: bool = False  # keys, once `key_ttl` has passed

    def __str__(self) -> str:
        offers = [name for name in self.__struct_fields__ if getattr(self, name)]
        return ", ".join(offers) or "nothing"


EVERYTHING: Final = Provider()


class Effect(Value, frozen=True):
    """What has happened at the provider (or, of a local step, in our database) for one step of one saga."""

    stands: tuple[bool, ...] = ()  # each effect that happened, in order: False once it was undone
    tombstone: bool = False
    undone: tuple[int, ...] = ()  # generations of the undo key that were seen
    forgotten: int = 0  # effects whose key the provider does not know any more
    bodies: int = 0  # bodies of the step that were run
    retired: bool = False  # the step was redone under another key

    @property
    def net(self) -> int:
        """How often the effect stands."""
        return sum(self.stands)


def do(provider: Provider, effect: Effect) -> tuple[Effect, int]:
    """A request for the step arrives; returns the answer: which effect it was, or CLOSED."""
    if provider.keys and len(effect.stands) > effect.forgotten:
        return effect, effect.forgotten
    if effect.tombstone:
        return effect, CLOSED
    return effect.but(stands=(*effect.stands, True)), len(effect.stands)


def undo(provider: Provider, effect: Effect, argument: int, generation: int) -> Effect:
    """A request to undo arrives, with the result of the step or UNKNOWN. It is idempotent per effect."""
    if provider.keys and generation in effect.undone:
        return effect  # the answer of the first request under this key is given again
    stands = tuple(stood and argument not in (UNKNOWN, which) for which, stood in enumerate(effect.stands))
    undone = tuple(sorted({*effect.undone, generation}))
    tombstone = effect.tombstone or (provider.tombstones and argument == UNKNOWN)
    return effect.but(stands=stands, tombstone=tombstone, undone=undone)


def ask(effect: Effect) -> int:
    """What `resolve` finds: an effect that stands, else one that was undone, else NOTHING."""
    standing = [which for which, stood in enumerate(effect.stands) if stood]
    return standing[0] if standing else 0 if effect.stands else NOTHING


def ask_all(effects: list[Effect]) -> int | None:
    """What `resolve` finds about several effects of one step; None: some happened and some did not."""
    found = [ask(effect) for effect in effects]
    if all(each == NOTHING for each in found):
        return NOTHING
    return None if NOTHING in found else together(found)


def together(answers: Sequence[int]) -> int:
    """The result of a step that returns the answers of several effects."""
    return sum(answer * SHARE**place for place, answer in enumerate(answers))


def share(argument: int, place: int) -> int:
    """What an undo is told about one of several effects."""
    return argument if argument < 0 else argument // SHARE**place % SHARE


def ask_undone(effect: Effect) -> int:
    """What the `resolve` of a compensation finds: 0 where the undo has happened, else NOTHING."""
    return 0 if 0 in effect.undone else NOTHING
