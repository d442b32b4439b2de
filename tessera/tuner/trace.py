"""The trace of a search: every trial with its runs, from which the same winner is picked anywhere, without a device.

A recorded trace is a measurer as well: a search that is run on it asks for plans as it did on the device, and gets the
times that the device gave. So what a search does can be tested on a machine that has no GPU, and looked into later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from tessera.diagnostics.codes import TuningFileError
from tessera.runtime.private_files import open_folder, write_file
from tessera.tuner.acceptance import Criteria, Decision, judge, why_unfit
from tessera.tuner.entry_format import (
    MOST_BYTES,
    SIGNATURE_SCHEMA,
    TRIAL_SCHEMA,
    MismatchError,
    check_schema,
    parse_json,
    signature_from_json,
    signature_to_json,
    trial_from_json,
    trial_to_json,
)
from tessera.tuner.protocol import Measurer
from tessera.tuner.records import Plan, Signature, Trial, median_ratio
from tessera.types.frozen import frozen

FORMAT, VERSION = "tessera-tuning-trace", 1
_MOST_TRIALS = 100_000
_SCHEMA = {
    "type": "object",
    "properties": {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "signature": SIGNATURE_SCHEMA,
        "safe_bits": {"type": "string", "maxLength": 1024},
        "criteria": {
            "type": "object",
            "properties": {
                "threshold": {"type": "number", "minimum": 0, "maximum": 99},
                "confidence": {"type": "number", "minimum": 0.5, "maximum": 0.999999},
                "rounds": {"type": "integer", "minimum": 1, "maximum": 100_000},
                "memory_cap": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**53},
            },
            "required": ["confidence", "rounds", "threshold"],
            "additionalProperties": False,
        },
        "trials": {"type": "array", "items": TRIAL_SCHEMA, "maxItems": _MOST_TRIALS},
    },
    "required": ["criteria", "format", "safe_bits", "signature", "trials", "version"],
    "additionalProperties": False,
}


@frozen
class Trace:
    """A search as it went: whose plan it was for, every trial in order, and by what a plan is accepted."""

    signature: Signature
    trials: tuple[Trial, ...]
    safe_bits: str = ""
    """The hash of the safe plan's results."""
    criteria: Criteria = Criteria()

    @staticmethod
    def of(signature: Signature, trials: Iterable[Trial], safe_bits: str, criteria: Criteria | None = None) -> Trace:
        """The trace of trials, as a search gives them."""
        return Trace(signature, tuple(trials), safe_bits, criteria or Criteria())


def pick(trace: Trace) -> Decision:
    """The fastest plan of a trace that may be used, and whether it is accepted; else the safe plan with the reason.

    Trials of one plan count together. Of equally fast plans it is the one with the smaller digest: the order of plans
    does not matter.
    """
    fit = [trial for trial in join_trials(trace.trials) if not why_unfit(trial, trace.safe_bits, trace.criteria)]
    if not fit:
        return Decision(Plan(), False, reason="no plan was measured that may be used")
    best = min(fit, key=lambda trial: (-median_ratio(trial), trial.plan.digest))
    return judge(best, trace.safe_bits, trace.criteria)


def join_trials(trials: Iterable[Trial]) -> list[Trial]:
    """One trial for each plan, of all its rounds; a failure in any of them is its failure."""
    found: dict[str, Trial] = {}
    for trial in trials:
        known = found.get(trial.plan.digest)
        if known is None:
            found[trial.plan.digest] = trial
            continue
        reason = known.reason or trial.reason
        if not reason and known.bits != trial.bits:
            reason = f"its results differ from run to run: `{known.bits[:16]}` and `{trial.bits[:16]}`"
        samples, baseline = known.samples + trial.samples, known.baseline + trial.baseline
        found[trial.plan.digest] = replace(trial, samples=samples, baseline=baseline, reason=reason)
    return list(found.values())


class Recorder:
    """A measurer that keeps all that another one gave, in order: the trials of a trace.

    What a search gives in the end has a trial for each plan, however often it was measured; to run that search again,
    each measurement must be known by itself.
    """

    def __init__(self, measurer: Measurer) -> None:
        self.trials: list[Trial] = []
        self._measurer = measurer

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """As the other does, keeping what failed."""
        failed = self._measurer.prepare(plans, seconds)
        self.trials += [Trial(plan, reason=reason) for plan, reason in failed.items()]
        return failed

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """As the other does, keeping the trial."""
        trial = self._measurer.measure(plan, rounds)
        self.trials.append(trial)
        return trial


class Replay:
    """A recorded trace in the place of a device: plans have the times, the bits and the failures that they had then."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.asked: list[Plan] = []
        """Plans that were measured, in order."""
        self._recorded: dict[str, list[Trial]] = {}
        self._reached: dict[str, tuple[int, int]] = {}
        for trial in trace.trials:
            self._recorded.setdefault(trial.plan.digest, []).append(trial)

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> dict[Plan, str]:
        """Nothing is compiled; gives the reasons of plans that had failed before they ran."""
        found = {plan: self._recorded.get(plan.digest, [])[:1] for plan in plans}
        return {plan: one.reason for plan, [*first] in found.items() for one in first if one.reason and not one.samples}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """The next measurement that was recorded of a plan, or the next so many rounds of it; then the first again.

        A trace of joined trials, as a search gives them, serves as well: each trial is given part by part.
        """
        self.asked.append(plan)
        trials = self._recorded.get(plan.digest)
        if trials is None:
            return Trial(plan, reason="the trace has no trial of it")
        number, begin = self._reached.get(plan.digest, (0, 0))
        trial, end = trials[number], begin + rounds
        is_over = end >= len(trial.samples)
        self._reached[plan.digest] = ((number + 1) % len(trials), 0) if is_over else (number, end)
        return replace(trial, samples=trial.samples[begin:end], baseline=trial.baseline[begin:end])

    def close(self) -> None:
        """There is nothing to let go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a trace as JSON, a trial a line; raises TuningFileError (T0801) where it cannot be written."""
    criteria = trace.criteria
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "signature": signature_to_json(trace.signature),
        "safe_bits": trace.safe_bits,
        "criteria": {
            "threshold": criteria.threshold,
            "confidence": criteria.confidence,
            "rounds": criteria.rounds,
            "memory_cap": criteria.memory_cap,
        },
    }
    lines = ",\n".join(json.dumps(trial_to_json(trial), sort_keys=True, allow_nan=False) for trial in trace.trials)
    text = f'{json.dumps(head)[:-1]}, "trials": [\n{lines}\n]}}\n'
    folder, name = os.path.split(os.path.abspath(path))
    try:
        with open_folder(folder, is_private=False) as descriptor:
            write_file(name, descriptor, [text.encode()], is_private=False)
    except OSError as error:
        raise TuningFileError(f"{os.fspath(path)} cannot be written: {error.strerror or error}", span=None) from error


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace of a file; raises TuningFileError (T0801) that names the field which is wrong."""
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            value = parse_json(file.read(MOST_BYTES + 1))
        check_schema(value, _SCHEMA)
        trials = [trial_from_json(one, f"trials[{index}]") for index, one in enumerate(value["trials"])]
    except OSError as error:
        raise TuningFileError(f"{shown} cannot be read: {error.strerror or error}", span=None) from error
    except MismatchError as error:
        reason = str(error) if error.path else f"it {error.reason}"
        raise TuningFileError(f"{shown}: {reason}", span=None, fix="record the search again") from None
    criteria = Criteria(**value["criteria"])
    return Trace(signature_from_json(value["signature"]), tuple(trials), value["safe_bits"], criteria)
