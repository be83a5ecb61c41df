"""`python -m tests.matrix` prints the tables of docs/supported.md."""

from __future__ import annotations

from dataclasses import fields

from tests.matrix import Cell, Matrix

LABELS = {
    "python": "Python", "django": "Django", "sqlalchemy": "SQLAlchemy", "celery": "Celery", "postgres": "PostgreSQL",
}  # fmt: skip


def supported(matrix: Matrix) -> str:
    """Each part with its versions."""
    rows = [f"| {LABELS[part]} | {', '.join(versions)} |" for part, versions in matrix.versions.items()]
    return "\n".join(["| | versions tested |", "|---|---|", *rows])


def together(matrix: Matrix) -> str:
    """Each cell."""
    parts = [field.name for field in fields(Cell)]
    rows = ["| " + " | ".join(getattr(cell, part) for part in parts) + " |" for cell in matrix.cells]
    return "\n".join(["| " + " | ".join(LABELS[part] for part in parts) + " |", "|" + "---|" * len(parts), *rows])


def both() -> str:
    """Both tables."""
    matrix = Matrix.read()
    return f"{supported(matrix)}\n\n{together(matrix)}"


if __name__ == "__main__":
    print(both())
