"""When to try again: exponential backoff with full jitter and a cap.

Full jitter (a delay drawn evenly between nothing and the backoff) spreads retries of
many sagas best; see "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

FOREVER = 2**31 - 1  # attempts
LARGEST_EXPONENT = 64  # 2**64 seconds is past any cap


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often and how far apart a step is tried.

    Args:
        max_attempts: bodies that may begin, however they ended; 1 means never again
            unless somebody looks. At least 1.
        first: seconds of backoff after the first failure; above 0.
        factor: what each further failure multiplies the backoff by; at least 1.
        longest: cap of the backoff in seconds; at least `first`.
        give_up_on: exception classes that end the retries at once. What such an
            error left behind is still unknown; `Refused` is the word for "did nothing".

    Each wait is drawn anew, evenly between nothing and the backoff: half of it on average.

    Raises:
        ValueError: a number is out of range; the message names it.
        TypeError: a number is none, or `give_up_on` holds something that is not an exception class.
    """

    max_attempts: int = 5
    first: float = 1.0
    factor: float = 2.0
    longest: float = 300.0
    give_up_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_attempts", "first", "factor", "longest"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int if name == "max_attempts" else (int, float)):
                raise TypeError(f"Retry({name}=...): a number, not {type(given).__name__}")
        if self.max_attempts < 1:
            raise ValueError(f"Retry(max_attempts={self.max_attempts!r}): must be at least 1")
        if not self.first > 0:
            raise ValueError(f"Retry(first={self.first!r}): seconds above 0")
        if not self.factor >= 1:
            raise ValueError(f"Retry(factor={self.factor!r}): must be at least 1")
        if not self.first <= self.longest < float("inf"):
            raise ValueError(f"Retry(longest={self.longest!r}): finite and at least first={self.first!r}")
        if not isinstance(self.give_up_on, tuple):
            raise TypeError("Retry(give_up_on=...): a tuple of exception classes, such as (ValueError,)")
        for given in self.give_up_on:
            if not (isinstance(given, type) and issubclass(given, Exception)):
                raise TypeError(f"Retry(give_up_on=...): {given!r} is not an exception class")

    def delay(self, failures: int, jitter: float) -> float:
        """Seconds to wait after the `failures`-th failure in a row.

        Args:
            failures: 1 for the first; below 1 counts as 1.
            jitter: a number from 0 up to 1, drawn by the caller.
        """
        exponent = min(max(failures, 1) - 1, LARGEST_EXPONENT)
        try:
            backoff = self.first * float(self.factor) ** exponent
        except OverflowError:
            backoff = self.longest
        return min(self.longest, backoff) * jitter
