"""Answers in place of bodies: what the other side is to say, for as long as one test lasts.

`answers(PlaceOrder).charge` stands for what the class calls `charge`: a step, a compensation, or a function that
resolves. From then on its calls are recorded; it is answered as told, or, as long as nothing is told, runs for real.
Answers are given in the order in which they were told, and the last one is repeated.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from sagas import codec, errors
from sagas.definition import Saga
from sagas.outcome import NOT_DONE
from sagas.step import BELONGS_TO, Step, Undo

SagaClass = type[Saga[Any]]
Body = Callable[..., Any]

IN_PLACE_OF = "__sagas_in_place_of__"  # attribute of what replaces a body

_replaced = ExitStack()
_answers: dict[SagaClass, Answers] = {}


class WrongAnswer(errors.SagaError):
    """An answer of a test does not fit the saga."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a body."""

    saga_id: UUID
    key: str | None
    input: Any  # of the saga
    idempotency_key: str
    attempt: int
    argument: Any = None  # of a compensation: the step's result


@dataclass(slots=True)
class _Told:
    act: Body
    times: int | None  # None: once, or for ever if it is the last


class Answer:
    """What one function of a saga class answers.

    Args:
        label: how messages name it.
        check: raises WrongAnswer for a value that it cannot return.
        resolves: whether it is asked what became of an attempt.
        resolver: where its own `resolve` is found, if it has one.
        undo: where its compensation is found, if it has one.
    """

    def __init__(
        self,
        label: str,
        *,
        check: Callable[[Any], None],
        resolves: bool = False,
        resolver: Callable[[], Answer] | None = None,
        undo: Callable[[], Answer] | None = None,
    ) -> None:
        self._label, self._check, self._resolves = label, check, resolves
        self._resolver, self._undo = resolver, undo
        self._told: list[_Told] = []
        self.calls: list[Call] = []

    def returns(self, value: Any = None, *, times: int | None = None) -> Answer:
        """Return a value.

        Args:
            value: of the type that the function is declared to return.
            times: how many calls in a row; None: one, or all that come if nothing follows.

        Raises:
            WrongAnswer: the value is of another type, or cannot be stored.
        """
        self._check(value)
        return self._tell(lambda *_: value, times)

    def raises(self, error: BaseException | type[BaseException], *, times: int | None = None) -> Answer:
        """Raise an error: of an external step nobody knows then whether it happened."""
        if not isinstance(error, BaseException) and not (isinstance(error, type) and issubclass(error, BaseException)):
            raise WrongAnswer(f"{self._label}.raises({error!r}): an exception, or a class of exceptions")
        self._may_raise(error)
        return self._tell(lambda *_: _raise(error), times)

    def refuses(self, message: str = "", *, times: int | None = None) -> Answer:
        """Refuse: this attempt did nothing, and the saga turns back."""
        return self.raises(errors.Refused(message or None), times=times)

    def times_out(self, *, times: int | None = None) -> Answer:
        """Bring no answer in time: nobody knows whether it happened."""
        return self.raises(TimeoutError(f"{self._label} did not answer in time"), times=times)

    def undecided(self, message: str = "", *, times: int | None = None) -> Answer:
        """Of a `resolve`: cannot tell yet."""
        return self.raises(errors.Undecided(message or None), times=times)

    def crashes(self, *, times: int | None = None) -> Answer:
        """Have the worker die in it: nothing is recorded, and another one takes over when the lease ends."""
        return self._tell(lambda *_: _raise(errors.LeaseLost(f"{self._label}: the worker died")), times)

    def does(self, function: Body, *, times: int | None = None) -> Answer:
        """Call a function in its place, with `self` and, for a compensation, the step's result."""
        if not callable(function):
            raise WrongAnswer(f"{self._label}.does({function!r}): cannot be called")
        return self._tell(function, times)

    @property
    def resolve(self) -> Answer:
        """The answers of its `resolve`."""
        if self._resolver is None:
            raise WrongAnswer(f"{self._label}: nothing is declared to resolve it")
        return self._resolver()

    @property
    def compensation(self) -> Answer:
        """The answers of its compensation."""
        if self._undo is None:
            raise WrongAnswer(f"{self._label}: it has no compensation")
        return self._undo()

    def _may_raise(self, error: Any) -> None:
        kind = error if isinstance(error, type) else type(error)
        if issubclass(kind, errors.Refused) and self._resolves:
            raise WrongAnswer(f"{self._label} cannot refuse; it returns NOT_DONE")
        if issubclass(kind, errors.Undecided) and not self._resolves:
            raise WrongAnswer(f"{self._label} cannot be undecided, only what resolves it can")

    def _tell(self, act: Body, times: int | None) -> Answer:
        if times is not None and times < 1:
            raise WrongAnswer(f"{self._label}: times={times}, at least 1")
        self._told.append(_Told(act, times))
        return self

    def _play(self, original: Body, run: Any, *arguments: Any) -> Any:
        self.calls.append(
            Call(
                saga_id=run.id, key=run.key, input=run.input, idempotency_key=run.idempotency_key, attempt=run.attempt,
                argument=arguments[0] if arguments else None,
            )
        )  # fmt: skip
        if not self._told:
            return original(run, *arguments)
        told = self._told[0]
        act = told.act
        if told.times is not None:
            told.times -= 1
        if len(self._told) > 1 and not told.times:
            del self._told[0]
        elif told.times == 0:
            told.times, told.act = None, self._no_more
        return act(run, *arguments)

    def _no_more(self, run: Any, *_: Any) -> Any:
        raise WrongAnswer(f"{self._label} is called more often than the test has told answers for")


class Answers:
    """The answers of one saga class; each by the name that the class gives to the function."""

    def __init__(self, definition: SagaClass) -> None:
        self._definition = definition
        assert definition.plan  # else the types are looked up later, on what replaces the bodies
        self._made: dict[tuple[int, str], Answer] = {}

    def __getattr__(self, name: str) -> Answer:
        if name.startswith("__"):
            raise AttributeError(name)
        found = inspect.getattr_static(self._definition, name, None)
        for step in self._definition.steps:
            if found is step and step.plan.wait is not None:
                raise WrongAnswer(f"{self._definition.__name__}.{name} waits; send it a signal, or move the clock")
            if found is step:
                return self._of_step(step)
            if found is not None and found is step.undo:
                return self._of_undo(step)
            if found is not None and found is _declared(step.resolver):
                return self._of_resolver(step)
            if found is not None and step.undo is not None and found is _declared(step.undo.resolver):
                return self._of_undo_resolver(step)
        raise WrongAnswer(self._unknown(name))

    def _of_step(self, step: Step[Any, Any]) -> Answer:
        label = f"step {self._definition.__name__}.{step.name}"
        return self._replace(
            step, "body", label, lambda value: _stored_as(value, step, label),
            resolver=(lambda: self._of_resolver(step)) if step.resolver is not None else None,
            undo=(lambda: self._of_undo(step)) if step.undo is not None else None,
        )  # fmt: skip

    def _of_resolver(self, step: Step[Any, Any]) -> Answer:
        label = f"the resolve of step {self._definition.__name__}.{step.name}"
        return self._replace(
            step, "resolver", label, lambda value: None if value is NOT_DONE else _stored_as(value, step, label),
            resolves=True,
        )  # fmt: skip

    def _of_undo(self, step: Step[Any, Any]) -> Answer:
        undo = _undo(step)
        label = f"the compensation of step {self._definition.__name__}.{step.name}"
        return self._replace(
            undo, "body", label, lambda value: _nothing(value, label),
            resolver=(lambda: self._of_undo_resolver(step)) if undo.resolver is not None else None,
        )  # fmt: skip

    def _of_undo_resolver(self, step: Step[Any, Any]) -> Answer:
        label = f"the resolve of the compensation of step {self._definition.__name__}.{step.name}"
        return self._replace(
            _undo(step), "resolver", label, lambda value: None if value is NOT_DONE else _nothing(value, label),
            resolves=True,
        )  # fmt: skip

    def _replace(self, owner: Any, attribute: str, label: str, check: Callable[[Any], None], **more: Any) -> Answer:
        place = (id(owner), attribute)
        if place not in self._made:
            original = getattr(owner, attribute)
            answer = self._made[place] = Answer(label, check=check, **more)
            setattr(owner, attribute, _dispatch(self._definition, answer, original))
            _replaced.callback(setattr, owner, attribute, original)
        return self._made[place]

    def _unknown(self, name: str) -> str:
        known = [
            each for each, value in inspect.getmembers_static(self._definition)
            if isinstance(value, Step | Undo) or hasattr(value, BELONGS_TO)
        ]  # fmt: skip
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
        return f"saga {self._definition.__name__} has no step, compensation or resolve {name!r}; {hint}"


def answers(definition: SagaClass) -> Answers:
    """The answers of a saga class; the same ones however often a test asks.

    Raises:
        WrongAnswer: it is not a saga class.
    """
    if not (isinstance(definition, type) and issubclass(definition, Saga) and hasattr(definition, "saga_name")):
        raise WrongAnswer(f"answers({definition!r}): a saga class, not {definition!r}")
    if definition not in _answers:
        _answers[definition] = Answers(definition)
    return _answers[definition]


def forget_answers() -> None:
    """Put all bodies back."""
    _replaced.close()
    _answers.clear()


def _dispatch(definition: SagaClass, answer: Answer, original: Body) -> Body:
    @functools.wraps(original)
    def answered(run: Any, *arguments: Any) -> Any:
        if type(run) is not definition:  # several classes may share a step
            return original(run, *arguments)
        return answer._play(original, run, *arguments)

    setattr(answered, IN_PLACE_OF, original)
    return answered


def _declared(body: Body | None) -> Body | None:
    """What the class declares, whatever stands in its place now."""
    while hasattr(body, IN_PLACE_OF):
        body = getattr(body, IN_PLACE_OF)
    return body


def _stored_as(value: Any, step: Step[Any, Any], label: str) -> None:
    try:
        codec.encode(value, declared=step.result_type, what=f"answer of {label}")
    except errors.CodecError as problem:
        raise WrongAnswer(str(problem)) from problem


def _nothing(value: Any, label: str) -> None:
    if value is not None:
        raise WrongAnswer(f"{label} returns nothing, not {value!r}")


def _undo(step: Step[Any, Any]) -> Undo[Any, Any]:
    assert step.undo is not None
    return step.undo


def _raise(error: BaseException | type[BaseException]) -> Any:
    raise error if isinstance(error, type) else error.with_traceback(None)  # not those of earlier calls above its own
