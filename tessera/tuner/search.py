"""What to measure next: five modes over one space of plans, under a budget; the best so far is always there.

A mode is a generator: it asks for plans to be measured, a batch at a time, and is sent their trials. What measures,
what stops it (the budget, Ctrl-C) and what is told of it (progress) are the same for all of them, in `_Session`. All
that is drawn comes of the seed: the same trials lead to the same questions.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tessera.diagnostics.codes import SearchError
from tessera.diagnostics.error import find_nearest
from tessera.tuner.cost_model import Predict, Prediction
from tessera.tuner.learned import Correction, Surrogate, correct
from tessera.tuner.protocol import LEAST_ROUNDS, SAME_CODE, Measurer, join, relative_time
from tessera.tuner.records import Plan, Trial
from tessera.types.frozen import frozen

SHARE = 0.25
"""The fraction of a space that hybrid search measures at most."""
LEAST_MEASURED = 4
"""Plans that hybrid search may measure of any space: a quarter of three is none."""
DEFAULT_LIMIT = 64
"""Plans that random and evolutionary search measure where no limit is given."""
MOST_LISTED = 4096
"""Plans of a space that are looked at; of a larger one, so many are drawn."""
CONFIRMED = 3
"""Plans that are measured once more at the end: the fastest of many was lucky too, and its luck does not repeat."""
_CHUNK = 16
"""Plans that are compiled together."""
_HALVING = 3
"""Of so many plans one goes on to the next rung of hyperband, with as many times the rounds."""
_HYBRID_BATCHES = 4
"""Times that hybrid search asks, with a better correction each time."""
_EXPLORED = 1.0
"""Standard deviations that hybrid search hopes for: how much it looks where it knows little."""


# Spaces.


@frozen
class Space:
    """Plans to choose from: a list of them, or all combinations of the values of knobs.

    `reject` says why a plan may not be (a cap of memory, bits that would change), empty where it may: it is then never
    measured, and its reason is kept.
    """

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    listed: tuple[Plan, ...] | None = None
    reject: Callable[[Plan], str] | None = None

    @staticmethod
    def of(plans: Sequence[Plan], reject: Callable[[Plan], str] | None = None) -> Space:
        """Of plans in order of preference."""
        distinct = tuple(dict.fromkeys(plans))
        values: dict[str, dict[Any, None]] = {}
        for plan in distinct:
            for name, value in plan.choices:
                values.setdefault(name, {})[value] = None
        return Space(tuple((name, tuple(found)) for name, found in sorted(values.items())), distinct, reject)

    @staticmethod
    def product(axes: Mapping[str, Sequence[Any]], reject: Callable[[Plan], str] | None = None) -> Space:
        """Of all combinations, the first value of each knob preferred; a knob without values is an error (T0810)."""
        empty = [name for name, values in axes.items() if not values]
        if empty:
            raise SearchError(
                f"the knob `{empty[0]}` has no values to choose from",
                fix="give it at least one, or leave it out of the space",
            )
        plain = Plan.of({name: list(values) for name, values in axes.items()})
        return Space(tuple((name, tuple(dict.fromkeys(values))) for name, values in plain.choices), None, reject)

    @property
    def size(self) -> int:
        """How many plans there are."""
        return math.prod(len(values) for _, values in self.axes) if self.listed is None else len(self.listed)

    def __contains__(self, plan: Plan) -> bool:
        if self.listed is not None:
            return plan in self.listed
        values = dict(self.axes)
        return len(plan.choices) == len(values) and all(
            name in values and value in values[name] for name, value in plan.choices
        )

    def at(self, index: int) -> Plan:
        """The plan of a number; the last knob changes first."""
        if self.listed is not None:
            return self.listed[index]
        choices: list[tuple[str, Any]] = []
        for name, values in reversed(self.axes):
            index, number = divmod(index, len(values))
            choices.append((name, values[number]))
        return Plan(tuple(reversed(choices)))

    def plans(self, rng: random.Random, most: int = MOST_LISTED) -> list[Plan]:
        """All plans, the preferred first; of too many the first, those one knob away from it, and drawn ones."""
        if self.size <= most:
            return [self.at(index) for index in range(self.size)]
        found = dict.fromkeys([self.at(0), *self.neighbours(self.at(0))])
        while len(found) < most:
            found.setdefault(self.at(rng.randrange(self.size)))
        return list(found)[:most]

    def neighbours(self, plan: Plan) -> Iterator[Plan]:
        """Plans of this space that differ by the value of one knob."""
        choices = plan.overrides
        for name, values in self.axes:
            for value in values:
                changed = Plan.of({**choices, name: value})
                if name in choices and value != choices[name] and changed in self:
                    yield changed


# What comes of a search.


@frozen
class Progress:
    """What a search says after each plan."""

    trial: Trial
    done: int
    """Plans so far."""
    expected: int
    """Plans that will be measured at most."""
    best: Trial | None
    seconds: float


@frozen
class Outcome:
    """Every plan that was looked at, and the best of those measured; None where none may win."""

    trials: tuple[Trial, ...]
    best: Trial | None
    size: int
    """Plans of the space."""
    seconds: float
    stopped: str = ""
    """`budget` or `interrupted`, where it did not come to its end."""
    mode: str = ""
    seed: int = 0

    @property
    def measured(self) -> int:
        """Plans that ran on the device at all."""
        return sum(bool(trial.samples) for trial in self.trials)

    @property
    def share(self) -> float:
        """The fraction of the space that ran."""
        return self.measured / self.size if self.size else 0.0


Score: TypeAlias = Callable[[Trial], float]
Tell: TypeAlias = Callable[[Progress], None]


@frozen
class _Ask:
    """Plans to measure in so many rounds; `hints` will probably come next, and are compiled beside them."""

    plans: tuple[Plan, ...]
    rounds: int
    hints: tuple[Plan, ...] = ()


_Mode: TypeAlias = Generator[_Ask, list[Trial], None]


class BudgetError(Exception):
    """The budget is over."""


class _Session:
    """One search as it goes: what is searched, what measures, the clock, and every trial so far."""

    def __init__(self, space: Space, rounds: int, seed: int, measurer: Measurer, score: Score) -> None:
        self.space, self.rounds, self.rng = space, rounds, random.Random(seed)
        self.plans: list[Plan] = []
        self.trials: dict[Plan, Trial] = {}
        self.predictions: dict[Plan, Prediction | None] = {}
        self._refusals: dict[Plan, str] = {}
        self.expected = 0
        self.budget: float | None = None
        self.tell: Tell | None = None
        self._measurer, self._score, self._start = measurer, score, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.monotonic() - self._start

    def left(self) -> float | None:
        """Seconds left; raises where none are."""
        if self.budget is None:
            return None
        left = self.budget - self.seconds
        if left <= 0:
            raise BudgetError
        return left

    def run(self, mode: _Mode) -> str:
        """Do what a mode asks until it ends, the budget does, or the user; why it stopped."""
        try:
            ask = next(mode)
            while True:
                ask = mode.send(self._measure(ask))
        except StopIteration:
            return ""
        except BudgetError:
            return "budget"
        except KeyboardInterrupt:
            return "interrupted"

    def _measure(self, ask: _Ask) -> list[Trial]:
        refused = {plan: self.refusal(plan) for plan in ask.plans}
        wanted = [plan for plan in ask.plans if not refused[plan]]
        failed: Mapping[Plan, str] = {}
        if wanted:
            failed = self._measurer.prepare([*wanted, *(p for p in ask.hints if not self.refusal(p))], self.left())
        return [self._one(plan, ask.rounds, refused[plan] or failed.get(plan, "")) for plan in ask.plans]

    def refusal(self, plan: Plan) -> str:
        """Why a plan may not be measured; empty where it may. It is asked once: an answer may take a lowering."""
        if plan not in self._refusals:
            reason = self.space.reject(plan) if self.space.reject is not None else ""
            self._refusals[plan] = f"rejected: {reason}" if reason else ""
        return self._refusals[plan]

    def admit(self, plans: Sequence[Plan], count: int) -> list[Plan]:
        """The first so many plans that may be measured; why others may not is kept."""
        found: list[Plan] = []
        for plan in plans:
            if len(found) >= count:
                break
            self.left()
            if refusal := self.refusal(plan):
                self.note(plan, refusal)
            else:
                found.append(plan)
        return found

    def feasible(self) -> float:
        """Plans of different code that may be measured, by the part of those asked about that are."""
        refused = sum(bool(reason) for reason in self._refusals.values())
        same = sum(trial.reason.startswith(SAME_CODE) for trial in self.trials.values())
        return len(self.plans) * (1 - (refused + same) / max(1, len(self._refusals)))

    def _one(self, plan: Plan, rounds: int, reason: str) -> Trial:
        if reason:
            trial = Trial(plan, reason=reason)
        else:
            self.left()
            trial = self._measurer.measure(plan, rounds)
        before = self.trials.get(plan)
        trial = self._with_prediction(trial if before is None else join(before, trial))
        self.trials[plan] = trial
        if self.tell is not None:
            done = len(self.trials)
            self.tell(Progress(trial, done, max(self.expected, done), self.best(), self.seconds))
        return trial

    def _with_prediction(self, trial: Trial) -> Trial:
        prediction = self.predictions.get(trial.plan)
        return trial if prediction is None else replace(trial, predicted=prediction.time)

    def score(self, trial: Trial) -> float:
        """Smaller is better; infinite for one that may not win."""
        return self._score(trial) if trial.samples and not trial.reason else math.inf

    def times(self) -> dict[Plan, float]:
        """Scores of all that ran, hopeless ones included: they tell of those like them."""
        return {trial.plan: self._score(trial) for trial in self.trials.values() if trial.samples}

    def best(self) -> Trial | None:
        """The best of those measured in full; of all, where none was yet."""
        able = [trial for trial in self.trials.values() if trial.samples and not trial.reason]
        full = [trial for trial in able if len(trial.samples) >= self.rounds]
        return min(full or able, key=self.score, default=None)

    def note(self, plan: Plan, reason: str) -> None:
        """Keep why a plan was left, unless there is a reason already."""
        trial = self.trials.get(plan) or self._with_prediction(Trial(plan))
        if not trial.reason:
            self.trials[plan] = replace(trial, reason=reason)


# Modes.


def _chunks(plans: Sequence[Plan]) -> Iterator[tuple[Plan, ...]]:
    for start in range(0, len(plans), _CHUNK):
        yield tuple(plans[start : start + _CHUNK])


def _in_order(session: _Session, plans: Sequence[Plan]) -> _Mode:
    """All of some plans: exhaustive and random search differ by which."""
    session.expected = len(plans)
    for chunk in _chunks(plans):
        yield _Ask(chunk, session.rounds)


def _halve(session: _Session, first: Sequence[Plan]) -> _Mode:
    """Hyperband: many plans in few rounds, a third of them in three times as many, and so on, in several brackets.

    The first bracket trusts few rounds most, the last one measures its plans in full: a surface too noisy for the
    first is searched by the last as random search would.
    """
    plans, rounds = session.plans, session.rounds
    rungs = int(math.log(rounds, _HALVING) + 1e-9)
    sizes = [_HALVING**bracket for bracket in range(rungs + 1)]
    session.expected = len(plans)
    for bracket in range(rungs, -1, -1):
        unseen = [plan for plan in plans if plan not in session.trials]
        # Of a large space each bracket takes its part, so that all of it is looked at.
        count = min(len(unseen), max(sizes[bracket], math.ceil(len(plans) * sizes[bracket] / sum(sizes))))
        ahead = [plan for plan in first if plan not in session.trials] if bracket == rungs else []
        alive = list(dict.fromkeys([*ahead, *session.rng.sample(unseen, count)]))[: max(count, len(ahead))]
        for rung in range(bracket, -1, -1):
            target = max(1, round(rounds / _HALVING**rung))
            done = min((len(session.trials[plan].samples) for plan in alive if plan in session.trials), default=0)
            ran: list[Trial] = []
            for chunk in _chunks(alive):
                ran += yield _Ask(chunk, max(1, target - done))
            order = sorted((trial for trial in ran if not trial.reason), key=session.score)
            if rung:
                alive = [trial.plan for trial in order[: max(1, len(order) // _HALVING)]]
                for trial in order[len(alive) :]:
                    session.note(trial.plan, f"left after {len(trial.samples)} of {rounds} rounds")


def _evolve(session: _Session, start: Sequence[Plan], most: int) -> _Mode:
    """Evolutionary: children of the best plans so far, which take each knob from one parent and change some."""
    session.expected = most
    size = max(2, min(_CHUNK, most // 4))
    children = list(start[:size])
    while children and len(session.trials) < most:
        yield _Ask(tuple(children[: most - len(session.trials)]), session.rounds)
        able = sorted((trial for trial in session.trials.values() if not trial.reason), key=session.score)
        children = _children(session, [trial.plan for trial in able[:size]], size)


def _children(session: _Session, parents: Sequence[Plan], size: int) -> list[Plan]:
    """Plans that were not tried yet; where parents have no new ones, drawn ones."""
    found: dict[Plan, None] = {}
    space, rng = session.space, session.rng
    for _ in range(32 * size if parents else 0):
        if len(found) == size:
            break
        # The better of two drawn parents, twice: fast plans have more children.
        one, other = (min(rng.choices(range(len(parents)), k=2)) for _ in range(2))
        taken = {name: value for name, value in parents[other].choices if rng.random() < 0.5}
        child = Plan.of({**parents[one].overrides, **taken})
        if child in session.trials or rng.random() < 0.8:
            near = list(space.neighbours(child))
            child = rng.choice(near) if near else child
        if child in space and child not in session.trials:
            found[child] = None
    if len(found) < size:
        unseen = [plan for plan in session.plans if plan not in session.trials and plan not in found]
        found |= dict.fromkeys(rng.sample(unseen, min(len(unseen), size - len(found))))
    return list(found)


def _hybrid(session: _Session, first: Sequence[Plan], share: float, limit: int) -> _Mode:
    """The model ranks all plans, the device measures the most promising few, and each batch corrects the ranking.

    The next batch is what may be fastest: guessed time less what the guess may be off by. So the search looks where
    the model was wrong, and not only beside what it knows.
    """
    plans, ask, done = session.plans, list(first), 0
    surrogate = Surrogate(plans, [session.predictions.get(plan) for plan in plans])

    def count_allowed() -> int:
        """Plans that may be measured; what was refused, or has another's code, leaves less to measure a part of."""
        return min(limit, max(LEAST_MEASURED, len(first), int(share * session.feasible())))

    while done < count_allowed():
        mean, deviation = surrogate.guess(session.times())
        hope = mean - _EXPLORED * deviation
        unseen = [k for k, plan in enumerate(plans) if plan not in session.trials and plan not in ask]
        likely = [plans[k] for k in sorted(unseen, key=lambda k: (hope[k], k))]
        batch = max(len(ask), math.ceil(count_allowed() / _HYBRID_BATCHES))
        ask = session.admit([*ask, *likely], batch)[: count_allowed() - done]
        if not ask:
            return
        session.expected = count_allowed()
        # All that a first ranking would measure is compiled together, so that later batches find most of it ready.
        later = [plan for plan in likely if plan not in ask and plan not in session.trials]
        hints = session.admit(later, count_allowed() - len(ask)) if not done else []
        trials = yield _Ask(tuple(ask), session.rounds, tuple(hints))
        # What has the code of a plan before it is no plan of its own: another is measured in its place.
        done, ask = done + sum(not trial.reason.startswith(SAME_CODE) for trial in trials), []


MODES = ("exhaustive", "random", "hyperband", "evolutionary", "hybrid")
"""Every plan; drawn ones; many in few rounds and few in many; children of the best; what the model thinks best."""


def _confirm(session: _Session, count: int) -> _Mode:
    """The best few in as many rounds more; of one alone there is nothing to choose."""
    able = sorted(
        (trial for trial in session.trials.values() if math.isfinite(session.score(trial))), key=session.score
    )
    if count and len(able) > 1:
        yield _Ask(tuple(trial.plan for trial in able[:count]), session.rounds)


def search(
    space: Space,
    measurer: Measurer,
    *,
    mode: str = "hybrid",
    predict: Predict | None = None,
    correction: Correction | None = None,
    first: Sequence[Plan] = (),
    budget: float | None = None,
    limit: int | None = None,
    share: float = SHARE,
    rounds: int = LEAST_ROUNDS,
    confirm: int = CONFIRMED,
    seed: int = 0,
    progress: Tell | None = None,
    score: Score = relative_time,
) -> Outcome:
    """Look for the best plan of a space.

    `mode` is one of `MODES`. `predict` is the cost model, `correction` what it learned from earlier trials; `first`
    are plans that are measured before others, such as those of like sizes. No plan begins after `budget` seconds,
    those of compiling included; Ctrl-C ends the search too. Either way the best so far is returned. The best
    `confirm` plans are measured once more before one of them is called the best.

    Raises SearchError (T0810) for a mode, a budget, a limit, a share or rounds that are none.
    """
    _check(mode, budget, limit, share, rounds)
    session = _Session(space, rounds, seed, measurer, score)
    session.budget, session.tell = budget, progress
    ahead = [plan for plan in dict.fromkeys(first) if plan in space]
    session.plans = list(dict.fromkeys([*space.plans(session.rng), *ahead]))
    try:
        session.predictions = _predict_all(session.plans, predict, correction)
        stopped = session.run(_start(session, mode, ahead, limit, share)) or session.run(_confirm(session, confirm))
    except KeyboardInterrupt:  # while predicting
        stopped = "interrupted"
    best = session.best()
    _note_others(session, mode, stopped)
    trials = sorted(session.trials.values(), key=lambda trial: _order_of(trial, score))
    return Outcome(tuple(trials), best, space.size, session.seconds, stopped, mode, seed)


def _check(mode: str, budget: float | None, limit: int | None, share: float, rounds: int) -> None:
    if mode not in MODES:
        near = find_nearest(mode, MODES)
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise SearchError(f"there is no search mode `{mode}`", fix=f"{guess}modes are {', '.join(MODES)}")
    rules = (
        (budget is None or budget > 0, f"`budget` is seconds, more than 0, got {budget}"),
        (limit is None or limit > 0, f"`limit` is a number of plans, at least 1, got {limit}"),
        (0 < share <= 1, f"`share` is a fraction of the space, more than 0 and at most 1, got {share}"),
        (rounds > 0, f"`rounds` is at least 1, got {rounds}"),
    )
    for holds, text in rules:
        if not holds:
            raise SearchError(text, fix="leave it out for the default")


def _predict_all(
    plans: Sequence[Plan], predict: Predict | None, correction: Correction | None
) -> dict[Plan, Prediction | None]:
    if predict is None:
        return {}
    found = {plan: predict(plan) for plan in plans}
    if correction is None:
        return found
    return {plan: one and correct(plan, one, correction) for plan, one in found.items()}


def _start(session: _Session, mode: str, first: Sequence[Plan], limit: int | None, share: float) -> _Mode:
    """The generator of a mode; all begin with `first`, and those without a model go on with drawn plans."""
    rng, plans = session.rng, session.plans
    if mode == "hybrid":
        if not session.predictions:
            count = max(1, int(share * len(plans)) // _HYBRID_BATCHES)
            first = list(dict.fromkeys([*first, *plans[:1], *rng.sample(plans, min(len(plans), count))]))
        return _hybrid(session, first, share, limit or len(plans))
    if mode == "hyperband":
        return _halve(session, first)
    leading = set(first)
    others = [plan for plan in plans if plan not in leading]
    if mode == "exhaustive":
        return _in_order(session, [*first, *others][:limit])
    most = min(len(plans), limit or DEFAULT_LIMIT)
    drawn = [*first, *rng.sample(others, len(others))]
    if mode == "random":
        return _in_order(session, drawn[:most])
    if session.predictions:
        drawn = [*first, *sorted(others, key=lambda plan: _time_of(session.predictions.get(plan)))]
    return _evolve(session, drawn, most)


def _time_of(prediction: Prediction | None) -> float:
    return math.inf if prediction is None else prediction.time


def _note_others(session: _Session, mode: str, stopped: str) -> None:
    """Keep of every plan that was not measured why it was not."""
    reason = "not among those that were drawn"
    if stopped:
        reason = "not reached: " + (
            f"the budget of {session.budget:.4g} s was over" if stopped == "budget" else stopped
        )
    elif mode == "hybrid":
        reason = "pruned by the model"
    for plan in session.plans:
        if plan not in session.trials:
            session.note(plan, reason)


def _order_of(trial: Trial, score: Score) -> tuple[bool, float, bool, float]:
    """Winners first, by score; then what was measured and may not win; then others by prediction."""
    has_score = bool(trial.samples) and not trial.reason
    return (
        not has_score,
        score(trial) if has_score else 0.0,
        not trial.samples,
        math.inf if trial.predicted is None else trial.predicted,
    )


# Several objectives.


def weigh(values: Callable[[Trial], Mapping[str, float]], weights: Mapping[str, float]) -> Score:
    """A score of several objectives: the product of their values, each to the power of its weight.

    Powers rather than multiples, so that units do not matter: nanoseconds and bytes weigh by what fraction they change.
    """

    def score(trial: Trial) -> float:
        found = values(trial)
        return math.exp(sum(weight * math.log(max(found[name], 1e-30)) for name, weight in weights.items()))

    return score


def pareto(trials: Sequence[Trial], values: Callable[[Trial], Mapping[str, float]]) -> list[Trial]:
    """Trials that may win and that no other beats in one objective without being worse in another."""
    able = [(trial, values(trial)) for trial in trials if trial.samples and not trial.reason]

    def is_beaten(own: Mapping[str, float]) -> bool:
        return any(
            all(other[name] <= own[name] for name in own) and any(other[name] < own[name] for name in own)
            for _, other in able
        )

    return [trial for trial, own in able if not is_beaten(own)]
