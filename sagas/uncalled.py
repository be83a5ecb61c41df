"""Steps and compensations are declared; when they run is not the caller's to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sagas.errors import SagaError


class Uncalled:
    """What looks like a method in a class body, and cannot be called. Type checkers are not told that it could be."""

    do_not_call_in_templates = True  # of Django, which calls what can be called

    def _named(self) -> str:
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __call__(self, *_: object, **__: object) -> NoReturn:
            raise SagaError(
                f"{self._named()} is not called by hand, it runs when its turn comes; read what a step returned by "
                f"self.<step>.result, and put what several bodies do into a function outside of the class"
            )
