"""Tuning a jitted function: its groups one by one, then the whole program, and the plan that pays is kept.

The function is compiled as it is first: that is the safe plan. Each fusion group is then tuned as a program of its own,
which is quick, and whose result is kept under the name of its body: after an edit elsewhere it is found again. What
groups chose is put together, choices of the whole program (fusions, streams) are tried beside it, and the best is
measured against the safe plan. It is adopted where all bits are equal and it is faster by the threshold.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tessera.api.compilation import choose_device, device_of
from tessera.api.constants import given_shapes
from tessera.api.stored_plans import group_signature, program_signature, stored_plans
from tessera.api.workload import (
    PROGRAM,
    Part,
    PartMeasurer,
    ProgramWorkload,
    make_tensors,
    measurements,
    program_pool,
    why_in_process,
)
from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options
from tessera.compiler.prediction import predictor
from tessera.compiler.space import GroupPart, ProgramSpace, TunableKnob, evaluate_dim, space_of
from tessera.diagnostics.codes import TuningError
from tessera.diagnostics.error import CompilationError, format_count
from tessera.ir.base.tape import Tape
from tessera.runtime.launch import check_dims
from tessera.runtime.ranks import world
from tessera.tuner.acceptance import Criteria, Decision, judge
from tessera.tuner.agree import agree, broadcast_among
from tessera.tuner.database import Database, default_database
from tessera.tuner.learned import Correction, examples_of
from tessera.tuner.protocol import SAME_CODE, DeviceEviction, InProcess, Measurer, Protocol, Resumed
from tessera.tuner.records import Entry, Plan, Signature, Trial, median_ratio
from tessera.tuner.runner import Isolated
from tessera.tuner.search import MODES, SHARE, Outcome, Progress, Space, search
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.api.jit import Jit
    from tessera.api.specialization import Specialization

PROGRAM_SHARE = 0.3
"""Of the budget, what is left for the whole program."""
LEAST_GAIN = 0.01
"""A choice of a group is kept where its plan is faster by this; whether all of them pay is decided for the program."""
LEAST_SHARE = 0.01
"""Groups that should take a smaller part of a program's time, by the static model, are left as they are."""

MOST_PLANS = 32
"""Plans that a hybrid search of one knob measures: a GPU has some 250 blocks for contractions, most for other sizes."""

INTERRUPTED = "interrupted"
"""How a tuning was stopped that its user ended."""
NO_TIME = "no time was left for it"
"""Why a group was not tuned, behind those that took all of the time."""
CUT = "the budget ended its search"
"""Why the safe plan of a group is no verdict: what was not measured may be faster."""
SAME_PLANS = "all plans have the same code"
"""Why a group had nothing to compare: each of its plans gives the code of the safe one."""
Tell = Callable[["TuningStep"], None]


@frozen
class TuningStep:
    """What tuning says after each plan: where it is, and the progress of the search there."""

    where: str
    """The name of a group, or `program`."""
    progress: Progress
    left: float
    """Seconds of the budget that are left."""


@frozen
class GroupResult:
    """What became of a group: its plan, whether that was known before, and how many plans were measured."""

    name: str
    plan: Plan
    source: str
    """`measured`, `database`, or why it was not tuned."""
    gain: float = 0.0
    """How much faster it is by itself."""
    trials: tuple[Trial, ...] = ()

    @property
    def measured(self) -> int:
        """Plans that ran."""
        return sum(bool(trial.samples) for trial in self.trials)


@frozen
class TuningResult:
    """What tuning a function came to; printed, it is a page."""

    name: str
    plan: Plan
    """The plan that is in force from now on: the safe one where none was better."""
    source: str
    """`measured`, `database` where nothing had to be, or `rank 0` on other ranks, which adopt what that chose."""
    decision: Decision | None
    groups: tuple[GroupResult, ...]
    outcome: Outcome | None
    """The search over plans of the whole program."""
    seconds: float
    measurements: int
    """Timed runs that it took."""
    stopped: str = ""
    """`budget` or `interrupted`, where it did not come to its end."""
    withheld: str = ""
    """Why the plan that these sizes chose is not in force, where it is not: one code serves all sizes."""
    in_process: str = ""
    """Why this process measured, and not children that a broken plan may end, where it did."""

    @property
    def accepted(self) -> bool:
        """Whether a plan other than the safe one is in force."""
        return bool(self.plan.choices)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every plan of the whole program that was looked at."""
        return self.outcome.trials if self.outcome is not None else ()

    def save(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write a page and a table for each search, with every candidate, its time or its reason; their paths.

        Where nothing was measured, nothing is written: what is there is of the tuning that measured it.
        """
        if self.source != "measured":
            return []
        from tessera.tuner.report import html, table  # noqa: PLC0415 - few tunings are written down

        os.makedirs(folder, exist_ok=True)
        parts = {group.name: _outcome_of(group) for group in self.groups if group.trials}
        parts |= {"program": self.outcome} if self.outcome is not None else {}
        tables = [f"{name}\n{table(one, limit=None, width=None)}" for name, one in parts.items()]
        written = {"report.txt": "\n\n".join([str(self), *tables])}
        for name, one in parts.items():
            accepted = self.accepted if name == "program" else None
            written[f"{name}.html"] = html(one, accepted=accepted, title=f"{self.name}: {name}")
        for name, text in written.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        return [os.path.join(folder, name) for name in written]

    def __str__(self) -> str:
        told = {"measured": f"tuned in {self.seconds:.1f} s", "database": "found in the database"}
        how = told.get(self.source, f"tuned by {self.source}")
        ended = f", ended by the {'user' if self.stopped == INTERRUPTED else self.stopped}" if self.stopped else ""
        lines = [f"{self.name}: {how}{ended}, {format_count(self.measurements, 'timed run')}"]
        for group in self.groups:
            gain = f", {group.gain:+.1%} by itself" if group.plan.choices and group.source == "measured" else ""
            count = f", {format_count(group.measured, 'plan')}" if group.trials and group.source != SAME_PLANS else ""
            lines.append(f"  {group.name}: {group.plan} ({group.source}{count}{gain})")
        lines.append(f"  plan: {self.plan}")
        if self.decision is not None:
            found = self.decision
            by = "" if found.accepted else f" by {found.plan}, the best of other plans of the whole program"
            lines.append(f"  {found.gain:+.1%}, between {found.low:+.1%} and {found.high:+.1%}{by}")
            lines += [f"  kept the safe plan: {found.reason}"] if found.reason else []
        lines += [f"  {self.withheld}"] if self.withheld else []
        lines += [f"  measured in this process: {self.in_process}"] if self.in_process else []
        return "\n".join(lines)

    __repr__ = __str__


@dataclass
class ProgramTuning:
    """One tuning of one program: what it is about, the budget, and what was found so far."""

    space: ProgramSpace
    tensors: Sequence[Any]
    sizes: Mapping[str, int]
    """The values of symbolic dims in this call."""
    mode: str
    budget: float
    criteria: Criteria
    tell: Tell | None
    database: Database
    retune: bool = False
    """Whether what the database has is measured anew."""
    start: float = field(default_factory=time.monotonic)
    stopped: str = ""
    pool: Isolated | None = None
    """Processes that compile and measure, where these programs may be theirs."""
    eviction: DeviceEviction | None = None
    """Memory that is written between runs, one for all searches: it is twice a GPU's L2."""
    correction: Correction | None = None
    """What trials of like groups say of the model."""
    groups: list[GroupResult] = field(default_factory=list[GroupResult])
    """What became of groups so far."""

    @property
    def options(self) -> Options:
        return self.space.options

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget - (time.monotonic() - self.start))

    @property
    def parts(self) -> dict[str, Part]:
        """The programs that are measured: the whole, and each of the groups that run at the sizes of the call."""
        running = self.space.running(self.sizes)
        parts = {name: Part(group.tape, group.sizes_at(self.sizes)) for name, group in running.items()}
        return {**parts, PROGRAM: Part(self.space.tape, self.sizes)}

    def measurer(self, name: str, space: ProgramSpace) -> tuple[ProgramWorkload, PartMeasurer | InProcess]:
        """A program of `parts` as a workload, and what measures it, as the protocol wants it: children, if they can."""
        part = self.parts[name]
        if self.pool is None:
            is_whole = name == PROGRAM
            tensors = self.tensors if is_whole else make_tensors(part.tape, part.sizes, self.options)
            workload = ProgramWorkload(space, tensors, self._flush())
            measurer = InProcess(workload, Protocol(), is_distinct=True)
        else:
            workload = ProgramWorkload(space)
            measurer = PartMeasurer(self.pool, name, lambda: self.left)
        workload.sizes = part.sizes
        return workload, measurer

    # Groups.

    def tune(self) -> tuple[Plan, Decision | None, Outcome | None]:
        """Tune the groups and then the program; Ctrl-C ends either, and what was found until then counts."""
        try:
            self.tune_groups()
        except KeyboardInterrupt:  # between searches, each of which ends by itself
            self.stopped = INTERRUPTED
        try:
            found = self.tune_program()
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED
            return Plan(), None, None
        if any(group.source in (NO_TIME, CUT) for group in self.groups):
            self.stopped = self.stopped or "budget"
        return found

    def tune_groups(self) -> None:
        """Tune the groups that take time and have something to choose, those first that take most."""
        groups = self.space.running(self.sizes)
        weights = {name: _weight(group, self.sizes) for name, group in groups.items()}
        whole = sum(weights.values()) or 1.0
        names = sorted(groups, key=lambda name: -weights[name])
        for number, name in enumerate(names):
            if not self.space.of_group(name):
                continue
            if weights[name] < LEAST_SHARE * whole:
                self.groups.append(GroupResult(name, Plan(), "too short to matter"))
                continue
            later = sum(weights[other] for other in names[number:])
            left = (self.left - PROGRAM_SHARE * self.budget) * weights[name] / later
            self.groups.append(self._tune_group(name, groups[name].tape, left))

    def _tune_group(self, name: str, tape: Tape, seconds: float) -> GroupResult:
        """Tune a group by itself; `name` is where its choices for these sizes are asked for."""
        sizes = self.parts[name].sizes
        signature = group_signature(name, tape, sizes, self.options)
        known = None if self.retune else self.database.lookup(signature)
        if known is not None and self._fits(name, known):
            return GroupResult(name, known.plan, "database")
        if seconds <= 0 or self.stopped == INTERRUPTED:
            return GroupResult(name, Plan(), NO_TIME)
        space = space_of(tape, self.options)
        if list(space.running(sizes)) != [name]:
            return GroupResult(name, Plan(), "it is another group by itself")
        entries = self.database.neighbours(signature)
        near = [_relocate(entry.plan, name) for entry in entries]
        # What the model has wrong for other sizes, it has wrong for these.
        known_trials = [trial for entry in entries for trial in self.database.trials(entry.signature)]
        self.correction = Correction.fit(examples_of(known_trials))
        before = [] if self.retune else self.database.trials(signature)  # of a search that the budget ended
        workload, measurer = self.measurer(name, space)
        with measurer:
            resumed = Resumed(measurer, before)
            best, trials, is_cut = self._search_knobs(name, space.of_group(name), workload, resumed, seconds, near)
        gain = median_ratio(best) - 1 if best is not None else 0.0
        plan = best.plan if best is not None and gain >= LEAST_GAIN else Plan()
        if self.stopped or (is_cut and not plan.choices):
            self.database.store_trials(signature, [trial for trial in trials if trial.samples])
        else:
            self.database.store(signature, plan, trials)
        if is_cut and not plan.choices:
            return GroupResult(name, plan, CUT, gain, tuple(trials))
        is_same = bool(trials) and all(trial.reason == f"{SAME_CODE} {Plan()}" for trial in trials)
        source = SAME_PLANS if is_same else "measured"
        return GroupResult(name, plan, source, gain, tuple(trials))

    def _fits(self, name: str, entry: Entry) -> bool:
        """Whether every choice of a stored plan is a candidate of the group still."""
        known = {knob.key: knob.candidates for knob in self.space.of_group(name)}
        return all(name in known and value in known[name] for name, value in entry.plan.choices)

    def _search_knobs(
        self,
        where: str,
        knobs: Sequence[TunableKnob],
        workload: ProgramWorkload,
        measurer: Measurer,
        seconds: float,
        near: Sequence[Plan],
    ) -> tuple[Trial | None, list[Trial], bool]:
        """Search the knobs of a group one after the other, the one with most candidates first; whether time ended it.

        Each is searched with what was found for those before it: of knobs that hardly depend on each other that finds
        the best with the sum of their candidates, and not with the product.
        """
        best: Trial | None = None
        trials: list[Trial] = []
        until = time.monotonic() + seconds
        for knob in sorted(knobs, key=lambda one: -len(one.candidates)):
            fixed = best.plan.overrides if best is not None and median_ratio(best) > 1 else {}
            plans = [Plan.of({**fixed, knob.key: value}) for value in knob.others]
            wanted = {one.overrides.get(knob.key) for one in near}
            first = [plan for plan in plans if plan.overrides[knob.key] in wanted]
            outcome = self._search(where, plans, workload, measurer, until - time.monotonic(), first)
            trials += outcome.trials
            if outcome.best is not None and (best is None or median_ratio(outcome.best) > median_ratio(best)):
                best = outcome.best
            if outcome.stopped:
                return best, trials, outcome.stopped != INTERRUPTED
        return best, trials, False

    def _search(
        self,
        where: str,
        plans: Sequence[Plan],
        workload: ProgramWorkload,
        measurer: Measurer,
        seconds: float,
        first: Sequence[Plan] = (),
        mode: str = "",
    ) -> Outcome:
        tell = self.tell
        outcome = search(
            Space.of(plans, reject=workload.refusal),
            measurer,
            mode=mode or self.mode,
            predict=predictor(workload.space, workload.sizes),
            correction=None if where == PROGRAM else self.correction,
            share=min(SHARE, MOST_PLANS / max(1, len(plans))),
            first=first,
            budget=max(seconds, 0.001),
            progress=None if tell is None else lambda progress: tell(TuningStep(where, progress, self.left)),
        )
        if outcome.stopped == INTERRUPTED:
            self.stopped = outcome.stopped
        return outcome

    def _flush(self) -> Callable[[], None] | None:
        """What evicts the L2 of a GPU; programs of a CPU are called again and again, and have what they left there."""
        if not manifest_of(self.options.backend).runs_in_host_memory and self.eviction is None:
            self.eviction = DeviceEviction()
        return self.eviction

    # The whole program.

    def tune_program(self) -> tuple[Plan, Decision | None, Outcome | None]:
        """Put together what groups chose, try what concerns all of it, and decide; the plan to adopt.

        Once the user has ended it, nothing new is tried: what groups chose is measured together, and no more.
        """
        joined = {name: value for group in self.groups for name, value in group.plan.choices}
        union = self.space.fit(Plan.of(joined))
        plans = dict.fromkeys([union] if union.choices else [])
        if self.stopped != INTERRUPTED:
            plans |= dict.fromkeys(self._fit_shared(union))
        plans.pop(Plan(), None)
        if not plans:
            return Plan(), None, None
        workload, measurer = self.measurer(PROGRAM, self.space)
        with measurer:
            # What groups chose is measured whatever the budget says: they were tuned for this.
            first = [*([union] if union.choices else []), *keep_apart(plans, workload)]
            seconds = max(self.left, 1.0 if first else 0.0)
            outcome = self._search(PROGRAM, list(plans), workload, measurer, seconds, first)
            outcome = self._join_gains(outcome, union, workload, measurer)
            best = outcome.best
            if best is None:
                return Plan(), None, outcome
            decision = judge(self._confirm_best(best, measurer), measurer.safe_bits, self.criteria)
        return (best.plan if decision.accepted else Plan()), decision, outcome

    def _confirm_best(self, best: Trial, measurer: PartMeasurer | InProcess) -> Trial:
        """The best once more, and with more rounds: of many it is partly the luckiest. With Ctrl-C, as it was."""
        try:
            return measurer.measure(best.plan, self.criteria.rounds * 2)
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED
            return best

    def _fit_shared(self, union: Plan) -> Iterator[Plan]:
        """What groups chose with each choice of the whole program, until no time is left: each takes a lowering."""
        for key, value in [(knob.key, value) for knob in self.space.shared for value in knob.others]:
            if not self.left:
                self.stopped = "budget"
                return
            yield self._fit_plan(union, {key: value})

    def _fit_plan(self, plan: Plan, more: Mapping[str, Any]) -> Plan:
        """A plan with more choices, and without those of groups that are not there under them; safe where none fits."""
        try:
            return self.space.fit(Plan.of({**plan.overrides, **more}))
        except CompilationError:
            return Plan()

    def _join_gains(
        self, outcome: Outcome, union: Plan, workload: ProgramWorkload, measurer: PartMeasurer | InProcess
    ) -> Outcome:
        """Choices that each were better by themselves, measured together."""
        tried = {trial.plan: trial for trial in outcome.trials if trial.samples and not trial.reason}
        base = median_ratio(tried[union]) if union in tried else 1.0
        better = [plan for plan, trial in tried.items() if plan != union and median_ratio(trial) > base + LEAST_GAIN]
        if len(better) < 2 or self.stopped:
            return outcome
        joined = self._fit_plan(union, {name: value for plan in better for name, value in plan.choices})
        if joined in tried or not joined.choices:
            return outcome
        more = self._search(PROGRAM, [joined], workload, measurer, max(self.left, 1.0), mode="exhaustive")
        trials = (*outcome.trials, *more.trials)
        able = [trial for trial in (outcome.best, more.best) if trial is not None]
        return replace(outcome, trials=trials, best=max(able, key=median_ratio, default=None))


def keep_apart(plans: Iterable[Plan], workload: ProgramWorkload) -> list[Plan]:
    """Plans that keep groups apart, where a kernel of the safe plan spills registers.

    They are measured whatever the model says of them, as it counts operations and bytes, and no spills.
    """
    off = [plan for plan in plans if any("fusion." in name and value is False for name, value in plan.choices)]
    return off if off and workload.spilling() else []


def _relocate(plan: Plan, group: str) -> Plan:
    """A plan of a group of other sizes as one of this group: the same knobs, asked for elsewhere."""
    return Plan.of({f"{name.partition('@')[0]}@{group}": value for name, value in plan.choices})


def _outcome_of(group: GroupResult) -> Outcome:
    """The searches of a group as one."""
    able = [trial for trial in group.trials if trial.samples and not trial.reason]
    trials = tuple(sorted(group.trials, key=lambda trial: (bool(trial.reason), trial.time or 0.0)))
    return Outcome(trials, max(able, key=median_ratio, default=None), len(trials), 0.0)


def _weight(group: GroupPart, sizes: Mapping[str, int]) -> float:
    """Nanoseconds of all calls of a group at some sizes, by the static model."""
    known = {**sizes, **group.sizes_at(sizes)}
    return group.count_calls(sizes) * float(evaluate_dim(group.time, known) if group.time is not None else 1.0)


def tune_call(
    function: Jit,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    mode: str = "hybrid",
    budget: float = 60.0,
    threshold: float = 0.07,
    progress: Tell | None = None,
    retune: bool = False,
) -> TuningResult:
    """Tune the program of a call, or find what was tuned before; the plan is stored either way.

    What is found is for the sizes of the call, those of symbolic dims by their buckets. `retune` measures anew. Ranks
    of a world tune together: rank 0 measures, and all of them have its plan.

    Raises TuningError (T0803) for a program that must not run twice, and for settings that say nothing.
    """
    check_settings(mode, budget, threshold)
    if progress is not None and not callable(progress):
        raise TuningError(f"`progress` is a function, got {progress!r}", fix="write `progress=print`")
    here, made, tensors = function.prepare(*args, **kwargs)
    options = compiled_options(here, made)
    tape = made.traced.tape
    executable: Any = getattr(made.loaded, "executable")  # noqa: B009 - the protocol of programs does not have it
    sizes = check_dims(executable, given_shapes(executable, tensors))
    program = _TunedProgram(function, here.name, tape, options, sizes)

    def tune_here() -> TuningResult:
        if not retune and (known := program.find()) is not None:
            return known
        check_effects(here.name, made)
        criteria, space = Criteria(threshold=threshold), space_of(tape, options)
        tuning = ProgramTuning(space, tensors, sizes, mode, budget, criteria, progress, program.database, retune)
        return program.tune(tuning)

    if world.size() == 1:
        return tune_here()
    check_effects(here.name, made)
    return program.agree(tune_here)


@dataclass
class _TunedProgram:
    """The program of a call that is tuned: whose plan it is, and what is in force for it."""

    function: Jit
    name: str
    tape: Tape
    options: Options
    sizes: Mapping[str, int]
    database: Database = field(default_factory=default_database)
    start: float = field(default_factory=time.monotonic)

    @property
    def signature(self) -> Signature:
        """Whose plan it is, at the sizes of the call."""
        return program_signature(self.tape, self.options, self.sizes)

    @property
    def in_force(self) -> Plan:
        """The plan that its code is compiled by."""
        return stored_plans().plan_for(program_signature(self.tape, self.options))

    def find(self, source: str = "database") -> TuningResult | None:
        """What is stored for the sizes of the call."""
        known = self.database.lookup(self.signature)
        if known is None:
            return None
        seconds, now = time.monotonic() - self.start, self.in_force
        withheld = _why_withheld(known.plan, now, self.database, self.signature)
        return TuningResult(self.name, now, source, None, (), None, seconds, 0, withheld=withheld)

    def tune(self, tuning: ProgramTuning) -> TuningResult:
        """Measure, and store the plan that is found."""
        before, in_force = measurements(), self.in_force
        parts = tuning.parts
        try:
            with program_pool(parts, self.options, tuning.tensors) as tuning.pool:
                plan, decision, outcome = tuning.tune()
        finally:
            if tuning.eviction is not None:
                tuning.eviction.close()
        stopped = tuning.stopped or (outcome.stopped if outcome is not None else "")
        if plan.choices or not stopped:  # what time cut short may be looked for again
            self.database.store(self.signature, plan, outcome.trials if outcome is not None else ())
        self.adopt(in_force)
        return TuningResult(
            self.name,
            self.in_force,
            "measured",
            decision,
            tuple(tuning.groups),
            outcome,
            time.monotonic() - self.start,
            measurements() - before,
            stopped,
            _why_withheld(plan, self.in_force, self.database, self.signature),
            why_in_process([part.tape for part in parts.values()]),
        )

    def adopt(self, before: Plan) -> None:
        """Let the next call load the code of the plan that is stored now."""
        now = self.in_force
        if now.choices or now != before:
            self.function.forget_code()

    def agree(self, tune_here: Callable[[], TuningResult]) -> TuningResult:
        """What rank 0 finds, on all ranks: it alone measures, and the others store and adopt its plan."""
        communicator, found, before = world.current(), list[TuningResult](), self.in_force
        assert communicator is not None

        def decide() -> list[Plan]:
            found.append(tune_here())
            known = self.database.lookup(self.signature)
            return [known.plan if known is not None else Plan()]

        (plan,) = agree([self.signature], decide, communicator.rank, broadcast_among(communicator))
        if found:
            return found[0]
        known = self.database.lookup(self.signature)
        # Ranks of one machine have one database, and find it there.
        if known is None or known.plan != plan:
            self.database.store(self.signature, plan)
        self.adopt(before)
        result = self.find("rank 0")
        assert result is not None
        return result


def _why_withheld(plan: Plan, in_force: Plan, database: Database, signature: Signature) -> str:
    """Why the plan that the sizes of a call chose is not that of the program's code; nothing where it is."""
    others = [entry for entry in database.verdicts(signature) if entry.plan != plan]
    if plan == in_force or not others:
        return ""
    other = others[0]
    return (
        f"these sizes chose {plan}, and {other.signature.shape_sig} chose {other.plan}: "
        "one code serves all sizes, so the safe plan is in force"
    )


def compiled_options(here: Jit, made: Specialization) -> Options:
    """The options that a program's code is made with: where it runs, and for which device exactly."""
    chosen = replace(choose_device(here.options, made.traced.tape), tuned=())
    manifest = manifest_of(chosen.backend)
    if not manifest.compiles:
        raise TuningError(
            f"backend `{chosen.backend}` interprets programs: it has nothing to tune",
            fix='tune it on the CPU: `jit(backend="cpu")`',
        )
    return replace(chosen, features=device_of(manifest).features()) if manifest.asks_device else chosen


def check_effects(name: str, made: Specialization) -> None:
    """Raises TuningError (T0803) for a program whose runs others would see, or wait for."""
    effects = made.traced.effects
    for effect, why in (("io", "acts on the outside"), ("collective", "waits for other ranks")):
        if effects.has(effect):
            raise TuningError(
                f"`{name}` {why}, and tuning runs a program many times",
                notes=(f"rule: a program with the effect `{effect}` runs when it is called, and never else",),
                fix="tune a function without it, and call that",
            )


def check_settings(mode: str, budget: float, threshold: float, spell: Callable[[str, Any], str] | None = None) -> None:
    """Raises TuningError (T0803) for settings that are none; `spell` writes one as its user would, else as Python."""
    spell = spell or (lambda name, value: f"{name}={json.dumps(value)}")
    if mode not in MODES:
        text = f"`mode` is one of {', '.join(MODES)}, got {mode!r}"
        raise TuningError(text, fix=f"write `{spell('mode', 'hybrid')}`")
    if not _is_number(budget) or not budget > 0:
        text = f"`budget` is a number of seconds, more than 0, got {budget!r}"
        raise TuningError(text, fix=f"write `{spell('budget', 60)}`")
    if not _is_number(threshold) or not 0 <= threshold < 100:
        text = f"`threshold` is a fraction, such as 0.07 for 7 %, at least 0, got {threshold!r}"
        raise TuningError(text, fix=f"write `{spell('threshold', 0.07)}`")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def space(function: Any, /, *args: Any, **kwargs: Any) -> ProgramSpace:
    """What may be chosen for the program of a call: each knob with its candidates, default, source and class.

    >>> found = ts.autotune.space(ts.jit(lambda x, y: x @ y), ts.ones((64, 64)), ts.ones((64, 64)))
    >>> [knob.name for knob in found.knobs]
    ['contraction.block']
    """
    here, made, _ = _check_jitted("space", function).prepare(*args, **kwargs)
    return space_of(made.traced.tape, compiled_options(here, made))


def tune(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, **settings: Any) -> TuningResult:
    """As `function.autotune(*args, **kwargs)`, for functions whose own parameters have names of its settings."""
    return tune_call(_check_jitted("tune", function), args, kwargs or {}, **settings)


def _check_jitted(what: str, function: Any) -> Jit:
    if not hasattr(function, "prepare"):
        is_kernel = hasattr(function, "with_schedule")
        raise TuningError(
            f"`autotune.{what}` takes a jitted function, got {type(function).__name__}",
            fix="write `@kernel.autotune(space=...)`, which measures schedules of a kernel when it is called"
            if is_kernel
            else "write `ts.jit(function)`",
        )
    return function
