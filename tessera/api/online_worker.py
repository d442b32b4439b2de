"""The process that measures plans for one that serves: at the lowest priority, between calls, with tensors of its own.

It gets programs as tapes, one at a time, and answers what it chose for each, which it has stored by then, with its code
in the disk cache. It never has the GIL of the process that serves, and what a plan breaks is broken here alone.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tessera.api.eager import prepare
from tessera.api.program_tuning import ProgramTuning
from tessera.api.stored_plans import program_signature
from tessera.api.workload import PROGRAM, ProgramWorkload, make_tensors
from tessera.compiler.options import Options
from tessera.compiler.space import ProgramSpace, space_of
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.tape import Tape
from tessera.tuner.acceptance import Criteria
from tessera.tuner.database import default_database
from tessera.tuner.protocol import first_line
from tessera.tuner.records import Plan
from tessera.tuner.spare_time import CallCounter, SpareMeasurer, SpareTime
from tessera.types.frozen import frozen

GROUPS_SHARE = 0.7
"""Of the budget, what groups may take; the rest is for the program as a whole, which decides."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_WHOLE_DAY = 86_400.0
"""Seconds of a search by the clock of the wall: spare time is counted otherwise."""


@frozen
class Request:
    """A program to tune: what it is, under which options and sizes, and what a plan must gain."""

    tape: Tape
    options: str
    sizes: dict[str, int]
    threshold: float
    mode: str = "hybrid"


@frozen
class Answer:
    """What came of a program: the plan that it has now, what it gains, or why it has none."""

    plan: Plan
    gain: float = 0.0
    low: float = 0.0
    reason: str = ""
    runs: int = 0
    """Timed runs."""
    used: float = 0.0
    """Seconds of the budget used so far, by all programs."""
    discarded: int = 0
    """Runs that calls came in on, so far."""
    is_over: bool = False
    """Whether the budget is used up."""


@dataclass
class OnlineTuning(ProgramTuning):
    """A tuning whose every run is between calls."""

    spare: SpareTime | None = None

    @property
    def left(self) -> float:
        """A day, until the budget is used up: waiting for a quiet moment costs nothing."""
        assert self.spare is not None
        return _WHOLE_DAY if self.spare.used < self.spare.budget else 0.0

    def measurer(self, name: str, space: ProgramSpace) -> tuple[ProgramWorkload, SpareMeasurer]:
        """A program as a workload, and what measures it between calls."""
        assert self.spare is not None
        workload, _ = super().measurer(name, space)
        return workload, SpareMeasurer(workload, self.spare, 1.0 if name == PROGRAM else GROUPS_SHARE)


def tune(request: Request, spare: SpareTime) -> Answer:
    """Measure plans of one program, and store the one that pays; the safe plan where none does."""
    options, before = Options.parse(request.options), spare.runs
    signature, database = program_signature(request.tape, options, request.sizes), default_database()
    known = database.lookup(signature)
    if known is not None:
        return Answer(
            known.plan, reason=f"its plan was known before ({known.source})", used=spare.used, discarded=spare.discarded
        )
    tensors = make_tensors(request.tape, request.sizes, options)
    criteria = Criteria(threshold=request.threshold)
    tuning = OnlineTuning(
        space_of(request.tape, options), tensors, request.sizes, request.mode, _WHOLE_DAY, criteria, None, database
    )
    tuning.spare = spare
    try:
        plan, decision, outcome = tuning.tune()
    finally:
        if tuning.eviction is not None:
            tuning.eviction.close()
    is_over = spare.used >= spare.budget
    if plan.choices or not is_over:  # what time cut short may be looked for again
        database.store(signature, plan, outcome.trials if outcome is not None else ())
    reason = "" if decision is None else decision.reason
    if not plan.choices:
        reason = reason or ("the budget is used up" if is_over else "no plan is faster")
    gain, low = (0.0, 0.0) if decision is None else (decision.gain, decision.low)
    return Answer(plan, gain, low, reason, spare.runs - before, spare.used, spare.discarded, is_over)


def serve() -> None:
    """Answer requests until the other process ends or closes: the main function of this one."""
    connection = Connection(os.dup(0))
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that serves, which ends this one
    file, niceness, settings, setup = connection.recv()
    os.nice(niceness)
    prepare()
    if setup:
        module, _, name = setup.partition(":")
        getattr(importlib.import_module(module), name)()
    spare = SpareTime(CallCounter(file), *settings)
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        with spare.count_time():
            answer = _answer(request, spare)
        connection.send(answer)


def _answer(request: Request, spare: SpareTime) -> Answer:
    try:
        return tune(request, spare)
    except TesseraError as error:
        return Answer(Plan(), reason=first_line(error), used=spare.used, discarded=spare.discarded)
    except Exception as error:  # whatever a program raises here costs that program alone, and is its reason
        return Answer(Plan(), reason=f"failed: {first_line(error)}", used=spare.used, discarded=spare.discarded)
