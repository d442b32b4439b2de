"""The safe plan in the place of a stored one that cannot be used: it is always there, and the reason is logged once.

A stored plan may name a knob that this version does not have, a value that the program has no candidate for, or may
not compile: the database is a file, and the program, the compiler or the file may have changed. Nothing of that may
stop a program which compiles without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from tessera.diagnostics.codes import TuningFileError
from tessera.diagnostics.error import InternalError, TesseraError, find_nearest
from tessera.tuner.database import Database
from tessera.tuner.records import Plan, Signature
from tessera.tuner.shapes import serves_every_size

T = TypeVar("T")
Candidates = Mapping[str, Collection[Any]]
"""What each knob of a program may be, by its name, with `@` and a location or without."""
LOGGER = logging.getLogger("tessera.tuner")
_logged: set[tuple[object, str]] = set()
_lock = threading.Lock()


def why_poisoned(plan: Plan, candidates: Candidates) -> str:
    """Why a plan cannot be carried out where knobs have these candidates; nothing where it can.

    A choice for one location (`map.tile@group3`) is checked by the candidates of that location, or else by the knob's.

    >>> why_poisoned(Plan.of({"map.tile": 64}), {"map.tile": (64, 128)})
    ''
    >>> why_poisoned(Plan.of({"map.tile@group3": 63}), {"map.tile": (64, 128)})
    '`map.tile@group3` cannot be 63; it can be 64, 128'
    """
    for name, value in plan.choices:
        knob = name.partition("@")[0]
        allowed = candidates.get(name, candidates.get(knob))
        if allowed is None:
            near = find_nearest(knob, {known.partition("@")[0] for known in candidates})
            hint = f"; the nearest is `{near[0]}`" if near else ""
            return f"it chooses `{name}`, which is no knob of this program{hint}"
        if not any(_is_equal(value, candidate) for candidate in allowed):
            listed = ", ".join(map(str, list(allowed)[:8])) + (", ..." if len(allowed) > 8 else "")
            return f"`{name}` cannot be {value}; it can be {listed}"
    return ""


def _is_equal(value: Any, candidate: Any) -> bool:
    """Equality in which True is not 1: a plan that says one where the other is meant was not written for this knob."""
    if isinstance(candidate, list | tuple) and isinstance(value, list | tuple):
        mine: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        theirs: list[Any] = list(candidate)  # pyright: ignore[reportUnknownArgumentType]
        return len(mine) == len(theirs) and all(map(_is_equal, mine, theirs))
    return isinstance(value, bool) == isinstance(candidate, bool) and value == candidate


class SafePlans:
    """Stored plans that can be used, and the safe plan for all other signatures.

    One object serves a process. A plan that was found to be poisoned stays in the database, since it may be of use to
    another version, and is not tried again in this process; tuning its signature again replaces it.

    >>> plans = SafePlans(Database(None, profiles=False))
    >>> str(plans.plan_for(Signature("matmul", "64x64x64", "f32")))
    'the safe plan'
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._poisoned: dict[tuple[Signature, str], str] = {}

    def plan_for(self, signature: Signature, candidates: Candidates | None = None) -> Plan:
        """The stored plan of a signature where it can be used, else the safe plan, which has no choices.

        The code of a symbolic program serves every size: it has a plan where all verdicts of its buckets agree on it.
        With `candidates` the plan is checked before anything is compiled. A database that cannot be read is logged once
        as well.
        """
        try:
            shared = serves_every_size(signature.shape_sig)
            entry = (self.database.lookup_shared if shared else self.database.lookup)(signature)
        except TuningFileError as error:
            self._log_once(("database", self.database.path), f"no stored plan is used: {error.message}")
            return Plan()
        if entry is None or (signature, entry.plan.digest) in self._poisoned:
            return Plan()
        reason = "" if candidates is None else why_poisoned(entry.plan, candidates)
        if reason:
            self.reject(signature, entry.plan, reason)
            return Plan()
        return entry.plan

    def compile(
        self, signature: Signature, compile: Callable[[Plan], T], candidates: Candidates | None = None
    ) -> tuple[T, Plan]:
        """What `compile` makes of the stored plan, and that plan; of the safe plan where that fails.

        Any error of Tessera's while compiling a tuned plan counts, also a mistake of the compiler: the safe plan is
        asked next, and where it fails too, that is the user's error.
        """
        plan = self.plan_for(signature, candidates)
        if plan.choices:
            try:
                return compile(plan), plan
            except (TesseraError, InternalError) as error:
                self.reject(signature, plan, f"it does not compile: {error.message}")
        return compile(Plan()), Plan()

    def reject(self, signature: Signature, plan: Plan, reason: str) -> None:
        """Use the safe plan in place of this one for as long as the process lives, and log why, once."""
        self._poisoned[(signature, plan.digest)] = reason
        text = f"the stored plan of `{signature}` is not used ({plan}): {reason}"
        self._log_once((signature, plan.digest), f"{text}; the safe plan is; tuning it again replaces the stored one")

    def _log_once(self, key: tuple[object, str], text: str) -> None:
        with _lock:
            if key in _logged:
                return
            _logged.add(key)
        LOGGER.warning("%s", text)

    def why_rejected(self, signature: Signature, plan: Plan) -> str:
        """Why a plan is not used in this process; nothing where nobody found it to be poisoned."""
        return self._poisoned.get((signature, plan.digest), "")
