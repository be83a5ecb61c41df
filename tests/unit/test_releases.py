"""The file of released definitions: what was released may not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagas import ConfigurationError, Saga, step
from sagas.releases import differences, read, release


def definition(version: int = 1, *, more: bool = False) -> type[Saga[None]]:
    if more:

        class Changed(Saga[None], name=f"test.released{version}", version=version):
            @step(compensate=None)
            def one(self) -> None: ...

            @step(compensate=None)
            def two(self) -> None: ...

        return Changed

    class Released(Saga[None], name=f"test.released{version}", version=version):
        @step(compensate=None)
        def one(self) -> None: ...

    return Released


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    from sagas.registry import registry

    monkeypatch.setattr(registry, "_sagas", {})


def test_what_is_new_is_written_once(tmp_path: Path) -> None:
    """A second release of the same code changes nothing."""
    path, one = tmp_path / "saga_definitions.json", definition()
    assert [each.version for each in differences(read(path), [one])] == [1]
    assert [each.name for each in release(path, [one])] == ["test.released1"]
    before = path.read_bytes()
    assert release(path, [one]) == []
    assert path.read_bytes() == before
    assert list(differences(read(path), [one])) == []


def test_a_change_of_what_was_released_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the class and the version to use; the file stays as it is."""
    from sagas.registry import registry

    path = tmp_path / "saga_definitions.json"
    release(path, [definition()])
    before = path.read_bytes()
    monkeypatch.setattr(registry, "_sagas", {})
    changed = definition(more=True)
    (found,) = differences(read(path), [changed])
    assert found.changed
    assert "Changed" in found.message
    assert "version=2" in found.message
    with pytest.raises(ConfigurationError, match="version=2"):
        release(path, [changed])
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """It names the file."""
    path = tmp_path / "saga_definitions.json"
    path.write_text("{")
    with pytest.raises(ConfigurationError, match="saga_definitions"):
        read(path)
