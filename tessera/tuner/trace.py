"""The trace of a search: every trial with its runs, from which the same winner is picked anywhere, without a device.

A recorded trace is a measurer as well: a search that is run on it asks for plans as it did on the device, and gets the
times that the device gave. So what a search does can be tested on a machine that has no GPU, and looked into later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
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

    Of equally fast plans the one with the smaller digest: the order of trials does not matter.
    """
    fit = [trial for trial in trace.trials if not why_unfit(trial, trace.safe_bits, trace.criteria)]
    if not fit:
        return Decision(Plan(), False, reason="no plan was measured that may be used")
    best = min(fit, key=lambda trial: (-median_ratio(trial), trial.plan.digest))
    return judge(best, trace.safe_bits, trace.criteria)


class Replay:
    """A recorded trace in the place of a device: plans have the times, the bits and the failures that they had then."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.asked: list[Plan] = []
        """Plans that were measured, in order."""
        self._recorded: dict[str, Trial] = {}
        for trial in trace.trials:
            known = self._recorded.get(trial.plan.digest)
            if known is None or len(trial.samples) > len(known.samples):
                self._recorded[trial.plan.digest] = trial

    def prepare(self, plans: Sequence[Plan]) -> dict[Plan, str]:
        """Nothing is compiled; gives the reasons of plans that had failed before they ran."""
        found = {plan: self._find(plan) for plan in plans}
        return {plan: trial.reason for plan, trial in found.items() if trial.reason and not trial.samples}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """The recorded trial of a plan, or its first rounds where fewer are asked for."""
        self.asked.append(plan)
        trial = self._find(plan)
        return replace(trial, samples=trial.samples[:rounds], baseline=trial.baseline[:rounds])

    def _find(self, plan: Plan) -> Trial:
        return self._recorded.get(plan.digest) or Trial(plan, reason="the trace has no trial of it")

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
