"""Looking at every page of the admin as a browser would, and at what all tables hold meanwhile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import psycopg
from django.test import Client

TAG = "evil-tag"  # lower case, as a parser gives it
EVIL = f"""'"><{TAG} onclick=evil()></{TAG}><script>evil()</script>&lt;{{{{ 7*7 }}}}"""
ELSEWHERE = "https://evil.example/"
NOT_OURS = ("django_session", "django_migrations")  # a look renews the session


class Page(HTMLParser):
    """What a browser makes of a page: its tags, links and forms."""

    def __init__(self, url: str, html: str) -> None:
        super().__init__()
        self.url, self.links, self.harm = url, set[str](), list[str]()
        self.forms: list[tuple[str, dict[str, list[str]]]] = []
        self._script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._script = tag == "script"
        if tag == TAG or any(name.startswith("on") and "evil" in value for name, value in given.items()):
            self.harm.append(f"<{tag} {given}>")
        for name in ("href", "src", "action", "formaction"):
            target = given.get(name, "").strip()
            if target.lower().startswith(("javascript:", "data:text")) or target.startswith((ELSEWHERE, "//evil")):
                self.harm.append(f"<{tag} {name}={target}>")
        if tag == "a" and given.get("href"):
            self.links.add(urljoin(self.url, given["href"]).partition("#")[0])
        if tag == "form" and given.get("method", "").lower() == "post":
            self.forms.append((urljoin(self.url, given.get("action", "")) or self.url, {}))
        if tag in ("input", "textarea", "button") and given.get("name") and self.forms:
            self.forms[-1][1].setdefault(given["name"], []).append(given.get("value", ""))

    def handle_data(self, data: str) -> None:
        if self._script and "evil()" in data:
            self.harm.append(f"<script>{data[:80]}")

    def handle_endtag(self, tag: str) -> None:
        self._script = self._script and tag != "script"


def sort_of(url: str) -> str:
    """A URL without the values that it carries."""
    address = urlsplit(url)
    path = re.sub(r"/(sagas/\w+)/[^/]+/(change|delete|history|signal|redo|decide)/", r"/\1/*/\2/", address.path)
    return f"{path}?{','.join(sorted(parse_qs(address.query, keep_blank_values=True)))}"


@dataclass
class Crawl:
    """Everything that can be reached from a page by links."""

    client: Client
    inside: tuple[str, ...]  # beginnings of paths that are followed
    seen: dict[str, Page] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    sorts: Counter[str] = field(default_factory=Counter)
    redirects: dict[str, str] = field(default_factory=dict)

    def visit(self, *urls: str, follow: int = 1) -> None:
        """GET these pages, and so many of each sort that they lead to: links that differ by a key or a value only."""
        waiting, wanted = list(urls), set(urls)
        while waiting:
            url = waiting.pop()
            if url in self.answers or (url not in wanted and self.sorts[sort_of(url)] >= follow):
                continue
            self.sorts[sort_of(url)] += 1
            answer: Any = self.client.get(url)
            self.answers[url] = answer.status_code
            if answer.status_code in (301, 302):
                self.redirects[url] = answer["Location"]
            elif answer.get("Content-Type", "").startswith("text/html"):
                page = self.seen[url] = Page(url, answer.content.decode())
                waiting += [link for link in page.links if link.startswith(self.inside)]


def contents(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """A fingerprint of what is in each table."""

    def tables() -> Iterator[str]:
        for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'"):
            if name not in NOT_OURS:
                yield name

    return {
        name: str(connection.execute(f"select md5(string_agg(t::text, ',' order by t::text)) from {name} t").fetchone())
        for name in list(tables())
    }
