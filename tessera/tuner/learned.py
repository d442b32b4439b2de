"""What the model gets wrong, learned from trials: a ridge over the database, a Gaussian process within one search.

Both predict the logarithm of measured over predicted time, so that where nothing is known the model's own ranking
stays. Sums are NumPy's in double precision over a fixed order of rows: the same trials give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np

from tessera.tuner.cost_model import Prediction
from tessera.tuner.records import Plan, Trial
from tessera.types.frozen import frozen

Array: TypeAlias = np.ndarray[Any, Any]
Features: TypeAlias = Mapping[str, float]

RIDGE = 1.0
"""What holds weights of standardized features back: as much as one row of trials that says they are 0."""
NOISE = 0.02
"""Standard deviation of a measured logarithm of time: repeated medians of ten runs differ by about 2 %."""
_REACH = 1.5
"""How far what was measured tells of others, in standard deviations of all features together.

Of 0.7 to 2 the best on 250 drawn surfaces (`tests/tuner/search/surfaces.py`) with models that are off by 20 and 30 %.
"""


@frozen
class Example:
    """One trial to learn from: features of its prediction, and nanoseconds predicted and measured."""

    features: tuple[tuple[str, float], ...]
    predicted: float
    measured: float


@frozen
class Correction:
    """Weights of features by name; of what the logarithm of measured over predicted time is made."""

    intercept: float = 0.0
    weights: tuple[tuple[str, float, float, float], ...] = ()
    """Name, mean and standard deviation of a feature among examples, and its weight."""
    examples: int = 0

    @staticmethod
    def fit(examples: Sequence[Example], ridge: float = RIDGE) -> Correction:
        """The ridge over examples; none of them, none of it."""
        usable = [one for one in examples if _is_usable(one.predicted) and _is_usable(one.measured)]
        if not usable:
            return Correction()
        names = sorted({name for one in usable for name, _ in one.features})
        values, mean, scale = _standardize([dict(one.features) for one in usable], names)
        residual = np.log([one.measured / one.predicted for one in usable])
        center = float(residual.mean())
        gram = values.T @ values + ridge * np.eye(len(names))
        weights = np.linalg.solve(gram, values.T @ (residual - center)) if names else np.zeros(0)
        rows = zip(names, mean.tolist(), scale.tolist(), weights.tolist(), strict=True)
        return Correction(center, tuple(rows), len(usable))

    def factor(self, prediction: Prediction) -> float:
        """How many times as long as predicted it takes; what was not among examples is taken as their mean."""
        found, total = dict(prediction.features), self.intercept
        for name, mean, scale, weight in self.weights:
            # A size beyond all examples counts as three standard deviations: a line says nothing far away.
            away = (found.get(name, mean) - mean) / scale
            total += weight * min(3.0, max(-3.0, away))
        return math.exp(min(20.0, max(-20.0, total)))

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with what was learned."""
        return Prediction(prediction.time * self.factor(prediction), prediction.features, prediction.bound)

    def as_json(self) -> dict[str, Any]:
        """Plain values, of which `from_json` makes the same correction."""
        return {"intercept": self.intercept, "weights": [list(row) for row in self.weights], "examples": self.examples}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Correction:
        """What `as_json` was made from."""
        rows = tuple((str(name), float(mean), float(scale), float(w)) for name, mean, scale, w in values["weights"])
        return Correction(float(values["intercept"]), rows, int(values["examples"]))


def examples_of(trials: Iterable[Trial]) -> list[Example]:
    """Trials that were predicted and measured, as those of a database are, by the choices of their plans.

    Features of a prediction are not kept with a trial; choices are, and say where a model is wrong for all sizes.
    """
    return [
        Example(tuple(sorted(choice_features(trial.plan).items())), trial.predicted, trial.time)
        for trial in trials
        if trial.predicted is not None and trial.time is not None
    ]


def correct(plan: Plan, prediction: Prediction, correction: Correction) -> Prediction:
    """A prediction with what was learned of its features, and of the choices of its plan."""
    features = {**dict(prediction.features), **choice_features(plan)}
    factor = correction.factor(Prediction.of(prediction.time, features))
    return Prediction(prediction.time * factor, prediction.features, prediction.bound)


def choice_features(plan: Plan) -> dict[str, float]:
    """The choices of a plan as numbers, by knob alone: groups of other sizes have other names, and the same knobs."""
    return plan_features(Plan.of({name.partition("@")[0]: value for name, value in plan.choices}))


def _is_usable(nanoseconds: float) -> bool:
    return math.isfinite(nanoseconds) and nanoseconds > 0


def _standardize(rows: Sequence[Features], names: Sequence[str]) -> tuple[Array, Array, Array]:
    """Features as a matrix of mean 0 and deviation 1, what was taken away and what it was divided by.

    One that is missing is the mean of others; one that is the same everywhere becomes 0.
    """
    plain = np.array([[row.get(name, np.nan) for name in names] for row in rows], dtype=np.float64)
    plain = plain.reshape(len(rows), len(names))
    mean = np.array([column[~np.isnan(column)].mean() if not np.isnan(column).all() else 0.0 for column in plain.T])
    filled = np.where(np.isnan(plain), mean, plain)
    scale = filled.std(axis=0) if len(rows) else np.ones(len(names))
    scale = np.where(scale > 1e-9, scale, 1.0)
    return (filled - mean) / scale, mean, scale


class Surrogate:
    """Guesses plans of one search by those that were measured: a Gaussian process over knobs and features of the model.

    Its mean before any trial is the model's prediction, so it ranks as the model does; each trial corrects those
    like it, and how unsure it is of others says where a measurement tells most.
    """

    def __init__(self, plans: Sequence[Plan], predictions: Sequence[Prediction | None]) -> None:
        self._index = {plan: number for number, plan in enumerate(plans)}
        self._prior = _prior_of(predictions)
        chosen = [plan_features(plan) for plan in plans]
        absent = {name: 0.0 for row in chosen for name in row}  # a word that was not chosen is 0, not unknown
        rows = [
            {**absent, **row, **(dict(one.features) if one is not None else {})}
            for row, one in zip(chosen, predictions, strict=True)
        ]
        names = sorted({name for row in rows for name in row})
        values, _, _ = _standardize(rows, names)
        # Features that say the same, as knobs and sizes that follow of them do, count together as much as one.
        self._values = values / math.sqrt(max(1, np.linalg.matrix_rank(values) if values.size else 1))

    def guess(self, times: Mapping[Plan, float]) -> tuple[Array, Array]:
        """Logarithm of the time of every plan, and its standard deviation, by the times of those measured."""
        known = [(self._index[plan], time) for plan, time in times.items() if plan in self._index and _is_usable(time)]
        if not known:
            return self._prior.copy(), np.ones_like(self._prior)
        at = np.array([number for number, _ in known])
        residual = np.log([time for _, time in known]) - self._prior[at]
        center = float(np.median(residual))
        signal = max(float(np.mean((residual - center) ** 2)), 4 * NOISE**2)
        among = signal * self._likeness(at, at) + NOISE**2 * np.eye(len(at))
        toward = signal * self._likeness(np.arange(len(self._prior)), at)
        solved = np.linalg.solve(among, np.column_stack([residual - center, toward.T]))
        mean = self._prior + center + toward @ solved[:, 0]
        variance = signal - np.einsum("ij,ji->i", toward, solved[:, 1:])
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def _likeness(self, rows: Array, columns: Array) -> Array:
        """1 for the same plan, less for one whose features differ."""
        left, right = self._values[rows], self._values[columns]
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * left @ right.T
        return np.exp(-np.maximum(squares, 0.0) / (2 * _REACH**2))


def _prior_of(predictions: Sequence[Prediction | None]) -> Array:
    """Logarithms of predicted times; where the model cannot say, the median of others, and where it never can, 0."""
    known = [math.log(one.time) for one in predictions if one is not None and _is_usable(one.time)]
    middle, worst = (float(np.median(known)), max(known)) if known else (0.0, 0.0)

    def log_of(one: Prediction | None) -> float:
        if one is None:
            return middle
        return math.log(one.time) if _is_usable(one.time) else worst + 10.0

    return np.array([log_of(one) for one in predictions], dtype=np.float64)


def plan_features(plan: Plan) -> dict[str, float]:
    """The choices of a plan as numbers: logarithms of sizes, each word by itself.

    >>> plan_features(Plan.of({"order": "rows"}))
    {'order is rows': 1.0}
    """
    found: dict[str, float] = {}
    for knob, value in plan.choices:
        parts: list[Any] = list(cast(tuple[Any, ...], value)) if isinstance(value, tuple) else [value]
        if all(isinstance(part, int | float) for part in parts):
            logs = [math.copysign(math.log1p(abs(part)), part) for part in parts]
            found |= {f"{knob}.{number}": log for number, log in enumerate(logs)}
            if len(logs) > 1:
                found[f"{knob} all"] = sum(logs)
        else:
            found[f"{knob} is {value}"] = 1.0
    return found


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """How well two rankings agree, from -1 to 1; equal values share their rank, and constant ones agree with nothing.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    if len(one) != len(other):
        raise ValueError(f"rankings of {len(one)} and {len(other)} values")
    left, right = _ranks(one), _ranks(other)
    left, right = left - left.mean() if len(one) else left, right - right.mean() if len(one) else right
    norm = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / norm if norm else 0.0


def _ranks(values: Sequence[float]) -> Array:
    plain = np.asarray(values, dtype=np.float64)
    order = np.argsort(plain, kind="stable")
    ranks = np.empty(len(plain))
    ordered = plain[order]
    starts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(ordered)) if a != b), len(plain)]
    for start, stop in pairwise(starts):
        ranks[order[start:stop]] = (start + stop - 1) / 2
    return ranks
