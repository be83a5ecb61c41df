"""What `sagas init` looks for in a SQLAlchemy application."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sagas.plugging import SAGA, Finding

BASE = re.compile(r"^class (\w+)\([^)]*\bDeclarativeBase\b|^(\w+)\s*=\s*declarative_base\(", re.MULTILINE)
ENGINE = re.compile(r"^(\w+)\s*=\s*(?:create_engine|create_async_engine)\(", re.MULTILINE)
FACTORY = (  # of sessions on an engine
    r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*(?:(?:async_)?scoped_session\(\s*)?(?:async_)?sessionmaker(?:\[[^\n(]*\])?"
    r"\([^()]*\b{engine}\b"
)
TABLES = re.compile(r"^\s*(?:\w+\s*=\s*)?sagas_tables\(", re.MULTILINE)
RUNTIME = re.compile(r"^(\w+)\s*=\s*Sagas\(", re.MULTILINE)
SCHEMAS = [  # of our tables: as it is said for them, or for the runtime
    re.compile(rf"^(?:\w+\s*=\s*)?{call}\([^()]*?\bschema\s*=\s*([^,)\s]+)", re.MULTILINE)
    for call in ("sagas_tables", "Sagas")
]
OF_ALL = re.compile(r"\bMetaData\([^()]*?\bschema\s*=\s*([^,)\s]+)")
REVISION = re.compile(r"^revision\b.*?=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
DOWN = re.compile(r"^down_revision\b.*?=\s*(.+)$", re.MULTILINE)
LEFT_OUT = {"tests", "test", "venv", "env", "node_modules", "build", "dist"}
MOST_FILES = 2000

RUNTIME_LINES = """from sagas_sqlalchemy import Sagas
from {base_module} import {base}

sagas = Sagas({source}, metadata={base}.metadata, modules=["{package}.sagas"])
"""
RUNTIME_FILE = """from {engine_module} import {source}
"""
START = 'PlaceOrder.start(Placed(7), key="order-7", using=session)'
ASYNC_START = 'await PlaceOrder.astart(Placed(7), key="order-7", using=session)'
MIGRATION = '''"""The tables of sagas."""

from alembic import op

from sagas_sqlalchemy.alembic import downgrade as sagas_downgrade
from sagas_sqlalchemy.alembic import upgrade as sagas_upgrade

revision = "sagas_1"
down_revision = {down}


def upgrade() -> None:
    sagas_upgrade(op, to=1{schema})


def downgrade() -> None:
    sagas_downgrade(op, to=0{schema})
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something was found."""

    name: str
    file: Path
    module: str


def look(folder: Path) -> Iterator[Finding]:
    """Everything that an application has to have but the tables in its database, in the order in which to add it.

    Args:
        folder: where the application's packages are.
    """
    base, engine = _find(folder, BASE), _find(folder, ENGINE)
    yield Finding(
        what="a declarative base", there=base is not None,
        remedy="Nothing here subclasses DeclarativeBase: run this where your packages are, or see docs/sqlalchemy.md.",
    )  # fmt: skip
    yield Finding(
        what="an engine", there=engine is not None,
        remedy="No module here says `engine = create_engine(...)`, or create_async_engine: make one.",
    )  # fmt: skip
    if base is None or engine is None:
        return
    yield Finding(
        what="sagas_tables(...) on its metadata", there=_find(folder, TABLES) is not None, file=base.file,
        lines=f"from sagas_sqlalchemy import sagas_tables\n\nsagas_tables({base.name}.metadata)",
    )  # fmt: skip
    package = engine.module.rpartition(".")[0] or engine.module
    yield _runtime(folder, base, engine, package)
    there = any(path.name == "sagas.py" for path in _sources(folder))
    file = engine.file.parent / "sagas.py"
    yield Finding(what="a module sagas.py", there=there, file=file, lines=_saga(engine, package))
    yield from _alembic(folder, base)


def _saga(engine: Place, package: str) -> str:
    """A first saga, and how it is started on such an engine."""
    asynchronous = re.search(rf"^{engine.name}\s*=\s*create_async_engine\(", engine.file.read_text(), re.MULTILINE)
    return SAGA.format(package=package, start=ASYNC_START if asynchronous else START)


def runtime_of(folder: Path) -> str | None:
    """What `--app` would be, found in the sources; None: there is none."""
    found = _find(folder, RUNTIME)
    return f"{found.module}:{found.name}" if found else None


def _runtime(folder: Path, base: Place, engine: Place, package: str) -> Finding:
    """The runtime is made where the engine is, unless that would import in a circle."""
    source = _sessions(engine) or engine.name
    lines = RUNTIME_LINES.format(base_module=base.module, base=base.name, source=source, package=package)
    file = engine.file
    if base.file == engine.file:
        lines = lines.replace(f"from {base.module} import {base.name}\n", "")
    elif re.search(rf"^(from|import) {re.escape(engine.module)}\b", base.file.read_text(), re.MULTILINE):
        file = engine.file.parent / "saga_runtime.py"
        lines = RUNTIME_FILE.format(engine_module=engine.module, source=source) + lines
    return Finding(what=f"a runtime, Sagas({source})", there=runtime_of(folder) is not None, file=file, lines=lines)


def _sessions(engine: Place) -> str | None:
    """The session factory beside the engine, if there is one: local steps get sessions with its options."""
    found = re.search(FACTORY.format(engine=re.escape(engine.name)), engine.file.read_text(), re.MULTILINE)
    return found[1] if found else None


def _alembic(folder: Path, base: Place) -> Iterator[Finding]:
    """A revision that makes the tables, and an env.py that leaves them alone."""
    scripts = _scripts(folder)
    if scripts is None:
        return
    yield from _revision(scripts, _schema(folder, base))
    env = scripts / "env.py"
    yield Finding(
        what="include_object in env.py", there=env.exists() and "sagas_sqlalchemy" in env.read_text(),
        remedy=f"In {env}: `from sagas_sqlalchemy.alembic import include_object`, and pass\n"
        "`include_object=include_object` to each context.configure(...); else autogenerate makes our tables again.",
    )  # fmt: skip


def _revision(scripts: Path, schema: str | None) -> Iterator[Finding]:
    """A revision of ours, with the schema that the tables have in the sources."""
    versions = _versions(scripts)
    ours = [text for text in versions if _makes_tables(text)]
    said = "" if schema is None else f", schema={schema}"
    literal = schema is None or schema[0] in "\"'"
    yield Finding(
        what="a revision that makes the tables", there=bool(ours),
        file=scripts / "versions" / "sagas_1.py" if literal else None,
        lines=MIGRATION.format(down=_head(versions), schema=said),
        remedy="" if literal else f"The schema of the tables is {schema}, which the revision has to import.",
    )  # fmt: skip
    if ours and said and not any("schema" in text for text in ours):
        yield Finding(
            what=f"schema={schema} in that revision, as in the sources", there=False,
            remedy=f"Write sagas_upgrade(op, to=1{said}) and sagas_downgrade(op, to=0{said}). If it was applied as it\n"
            "is, run `alembic downgrade` to before it first: the tables are in another schema.",
        )  # fmt: skip


def has_revision(folder: Path) -> bool:
    """Whether the project has a revision that makes our tables, applied or not."""
    scripts = _scripts(folder)
    return scripts is not None and any(map(_makes_tables, _versions(scripts)))


def _scripts(folder: Path) -> Path | None:
    """Where Alembic's scripts are; None: the project has no Alembic. What pyproject.toml says comes first, as there."""
    ini, project = folder / "alembic.ini", folder / "pyproject.toml"
    options = tomllib.loads(project.read_text()).get("tool", {}).get("alembic") if project.exists() else None
    if options is None and not ini.exists():
        return None
    parser = configparser.RawConfigParser()
    parser.read(ini)
    found = (options or {}).get("script_location") or parser.get("alembic", "script_location", fallback="alembic")
    return folder / str(found).replace("%(here)s", str(folder))


def _versions(scripts: Path) -> list[str]:
    return [path.read_text() for path in sorted((scripts / "versions").glob("*.py"))]


def _makes_tables(text: str) -> bool:
    return "sagas_upgrade" in text or "sagas_sqlalchemy" in text


def _schema(folder: Path, base: Place) -> str | None:
    """The schema of our tables as Python that is written in the sources; None: it is not said."""
    for pattern in SCHEMAS:
        if found := _find(folder, pattern):
            return found.name
    of_all = OF_ALL.search(base.file.read_text())
    return of_all[1] if of_all else None


def _head(versions: list[str]) -> str:
    """The revision that nobody comes after, as Python."""
    down = " ".join(found[1] for text in versions if (found := DOWN.search(text)))
    heads = [found[1] for text in versions if (found := REVISION.search(text)) and f"{found[1]}" not in down]
    return repr(heads[0]) if len(heads) == 1 else "None  # your latest revision"


def _find(folder: Path, pattern: re.Pattern[str]) -> Place | None:
    for path in _sources(folder):
        found = pattern.search(path.read_text(errors="replace"))
        if found:
            name = next((group for group in found.groups() if group), "")
            parts = path.relative_to(folder).with_suffix("").parts
            module = ".".join(parts[1:] if parts[0] == "src" else parts).removesuffix(".__init__")
            return Place(name=name, file=path, module=module)
    return None


def _sources(folder: Path) -> Iterator[Path]:
    """Modules of the project itself: an environment in its folder has thousands of others, and is not even entered."""
    return islice(_walk(folder), MOST_FILES)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in LEFT_OUT or path.is_symlink():
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from _walk(path)
        elif path.suffix == ".py":
            yield path
