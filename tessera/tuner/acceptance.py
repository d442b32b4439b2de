"""Whether a tuned plan takes the place of the safe one: as fast as promised, surely faster, equal bits, within memory.

A plan is compared with the safe plan round by round, since both ran in each round: a machine that is slow for a while
is slow for both. The gain is the median over rounds of how many times as long the safe plan took, less 1. Its
confidence interval comes of order statistics: of n independent rounds, the number that is below the true median is
binomial with one half, whatever the distribution of times is, so the k-th smallest and the k-th largest ratio enclose
it with a probability that is known exactly. A bootstrap needs a seed, and of ten rounds it draws the same few values
over and over; a t-test asks for a normal distribution, and times have long tails.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import comb

from tessera.tuner.records import Plan, Signature, Trial, ratios
from tessera.types.frozen import frozen


@frozen
class Criteria:
    """When a plan is accepted.

    `threshold` is the least gain, 0.07 for 7 %, `confidence` that of the interval which must be above 0, `rounds` the
    least number of rounds. `memory_cap` is bytes that a plan may need beside its tensors, where there is a limit.
    """

    threshold: float = 0.07
    confidence: float = 0.95
    rounds: int = 10
    memory_cap: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 100:
            raise ValueError(f"`threshold` is a gain such as 0.07, got {self.threshold!r}")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"`confidence` is at least 0.5 and less than 1, got {self.confidence!r}")
        if self.rounds < 1:
            raise ValueError(f"`rounds` is at least 1, got {self.rounds!r}")


@frozen
class Decision:
    """Whether a plan was accepted, what it gains, between what bounds, and why not where it was not."""

    plan: Plan
    accepted: bool
    gain: float = 0.0
    """0.08 where the safe plan takes 1.08 times as long."""
    low: float = 0.0
    high: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.plan}: accepted, gains {_span(self)}" if self.accepted else f"{self.plan}: {self.reason}"


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Bounds of the true median of what these values are drawn from; None where there are too few for any.

    >>> median_interval([1, 2, 3, 4, 5, 6, 7, 8, 9, 100], 0.95)
    (2, 9)
    >>> median_interval([1, 2, 3, 4, 5], 0.95) is None
    True
    """
    count, ordered = len(values), sorted(values)
    outside, below = (1 - confidence) / 2, 0.0
    taken = 0
    for number in range(count // 2):
        below += comb(count, number) / 2**count
        if below > outside:
            break
        taken = number + 1
    return (ordered[taken - 1], ordered[count - taken]) if taken else None


def why_unfit(trial: Trial, safe_bits: str, criteria: Criteria) -> str:
    """Why a plan may not be used, however fast it is; nothing where it may."""
    if trial.reason:
        return trial.reason
    if not trial.bits or trial.bits != safe_bits:
        shown = f"`{trial.bits[:16]}`" if trial.bits else "unknown"
        return f"its results are not those of the safe plan, bit for bit: their hash is {shown}, not `{safe_bits[:16]}`"
    if criteria.memory_cap is not None and (trial.memory is None or trial.memory > criteria.memory_cap):
        needed = "an unknown number of" if trial.memory is None else trial.memory
        return f"it needs {needed} bytes of memory, and {criteria.memory_cap} are allowed"
    if len(trial.samples) != len(trial.baseline):
        return (
            f"it ran {len(trial.samples)} times and the safe plan {len(trial.baseline)} times: not in the same rounds"
        )
    if len(trial.samples) < criteria.rounds:
        return f"it was measured in {len(trial.samples)} rounds, and {criteria.rounds} are needed"
    return ""


def judge(trial: Trial, safe_bits: str, criteria: Criteria | None = None) -> Decision:
    """Whether a plan that was measured as a whole program takes the place of the safe plan.

    `safe_bits` is the hash of the safe plan's results.
    """
    criteria = criteria or Criteria()
    unfit = why_unfit(trial, safe_bits, criteria)
    return Decision(trial.plan, False, reason=unfit) if unfit else _judge_ratios(trial.plan, ratios(trial), criteria)


def _judge_ratios(plan: Plan, measured: Sequence[float], criteria: Criteria) -> Decision:
    gain = statistics.median(measured) - 1
    bounds = median_interval(measured, criteria.confidence)
    if bounds is None:
        reason = f"{len(measured)} rounds are too few for a confidence of {criteria.confidence:.0%}"
        return Decision(plan, False, gain, reason=reason)
    decision = Decision(plan, True, gain, bounds[0] - 1, bounds[1] - 1)
    if gain < criteria.threshold:
        reason = f"it gains {_percent(gain)}, and at least {_percent(criteria.threshold)} are needed"
        if gain < 0:
            reason = f"it is slower: {1 / (1 + gain):.2f} times the safe plan's time"
        return replace(decision, accepted=False, reason=reason)
    if decision.low <= 0:
        reason = f"it gains {_span(decision)} at a confidence of {criteria.confidence:.0%}: that may be nothing"
        return replace(decision, accepted=False, reason=reason)
    return decision


def _span(decision: Decision) -> str:
    return f"{_percent(decision.gain)}, between {_percent(decision.low)} and {_percent(decision.high)}"


def _percent(gain: float) -> str:
    return f"{100 * gain:.1f} %"


@frozen
class Group:
    """The trials of one fusion group of a program, which is launched `calls` times in it."""

    signature: Signature
    trials: tuple[Trial, ...]
    safe_bits: str
    calls: int = 1


@frozen
class ProgramDecision:
    """Which plan each group of a program has: tuned ones where they were accepted together, or the safe plan in all."""

    accepted: bool
    plans: Mapping[Signature, Plan]
    gain: float = 0.0
    low: float = 0.0
    high: float = 0.0
    reason: str = ""
    rejected: tuple[tuple[Signature, Trial], ...] = field(default=())
    """Trials of plans that no group has, each with its reason."""


def judge_program(
    groups: Sequence[Group], criteria: Criteria | None = None, other_time: float = 0.0
) -> ProgramDecision:
    """Whether the best plans of a program's groups take the place of the safe ones, all together.

    A group proposes the fastest plan that is surely faster than its safe one, by however little; the threshold is for
    the program, so that many small gains count. Its time in a round is that of its groups, each as often as it is
    called, plus `other_time` nanoseconds of what was not tuned. Groups are measured at different times, so that any
    round of one goes with any of another; those that propose nothing count with the median of their safe plan.
    """
    criteria = criteria or Criteria()
    proposals: list[tuple[Group, Trial]] = []
    rejected: list[tuple[Signature, Trial]] = []
    fixed = other_time
    for group in groups:
        chosen, others = _propose(group, criteria)
        rejected += [(group.signature, trial) for trial in others]
        if chosen is None:
            fixed += group.calls * _safe_time(group)
        else:
            proposals.append((group, chosen))
    safe = {group.signature: Plan() for group in groups}
    if not proposals:
        reason = "no group has a plan that is surely faster than its safe one"
        return ProgramDecision(False, safe, reason=reason, rejected=tuple(rejected))
    decision = _judge_ratios(Plan(), _program_ratios(proposals, fixed), criteria)
    tuned = {**safe, **{group.signature: trial.plan for group, trial in proposals}}
    if not decision.accepted:
        reason = f"its program keeps the safe plan: {decision.reason}"
        rejected += [(group.signature, replace(trial, reason=reason)) for group, trial in proposals]
    return ProgramDecision(
        decision.accepted,
        tuned if decision.accepted else safe,
        decision.gain,
        decision.low,
        decision.high,
        decision.reason,
        tuple(rejected),
    )


def _propose(group: Group, criteria: Criteria) -> tuple[Trial | None, list[Trial]]:
    """The fastest plan that is surely faster than the safe one, and all others with their reasons."""
    any_gain = replace(criteria, threshold=0.0)
    best: tuple[float, str, Trial] | None = None
    others: list[Trial] = []
    for trial in group.trials:
        decision = judge(trial, group.safe_bits, any_gain)
        if not decision.accepted:
            others.append(replace(trial, reason=decision.reason))
            continue
        ranked = (-decision.gain, trial.plan.digest, trial)
        if best is None or ranked[:2] < best[:2]:
            best, ranked = ranked, best
        if ranked is not None:
            others.append(replace(ranked[2], reason="another plan of its group is faster"))
    return (None if best is None else best[2]), others


def _safe_time(group: Group) -> float:
    measured = [time for trial in group.trials for time in trial.baseline]
    return statistics.median(measured) if measured else 0.0


def _program_ratios(proposals: Sequence[tuple[Group, Trial]], fixed: float) -> list[float]:
    """How many times as long a program takes with the safe plans, in each round that all groups have."""
    found: list[float] = []
    for index in range(min(len(trial.samples) for _, trial in proposals)):
        safe = fixed + sum(group.calls * trial.baseline[index] for group, trial in proposals)
        tuned = fixed + sum(group.calls * trial.samples[index] for group, trial in proposals)
        found.append(safe / tuned)
    return found
