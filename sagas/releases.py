"""Which definitions have been released, kept in a file beside the code, as migrations are.

A saga finishes on the version it was started with, so a released version must not change: its sagas may be under way.
The file holds the fingerprint of each. `sagas definitions --check` fails when the code has another one, and `--release`
writes what is new; the change of the file is reviewed and deployed with the change of the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sagas.definition import Saga
from sagas.errors import ConfigurationError

FILE = "saga_definitions.json"
Released = dict[str, dict[str, str]]  # name -> version -> fingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One definition in which code and file differ."""

    name: str
    version: int
    changed: bool  # False: it is not in the file yet
    message: str


def read(path: Path) -> Released:
    """What has been released; nothing when there is no file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Released)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as problem:
        raise ConfigurationError(f"{path}: released definitions cannot be read: {problem}") from problem


def differences(released: Released, definitions: Iterable[type[Saga[Any]]]) -> Iterator[Difference]:
    """Where the code is not what was released. A version that is gone from the code is none: it may have been drained.

    Args:
        released: what the file says.
        definitions: the classes of this process.
    """
    for each in definitions:
        name, version = each.saga_name, each.saga_version
        known = released.get(name, {}).get(str(version))
        if known is None:
            message = f"{name} version {version} is not in the file of releases; write it there with --release"
            yield Difference(name=name, version=version, changed=False, message=message)
        elif known != each.fingerprint():
            newest = max(map(int, released[name]))
            yield Difference(
                name=name, version=version, changed=True,
                message=f"the steps of {name} version {version} ({each.__module__}.{each.__qualname__}) were changed "
                f"after its release, and its sagas under way would not fit: restore them, and give the changed ones "
                f"version={newest + 1} in a class of its own",
            )  # fmt: skip


def release(path: Path, definitions: Iterable[type[Saga[Any]]]) -> list[Difference]:
    """Add to the file what is new; returns what was added. What is in the file stays as it is.

    Raises:
        ConfigurationError: a released definition was changed; nothing is written then. Or the file cannot be written.
    """
    released, given = read(path), list(definitions)
    found = list(differences(released, given))
    if changed := [each.message for each in found if each.changed]:
        raise ConfigurationError("\n".join(changed))
    fingerprints = {(each.saga_name, each.saga_version): each.fingerprint() for each in given}
    for each in found:
        released.setdefault(each.name, {})[str(each.version)] = fingerprints[each.name, each.version]
    if found:
        text = msgspec.json.format(msgspec.json.encode(released, order="sorted"), indent=2)
        try:
            path.write_bytes(text + b"\n")
        except OSError as problem:
            raise ConfigurationError(f"{path}: released definitions cannot be written: {problem}") from problem
    return found
