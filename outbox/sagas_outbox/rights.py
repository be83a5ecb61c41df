"""What is said where the user of the database lacks a right: that it may not, and which role it needs."""

from __future__ import annotations

from typing import Final

from psycopg.errors import InsufficientPrivilege

LONGEST: Final = 20  # errors that an error was raised from


def denial(problem: BaseException | None) -> str:
    """What Postgres said where it refused something for lack of a right, whoever wrapped it; nothing for other errors.

    Args:
        problem: an error of any driver or framework over psycopg.
    """
    for _ in range(LONGEST):
        if isinstance(problem, InsufficientPrivilege):
            return problem.diag.message_primary or str(problem)
        problem = problem.__cause__ if problem is not None else None
    return ""


def missing(problem: BaseException, role: str) -> str:
    """The same as a message that names the role to grant; nothing for other errors.

    Args:
        problem: an error of any driver or framework over psycopg.
        role: of `sagas roles`.
    """
    said = denial(problem)
    return f"its user of the database may not ({said}): grant it {role}" if said else ""
