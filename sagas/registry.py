"""Which sagas this process knows, by name and version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sagas.errors import DefinitionError, UnknownSaga

if TYPE_CHECKING:
    from sagas.definition import Saga


class Registry:
    """Saga classes by name and version. A class enters when it is created."""

    def __init__(self) -> None:
        self._sagas: dict[tuple[str, int], type[Saga[Any]]] = {}

    def add(self, saga: type[Saga[Any]]) -> None:
        """Enter a class.

        Raises:
            DefinitionError: another class has its name and version.
        """
        place = (saga.saga_name, saga.saga_version)
        known = self._sagas.get(place)
        if known is not None and _address(known) != _address(saga):  # the same address: the module was reloaded
            raise DefinitionError(
                f"{_address(saga)}: name={place[0]!r}, version={place[1]} is taken by {_address(known)}; "
                f"use another name, or version={self.latest(place[0]).saga_version + 1} if it replaces that one "
                f"(if both are one file, it is imported under two module names: use one of them)"
            )
        self._sagas[place] = saga

    def get(self, name: str, version: int) -> type[Saga[Any]]:
        """The class of a name and version.

        Raises:
            UnknownSaga: none is registered; the message lists the versions that are.
        """
        try:
            return self._sagas[name, version]
        except KeyError:
            raise UnknownSaga(self._unknown(name, version)) from None

    def latest(self, name: str) -> type[Saga[Any]]:
        """The class with the highest version of a name.

        Raises:
            UnknownSaga: no version is registered.
        """
        versions = self.versions(name)
        if not versions:
            raise UnknownSaga(self._unknown(name, None))
        return self._sagas[name, versions[-1]]

    def versions(self, name: str) -> list[int]:
        """Registered versions of a name, in order."""
        return sorted(version for known, version in self._sagas if known == name)

    def definitions(self) -> Iterator[type[Saga[Any]]]:
        """All registered classes, by name and version."""
        return iter([self._sagas[place] for place in sorted(self._sagas)])

    def queues(self) -> set[str]:
        """The queues that steps and compensations of registered classes are in."""
        steps = [step for saga in self.definitions() for step in saga.plan.steps]
        return {step.queue for step in steps} | {step.undo.queue for step in steps if step.undo}

    def load(self) -> None:
        """Resolve what was named late and finish the checks of every class. Call it once all modules are imported.

        Raises:
            DefinitionError: for all problems of all classes at once.
        """
        problems: list[str] = []
        for saga in self.definitions():
            try:
                saga._complete()
            except DefinitionError as problem:
                problems.extend(problem.problems)
        if problems:
            raise DefinitionError("\n".join(problems), problems=problems)

    def _unknown(self, name: str, version: int | None) -> str:
        wanted = f"saga {name!r}" if version is None else f"saga {name!r} version {version}"
        versions = self.versions(name)
        if versions:
            known = ", ".join(map(str, versions))
            return (
                f"{wanted} is not registered in this process, only version {known}: deploy the code that has it, "
                f"and keep old versions until their sagas are finished"
            )
        return (
            f"{wanted} is not registered in this process: import the module that defines it before the worker starts "
            f"(SQLAlchemy: name it in Sagas(modules=[...]), Django finds modules named sagas.py in installed apps by "
            f"itself)"
        )


def _address(saga: type[Saga[Any]]) -> str:
    return f"{saga.__module__}.{saga.__qualname__}"


registry = Registry()
