"""`fit`: the loop around a step, with a progress bar, callbacks, a history, and checkpoints to continue from."""

from __future__ import annotations

import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from tessera.diagnostics.codes import ArgumentError, NumericsError
from tessera.diagnostics.frames import guard_class
from tessera.distributed.placement import gather_objects
from tessera.frontend.arguments import check_bool, check_callables, check_int
from tessera.train.checkpointer import Checkpointer
from tessera.train.progress import Display, History, Rate, bytes_in_use, format_bytes, least_seconds
from tessera.train.state import find_nonfinite, find_on_device, move_batch, step_of
from tessera.train.step import tokens_of

Callback = Callable[["Event"], "Mapping[str, Any] | None"]


class Fit(NamedTuple):
    """What a run gives: the last state, and the history of its metrics."""

    state: Any
    history: History


@guard_class
class Event:
    """What a callback gets after a step: its number, the state, the history so far; `stop()` ends the run after it.

    The state is consumed by the next step: a callback that keeps some of it copies that. `metrics` are numbers; to read
    them waits for the step on a GPU.
    """

    def __init__(self, step: int, state: Any, metrics: Mapping[str, Any], history: History) -> None:
        self.step, self.state, self.history = step, state, history
        self._metrics, self.is_stopped = metrics, False

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the step."""
        return {name: float(value) for name, value in self._metrics.items()}

    def stop(self) -> None:
        """Let this be the last step."""
        self.is_stopped = True

    def __repr__(self) -> str:
        return f"Event(step {self.step})"


def every(steps: int, callback: Callback) -> Callback:
    """A callback at every so many steps alone.

    >>> seen = []
    >>> callback = ts.train.every(2, lambda event: seen.append(event.step))
    >>> for step in range(1, 6):
    ...     callback(ts.train.Event(step, None, {}, ts.train.History()))
    >>> seen
    [2, 4]
    """
    check_callables("every", callback=callback)
    if check_int("every", "steps", steps) < 1:
        raise ArgumentError(f"`every` takes `steps` from 1, got {steps}")
    return lambda event: callback(event) if event.step % steps == 0 else None


def fit(
    step: Callable[..., Any],
    state: Any,
    batches: Iterable[Any],
    *,
    steps: int | None = None,
    checkpoints: Checkpointer | None = None,
    save_every: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    check_finite: bool = True,
) -> Fit:
    """Train: `state, metrics = step(state, batch)` for each batch, until `steps` steps are taken in all.

    Without `steps` it goes over the batches once; with it, again and again. `step` is that of `make_step`, or any
    function of that form; `state` is consumed where it donates it. Where the state is on a GPU, batches are copied
    there while the step before runs.

    With `checkpoints` the state, the position of a loader and the history are saved every `save_every` steps and at the
    end, also where the user interrupts it (Ctrl-C); a run that finds a checkpoint continues from the last one, bit for
    bit as if it had never stopped. Batches of something else than a `ts.data.Loader` are then read from the start, and
    those that were used are skipped. Where the step has a recipe, so have the checkpoints, the same one: all ranks call
    `fit`, and each saves and restores its parts.

    `callbacks` are called after each step with an `Event`; what one returns, a dict of numbers, goes into the history.
    Metrics are read one step late, so that a GPU never waits. The bar shows the loss, tokens (or items) per second, the
    share of the machine's peak where it is known, and memory.

    Raises: NumericsError (T0708) where the loss, or a parameter that is to be saved, is not finite, unless
    `check_finite=False`. Such a state is never saved: the last checkpoint is one to continue from.

    >>> optimizer = ts.optim.sgd(0.1)
    >>> step = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), optimizer)
    >>> state, history = ts.train.fit(
    ...     step, ts.train.State.init(ts.zeros(()), optimizer), [ts.ones((4,))], steps=50, progress=False
    ... )
    >>> history.steps[-1], history["loss"][-1] < 1e-8
    (50, True)
    """
    _check_arguments(step, steps, save_every, checkpoints, callbacks)
    _check_recipe(step, checkpoints)
    check_bool("fit", "progress", progress)
    check_bool("fit", "check_finite", check_finite)
    run = _Run(step, state, check_finite, tuple(callbacks), checkpoints)
    run.resume(batches)
    with Display(steps, run.taken, is_shown=progress) as display, _interrupts() as interrupted:
        for batch in _stream(batches, steps, run.taken, run.used):
            run.take(batch, display)
            is_last = bool(interrupted) or run.is_stopped or (steps is not None and run.taken >= steps)
            if is_last:
                break
            if save_every is not None and run.taken % save_every == 0:
                run.save(batches)
        run.finish(batches)
    if interrupted:
        raise KeyboardInterrupt
    return Fit(run.state, run.history)


class _Run:
    """One call of `fit`: where it is, and what it has seen."""

    def __init__(
        self,
        step: Callable[..., Any],
        state: Any,
        check_finite: bool,
        callbacks: tuple[Callback, ...],
        checkpoints: Checkpointer | None,
    ) -> None:
        self._step, self.state, self._check = step, state, check_finite
        self._callbacks, self._checkpoints = callbacks, checkpoints
        self.history, self.taken, self.is_stopped = History(), step_of(state), False
        self._pending: deque[tuple[int, Mapping[str, Any]]] = deque()
        self._rate, self._least, self._saved = Rate(), None, -1
        self._looked, self._like = 0, None
        self.used = 0
        """Batches that a run which continues has used before, where they have no position to go back to."""

    def resume(self, batches: Any) -> None:
        """Continue from the last checkpoint, if there is one."""
        if self._checkpoints is None or self._checkpoints.latest() is None:
            return
        found = self._checkpoints.restore(self.state)
        self.state, self.taken, self._saved = found.tree, found.step, found.step
        self.history = History.from_json(found.notes.get("history", {}))
        if found.notes.get("data") is not None and hasattr(batches, "restore"):
            batches.restore(found.notes["data"])
        else:
            self.used = self.taken

    def take(self, batch: Any, display: Display) -> None:
        """One step."""
        if self._looked < 2:  # where a step runs may be told by the state, or by its own backend, which moves the state
            self._looked, self._like = self._looked + 1, find_on_device(self.state)
        found = self._step(self.state, move_batch(batch, self._like))
        if not (isinstance(found, tuple) and len(cast("tuple[Any, ...]", found)) == 2 and isinstance(found[1], dict)):
            raise ArgumentError(
                "a step gives a pair: the new state, and a dict of metrics", fix='write `return state, {"loss": loss}`'
            )
        self.state, metrics = cast("tuple[Any, dict[str, Any]]", found)
        self.taken += 1
        self._pending.append((self.taken, metrics))
        self._read(1)
        self._rate.tick()
        for callback in self._callbacks:
            event = Event(self.taken, self.state, metrics, self.history)
            more = callback(event)
            self.is_stopped |= event.is_stopped
            if more:
                self._read(0)
                self.history.add(self.taken, more)
        if display.is_due(self.taken):
            self._read(0)
            display.show(self.taken, self._facts(batch))

    def _read(self, left: int) -> None:
        """Take the metrics of steps into the history, but those of the last `left`, which may be running."""
        while len(self._pending) > left:
            number, metrics = self._pending.popleft()
            values = {name: float(value) for name, value in metrics.items()}
            self.history.add(number, values)
            if self._check and not math.isfinite(values.get("loss", 0.0)):
                raise self._divergence(f"the loss of step {number} is {values['loss']}", f"metrics: {values}")

    def _check_parameters(self) -> None:
        """Refuse to save parameters that are not finite: the loss of the step that made them may be."""
        name = find_nonfinite(getattr(self.state, "params", self.state)) if self._check else None
        if self._check and recipe_of(self._step) is not None:  # a rank has parts: what one finds, all refuse to save
            told = gather_objects(name, "whether parameters are finite")
            name = next((one for one in told if one is not None), None)
        if name is not None:
            raise self._divergence(
                f"the update of step {self.taken} made `{name}` NaN or infinite",
                f"the loss of the step, computed before the update, is {self.history.last.get('loss')}",
            )

    def _divergence(self, what: str, *notes: str) -> NumericsError:
        if self._checkpoints is not None:
            self._checkpoints.wait()  # the one that is being written counts
        last = None if self._checkpoints is None else self._checkpoints.latest()
        kept = () if last is None else (f"the last checkpoint is of step {last}: the next run continues from it",)
        fix = "train with a smaller learning rate, or clip gradients; `check_finite=False` goes on"
        return NumericsError(what, notes=(*notes, *kept), fix=fix)

    def _facts(self, batch: Any) -> dict[str, str]:
        """What the bar shows."""
        facts = {name: f"{value:.4g}" for name, value in self.history.last.items()}
        facts = {"": f"loss {facts.pop('loss')}" if "loss" in facts else "", **facts}
        rate = self._rate.steps_per_second
        if rate:
            count, unit = tokens_of(batch)
            facts[f"{unit}/s"] = f"{count * rate:,.0f}"
            self._least = self._least or least_seconds(self._step) or -1.0
            if self._least > 0:
                facts["% of peak"] = f"{100 * self._least * rate:.0f}"
        facts["memory"] = format_bytes(bytes_in_use())
        return facts

    def save(self, batches: Any) -> None:
        """Save a checkpoint of now."""
        if self._checkpoints is None or self._saved == self.taken:
            return
        self._read(0)
        self._check_parameters()
        data = batches.state() if hasattr(batches, "state") and hasattr(batches, "restore") else None
        self._checkpoints.save(self.taken, self.state, {"data": data, "history": self.history.to_json()})
        self._saved = self.taken

    def finish(self, batches: Any) -> None:
        """Read what is left to be read, and save."""
        self._read(0)
        self.save(batches)
        if self._checkpoints is not None:
            self._checkpoints.wait()


def _stream(batches: Iterable[Any], steps: int | None, taken: int, used: int) -> Iterator[Any]:
    """The batches of a run: once without the first `used`, or over and over up to `steps`, from step `taken` on."""
    skip = used if steps is None or hasattr(batches, "restore") else taken
    if steps is not None and taken >= steps:
        return
    while True:
        count = 0
        for batch in batches:
            count += 1
            if skip:
                skip -= 1
                continue
            yield batch
        if steps is None:
            return
        if not count:
            raise ArgumentError(
                f"there are no more batches, and `fit` is to take {steps} steps",
                fix="pass a `ts.data.Loader` or a list, which can be read again, or leave `steps` out",
            )


@contextmanager
def _interrupts() -> Generator[list[int]]:
    """Within it, the first Ctrl-C is noted in the list and the step in work finishes; the second one interrupts."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    former = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if seen and callable(former):
            former(number, frame)
        seen.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, former)


def recipe_of(step: Any) -> Any:
    """The recipe of a step of `make_step`, or None."""
    found = getattr(step, "recipe", None)
    return found if found is not None else getattr(getattr(step, "function", None), "recipe", None)


def _check_recipe(step: Any, checkpoints: Checkpointer | None) -> None:
    """Raises ArgumentError (T0202) where checkpoints would be of one rank's parts, or of another recipe's."""
    own, theirs = recipe_of(step), None if checkpoints is None else checkpoints.recipe
    if checkpoints is not None and own is not theirs:
        said = ["none" if one is None else str(one) for one in (own, theirs)]
        raise ArgumentError(
            f"the step and the checkpoints have different recipes: {said[0]}, and {said[1]}",
            notes=("rule: where ranks have parts of a state, each saves and restores its own",),
            fix="write `ts.train.Checkpointer(folder, recipe=recipe)` with the recipe of the step",
        )


def _check_arguments(step: Any, steps: Any, save_every: Any, checkpoints: Any, callbacks: Sequence[Any]) -> None:
    check_callables("fit", step=step, **{f"callbacks[{at}]": one for at, one in enumerate(callbacks)})
    for name, value, least in (("steps", steps, 0), ("save_every", save_every, 1)):
        if value is not None and check_int("fit", name, value) < least:
            raise ArgumentError(f"`fit` takes `{name}` from {least}, got {value}")
    if checkpoints is not None and not isinstance(checkpoints, Checkpointer):
        raise ArgumentError(
            f"`fit` takes a `Checkpointer`, got {checkpoints!r}", fix="write `ts.train.Checkpointer(folder)`"
        )
    if save_every is not None and checkpoints is None:
        raise ArgumentError("`save_every` needs `checkpoints`", fix="give `checkpoints=ts.train.Checkpointer(folder)`")
