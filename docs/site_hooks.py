"""Hooks of `mkdocs build`: the navigation is that of `index.md`, pages from the root of the project join the site, and
links that lead out of `docs/` follow.

On GitHub and in an editor the same files are read as they are, so links there are relative to the files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
JOINING = {
    "README.md": "about.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
SCHEMA = ROOT / "sagas" / "store" / "schema"
TABLE = re.compile(r"^create table (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(
    r"^    (?!constraint|check)(\w+) ([\w ]+?(?:\[\])?)(?= not null| default| constraint|,|$)([^,]*),?(?: -- (.*))?$"
)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#:]*)(?P<anchor>#[^)\s]*)?\)")
FENCES = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """The navigation is what `index.md` lists, in its order."""
    config.nav = navigation((ROOT / "docs" / "index.md").read_text())
    return config


def navigation(index: str) -> list[dict[str, list[str]]]:
    """Headings, and the pages under them."""
    parts: list[dict[str, list[str]]] = [{"Start": ["index.md", JOINING["README.md"]]}]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        pages = re.findall(r"^\| \[[^\]]+\]\(([^)#]+)\)", body, re.MULTILINE)
        parts.append({title.strip(): [JOINING.get(page.removeprefix("../"), page) for page in pages]})
    return parts


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from the root."""
    for name, joined in JOINING.items():
        files.append(File.generated(config, joined, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site; what is no page of it is named, and not linked."""
    if page.file.src_uri == "sql-schema.md":
        markdown = markdown.replace("<!-- columns -->", "\n".join(columns(schema())))
    from_root = page.file.src_uri in JOINING.values()
    parts = FENCES.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(_follow(from_root), part) for part in parts)


def _follow(from_root: bool) -> Any:
    def follow(found: re.Match[str]) -> str:
        target = found["target"]
        path = target if from_root else target.removeprefix("../") if target.startswith("../") else f"docs/{target}"
        if not target or path.startswith("http"):
            return found[0]
        if path in JOINING:
            inside = JOINING[path]
        elif path.startswith("docs/"):
            inside = path.removeprefix("docs/")
        else:
            return found["text"]  # a source file, the licence
        return f"{found['image']}[{found['text']}]({inside}{found['anchor'] or ''})"

    return follow


def schema() -> str:
    """All files that make tables, the first one first."""
    return "\n".join(
        path.read_text() for path in sorted(SCHEMA.glob("*.sql"), key=lambda path: "initial" not in path.name)
    )


def columns(schema: str) -> list[str]:
    """A table of Markdown for each table of the schema."""
    lines: list[str] = []
    for name, body in TABLE.findall(schema):
        lines += [f"### {name}", "", "| column | type | null | meaning |", "|---|---|---|---|"]
        for line in body.splitlines():
            found = COLUMN.match(line.partition("  --")[0])
            if found:
                null = "" if "not null" in found[3] else "null"
                lines.append(f"| `{found[1]}` | {found[2]} | {null} | {found[4] or ''} |")
        lines.append("")
    return lines
