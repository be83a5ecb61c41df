"""The same for guarded effects, for what is heard late, and for keys and rows that do not last."""

from __future__ import annotations

from typing import Final

from sagas import fold, guarding
from sagas.events import Kind
from tests.modelcheck import mutants
from tests.modelcheck.mutations import PROTOCOL, Mutation, one
from tests.modelcheck.sagas import FORGETS, KEYS, NOTHING, ONCE, TWO, WHATEVER
from tests.modelcheck.scenario import Late
from tests.modelcheck.statements import Rules

_GUARD: Final = (
    Mutation(
        name="the guard does not look for `closed`",
        because="a worker that was frozen between two effects would have the second after the undo",
        scenario=one("freeze", "crash", faults=2, late=Late.SETTLING, effects=TWO, retry=ONCE, **WHATEVER),
        rules=Rules(guard_looks_for_closed=False),
    ),
    Mutation(
        name="`done` not written before the record",
        because="whoever comes after a crash would have the first effect again; not every provider knows keys",
        scenario=one("crash", provider=NOTHING, calm=True, effects=TWO, **WHATEVER),
        rules=Rules(guard_writes_done=False),
    ),
    Mutation(
        name="`started` not written before the effect",
        because="there is no line that the answer could be written into",
        scenario=one("raise between", provider=NOTHING, calm=True, effects=TWO, **WHATEVER),
        rules=Rules(guard_writes_started=False),
    ),
    Mutation(
        name="the request is not compared",
        because="the answer of another request would be taken for this one's",
        scenario=one("release", "crash", faults=2, late=Late.SETTLING, effects=TWO, **WHATEVER),
        patches=((guarding, "judge", mutants.any_request),),
    ),
    Mutation(
        name="the key of an effect without its name",
        because="the answer of one effect would be taken for the other's",
        scenario=one(effects=TWO, **WHATEVER),
        patches=((guarding, "effect_key", mutants.nameless_key),),
    ),
    Mutation(
        name="Refused trusted although an effect of the attempt happened",
        because="what happened before the refusal has to be undone",
        scenario=one("refusal", late=Late.SETTLING, effects=TWO, **WHATEVER),
        rules=Rules(refused_knows_of_effects=False),
    ),
    Mutation(
        name="Refused trusted although an effect of the attempt is in doubt",
        because="the body went on after a timeout, and was refused something else",
        scenario=one("timeout", late=Late.SETTLING, effects=TWO, **WHATEVER),
        rules=Rules(refused_knows_of_effects=False),
    ),
    Mutation(
        name="a late answer of an effect is kept, and the saga not told",
        because="the body stops at the next effect, since that is closed, so it never brings a result",
        scenario=one("freeze", faults=2, effects=TWO, cancels=1, **WHATEVER),
        rules=Rules(guard_tells_late_answers=False),
    ),
)  # fmt: skip

_LASTING: Final = (
    Mutation(
        name="a late answer that cannot be stored is dropped",
        because="the effect happened all the same, after it was undone",
        scenario=one("freeze", "unstorable", faults=2, cancels=1, **WHATEVER),
        rules=Rules(unstorable_is_told=False),
    ),
    Mutation(
        name="`key_ttl` is not minded",
        because="the provider has forgotten the key",
        scenario=one("crash", "forgotten", faults=2, provider=FORGETS, late=Late.LOOK, key_ttl=0.5),
        rules=Rules(key_ttl_is_minded=False),
    ),
    Mutation(
        name="hand-back forgets when the key was first used",
        because="a worker that died before may have used it",
        scenario=one(
            "crash", "hand back", "forgotten", faults=3, provider=FORGETS, late=Late.LOOK, key_ttl=0.5
        ), rules=Rules(hand_back_keeps_age=False),
    ),
    Mutation(
        name="an operator's retry makes the key new",
        because="it is the same key, and the provider has forgotten it",
        scenario=one(
            "timeout", "forgotten", faults=2, provider=FORGETS, late=Late.LOOK, key_ttl=0.5, retries=1, retry=ONCE
        ), patches=((fold.EVOLVE, Kind.RETRIED, mutants.resumes_with_a_new_key),),
    ),
    Mutation(
        name="a rebuild takes what was under way for not begun",
        because="nobody knows whether its body ran",
        scenario=one(
            "crash", "rows lost", "refusal", faults=3, provider=KEYS, late=Late.SETTLING, **WHATEVER
        ), patches=((fold.EVOLVE, Kind.REBUILT, mutants.rebuilt_as_not_begun),),
    ),
)  # fmt: skip

MUTATIONS: Final = (*PROTOCOL, *_GUARD, *_LASTING)
