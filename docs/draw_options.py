"""Draws the tables of options in `steps.md` from signatures and docstrings: `python docs/draw_options.py`. A test
compares them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_overloads

import sagas
from sagas import Retry, Saga, child_saga, external_step, semantic_lock, sleep, sleep_until, step, wait_for
from sagas.each import COLLECT, FAIL
from sagas.options import UNSAID
from sagas.step import Step

PAGE = Path(__file__).parent / "steps.md"
BEGIN = (
    "<!-- {name}: written by `docs/draw_options.py` from signatures and docstrings; a test compares. Do not edit. -->\n"
)
END = "<!-- end -->\n"
WORDS = {  # what is said of each annotation; one that is new gets a line here
    "Retry": "`Retry`", "Duration": "seconds or timedelta", "str": "text", "int": "whole number", "float": "number",
    "bool": "True or False", "None": "None", "object": "any", "Any": "any", "I": "input", "datetime": "aware datetime",
    "timedelta": "timedelta", "OnUnknown": "PARK or COMPENSATE", "OnTimeout": "SKIP", "OnExisting": "`OnExisting`",
    "SemanticLock": "`semantic_lock(...)`", "Tolerate": "FAIL, COLLECT or `tolerate(n)`", "Unsaid": "",
    "Sequence[Step[Any, Any]]": "list of steps", "After": "list of steps or None", "type[R]": "type",
    "type[Saga[I]]": "Saga class", "Step[Any, R]": "step", "tuple[type[Exception], ...]": "tuple of exceptions",
    "Subjects": "text or function of the saga", "Mapping[str, str]": "dict of texts",
}  # fmt: skip


def tables() -> Mapping[str, Iterator[str]]:
    """Every table by its name."""
    local, (plain, each) = _overload(step, 1), get_overloads(external_step)[2:]
    outside, items = inspect.signature(plain), inspect.signature(each)
    return {
        "steps": _steps(inspect.signature(local), outside, items),
        "compensate": _rows(inspect.signature(_overload(Step.compensate, 1)), Step.compensate),
        "wait_for": _rows(inspect.signature(wait_for), wait_for),
        "sleep": _rows(inspect.signature(sleep), sleep),
        "sleep_until": _rows(inspect.signature(sleep_until), sleep_until),
        "child_saga": _rows(_child(), child_saga),
        "semantic_lock": _rows(inspect.signature(semantic_lock), semantic_lock),
        "Retry": _rows(inspect.signature(Retry), Retry),
        "start": _rows(inspect.signature(Saga.start), Saga.start),
    }


def _child() -> inspect.Signature:
    """Of one with a result, which need not have one."""
    found = inspect.signature(_overload(child_saga, 0))
    parameters = found.parameters | {"result": found.parameters["result"].replace(default=None)}
    return found.replace(parameters=list(parameters.values()))


def _overload(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    return get_overloads(function)[number]


def _steps(local: inspect.Signature, outside: inspect.Signature, items: inspect.Signature) -> Iterator[str]:
    yield from ("| option | of | type | default | what it says |", "|---|---|---|---|---|")
    texts = _texts(external_step)
    for name, parameter in (outside.parameters | items.parameters).items():
        of = "both" if name in local.parameters else "external" if name in outside.parameters else "`for_each`"
        yield f"| `{name}` | {of} | {_type(parameter)} | {_default(parameter)} | {texts[name]} |"
    assert local.parameters.keys() <= outside.parameters.keys(), "an option that only local steps have needs a row"


def _rows(signature: inspect.Signature, documented: Any) -> Iterator[str]:
    yield from ("| argument | type | default | what it says |", "|---|---|---|---|")
    texts = _texts(documented)
    for name, parameter in signature.parameters.items():
        if name not in ("self", "cls"):
            yield f"| `{name}` | {_type(parameter)} | {_default(parameter)} | {texts[name]} |"


def _type(parameter: inspect.Parameter) -> str:
    parts = [_word(each) for each in re.split(r" \| (?![^\[]*\])", str(parameter.annotation))]
    return " or ".join(filter(None, parts)).replace(" or or ", " or ")


def _word(annotation: str) -> str:
    if annotation.startswith(("Callable[[Any]", "Callable[[S")):
        return "function of the saga"
    return WORDS[annotation]


def _default(parameter: inspect.Parameter) -> str:
    found = parameter.default
    names = {id(FAIL): "FAIL", id(COLLECT): "COLLECT", id(UNSAID): ""}
    if found is parameter.empty or found is UNSAID:
        return "required" if found is parameter.empty else ""
    if id(found) in names:
        return f"`{names[id(found)]}`"
    if isinstance(found, Enum):  # what has no short name is said in full
        short = hasattr(sagas, found.name)
        return f"`{found.name}`" if short else f"`{type(found).__name__}.{found.name}`"
    return f"`{found:,}`".replace(",", "_") if isinstance(found, int) and found > 9999 else f"`{found!r}`"


def _texts(documented: Any) -> Mapping[str, str]:
    """What a docstring says of each argument, in a line."""
    _, _, rest = inspect.getdoc(documented).partition("Args:\n")  # type: ignore[union-attr]
    found: dict[str, list[str]] = {}
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        if begun := re.match(r" {4}(\w+): (.*)", line):
            found[begun[1]] = [begun[2]]
        elif line.strip() and found:
            found[next(reversed(found))].append(line.strip())
    return {name: " ".join(lines).removesuffix(".").replace("|", "\\|") for name, lines in found.items()}


def drawn(text: str) -> str:
    """The page with new tables."""
    for name, rows in tables().items():
        begin = BEGIN.format(name=name)
        before, marker, rest = text.partition(begin)
        assert marker, f"the page has no place for the table {name}: {begin}"
        _, _, after = rest.partition(END)
        text = "\n".join([before + begin, *rows, "", END]) + after
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
    sys.stdout.write(f"{PAGE} is written\n")
