"""docs/deployment.md: what systemd, Compose and Kubernetes are given is what they take; the commands in it are read in
`test_blocks.py`."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.reading import ROOT, blocks

PAGE: Final = blocks(ROOT / "docs" / "deployment.md")
UNITS: Final = {
    Path(found[1]).name: block.text
    for block in PAGE
    if (found := re.match(r"# (/etc/systemd/\S+\.service)\n", block.text))
}
TREES: Final = [tree for block in PAGE if block.language == "yaml" for tree in yaml.safe_load_all(block.text)]
DEPLOYMENTS: Final = [tree for tree in TREES if "kind" in tree and tree["kind"] != "Job"]
JOBS: Final = [tree for tree in TREES if tree.get("kind") == "Job"]
SERVICES: Final[Sequence[tuple[str, Any]]] = [each for tree in TREES for each in tree.get("services", {}).items()]
LONGEST: Final = 60  # seconds that a step may take unless it says so: what ends it waits for so long


def seconds(given: str | int) -> int:
    """Of `30`, `"30s"`."""
    return int(str(given).removesuffix("s"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT RUN: systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_units(name: str, tmp_path: Path) -> None:
    """Every section, key and value is one that it knows; a wrong one it would ignore with a warning, seen here."""
    for program in ("python", "celery"):
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / "bin" / program).write_text("#!/bin/sh\n")
        (tmp_path / ".venv" / "bin" / program).chmod(0o755)
    assert verified(tmp_path, name, UNITS[name]) == ""
    assert "Restrat" in verified(tmp_path, name, UNITS[name].replace("Restart=", "Restrat=")), "the test has teeth"


def verified(folder: Path, name: str, text: str) -> str:
    """What systemd has to say about a unit, in a folder that stands for /srv/shop."""
    (folder / name).write_text(text.replace("/srv/shop", str(folder)))
    done = subprocess.run(
        ["systemd-analyze", "verify", f"./{name}"], cwd=folder, capture_output=True, text=True, timeout=30
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    return "\n".join(ours)


@pytest.mark.parametrize("tree", DEPLOYMENTS, ids=lambda tree: tree["metadata"]["name"])
def test_a_deployment_is_whole(tree: Mapping[str, Any]) -> None:
    """Its pods are those that it looks for, and every field is one of the API."""
    assert (tree["apiVersion"], tree["kind"]) == ("apps/v1", "Deployment")
    spec, template = tree["spec"], tree["spec"]["template"]
    assert spec["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert set(spec) <= {"replicas", "selector", "template", "strategy", "minReadySeconds"}
    assert set(template["spec"]) <= {"terminationGracePeriodSeconds", "containers", "volumes", "securityContext"}
    check_containers(template["spec"])


def check_containers(pod: Mapping[str, Any]) -> None:
    """Every field is one of the API."""
    for container in pod["containers"]:
        assert {"name", "image", "command"} <= set(container) <= {"name", "image", "command", "args", "env", "envFrom"}


@pytest.mark.parametrize("tree", JOBS, ids=lambda tree: tree["metadata"]["name"])
def test_a_job_is_whole(tree: Mapping[str, Any]) -> None:
    """It ends, and is not begun for ever where it fails."""
    assert (tree["apiVersion"], tree["kind"]) == ("batch/v1", "Job")
    assert set(tree["spec"]) == {"backoffLimit", "template"}
    pod = tree["spec"]["template"]["spec"]
    assert set(pod) == {"restartPolicy", "containers"} and pod["restartPolicy"] in ("Never", "OnFailure")
    check_containers(pod)


def test_services_of_compose_are_whole() -> None:
    """Each has an image and a command in the list form, and no key that Compose does not know."""
    known = {"image", "command", "restart", "stop_grace_period", "depends_on", "environment", "env_file", "ports"}
    assert SERVICES and all({"image", "command"} <= set(it) <= known for _, it in SERVICES)
    assert all(isinstance(it["command"], list) for _, it in SERVICES)


def test_the_wheel_has_the_name_of_this_version() -> None:
    """What `pip wheel` makes is what `requirements.txt` names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    named = {name for block in PAGE for name in re.findall(r"outbox_sagas-([\w.]+)-py3-none-any\.whl", block.text)}
    assert named == {version}


def test_workers_get_the_time_that_a_step_may_take() -> None:
    """Wherever they run, what stops them waits longer than a body may run."""
    assert all(grace > LONGEST for grace in graces("worker")) and len(list(graces("worker"))) == 4


def graces(name: str) -> Iterator[int]:
    """Seconds, by systemd, Compose and Kubernetes."""
    yield from (
        int(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.M)[0]) for unit, text in UNITS.items() if name in unit
    )
    yield from (seconds(it["stop_grace_period"]) for service, it in SERVICES if name in service)
    for tree in DEPLOYMENTS:
        if name in tree["metadata"]["name"]:
            yield tree["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
