"""Telling whether SQL would end the transaction of a local step, or set something in its session.

A step's writes commit together with its log entry. A body that commits by a statement of its own leaves them behind
when the entry is not written, and the step runs twice. Drivers take several statements at once, so that one may stand
behind another, or behind a comment.

What a body sets (a tenant, a role, a time limit, when constraints are looked at), and a temporary table that it makes,
is there for whoever uses the transaction after it, and without LOCAL for whoever uses the connection: those are other
sagas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

COMMENT: Final = (  # Postgres ends a line at a carriage return as well; one comment may stand in another
    r"(?:--[^\n\r]*|/\*(?:[^/*]|/(?!\*)|\*(?!/)|/\*(?:[^/*]|/(?!\*)|\*(?!/))*\*/)*\*/)"
)
GAP: Final = rf"(?:\s|{COMMENT})+"
ENDS: Final = re.compile(
    rf"(?:commit|end|abort|rollback(?!(?:{GAP}(?:work|transaction))?{GAP}to\b)|begin|start{GAP}transaction"
    rf"|prepare{GAP}transaction)\b",
    re.IGNORECASE,
)
MAY_END: Final = re.compile(r"\b(?:commit|end|abort|rollback|begin|start|prepare)\b", re.IGNORECASE)
SETS: Final = re.compile(
    r"(?:set(?!\s+transaction\b)|reset|create\s+(?:or\s+replace\s+)?(?:(?:local|global)\s+)?temp(?:orary)?)\b"
    r"|.*\bset_config\s*\(|.*\binto\s+temp(?:orary)?\b",
    re.IGNORECASE | re.DOTALL,
)
MAY_SET: Final = re.compile(r"(?:\A|[;\n\r/])\s*(?:re)?set\b|\bset_config\b|\btemp(?:orary)?\b", re.IGNORECASE)
PASSES: Final = re.compile(r"set\s+(?:local|constraints)\b|create\b.*\bon\s+commit\s+drop\b", re.IGNORECASE | re.DOTALL)
CALLS: Final = re.compile(r"\bset_config\s*\(", re.IGNORECASE)
PASSING: Final = re.compile(r",\s*true\s*\)", re.IGNORECASE)  # its third argument
COMMENTS: Final = re.compile(rf"\A{GAP}")
TOKEN: Final = re.compile(
    rf"""{COMMENT}|\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"[^"]*"|(?<![\w$])(\$(?:[^\W\d]\w*)?\$).*?\1|;""",
    re.DOTALL,
)


def statements(sql: str) -> Iterator[str]:
    """The statements of a script, without comments before them; quoted text and function bodies stay whole."""
    begin = 0
    for token in TOKEN.finditer(sql):
        if token[0] == ";":
            yield COMMENTS.sub("", sql[begin : token.start()]).rstrip()
            begin = token.end()
    if rest := COMMENTS.sub("", sql[begin:]).rstrip():
        yield rest


def ending(sql: str) -> str | None:
    """The statement of a script that would end the transaction, shortened to 60 characters; None: there is none."""
    if not MAY_END.search(sql):  # nearly always
        return None
    return next((each[:60] for each in statements(sql) if ENDS.match(each)), None)


def setting(sql: str) -> str | None:
    """The statement of a script that sets something in the session, for good if one does; None: there is none."""
    if not MAY_SET.search(sql):  # nearly always
        return None
    found = [each for each in statements(sql) if SETS.match(each)]
    return next(filter(outlasts, found), found[0] if found else None)


def outlasts(statement: str) -> bool:
    """Whether what such a statement sets may hold when the transaction has ended."""
    if calls := len(CALLS.findall(statement)):
        return calls > len(PASSING.findall(statement))
    return not PASSES.match(statement)
