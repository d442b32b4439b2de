"""Tuning while a program serves: `with autotune.online(step, budget=60):` measures other plans between its calls.

Another process measures, at the lowest priority and with tensors of its own; this one counts calls, says which programs
take most time, and adopts what was found to pay. So a call never waits for a measurement: it neither shares a lock nor
the GIL with one, and a run that it comes in on is thrown away.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import TracebackType
from typing import Any, Self

from tessera.api.compilation import device_of, load
from tessera.api.constants import given_shapes
from tessera.api.jit import Jit
from tessera.api.online_worker import Answer, Request
from tessera.api.program_tuning import check_effects, check_settings, compiled_options
from tessera.api.specialization import Specialization
from tessera.api.stored_plans import program_signature, stored_plans
from tessera.api.workload import why_in_process
from tessera.compiler.backend import manifest_of
from tessera.diagnostics.codes import TuningError
from tessera.diagnostics.error import TesseraError, format_count
from tessera.frontend.bind import bind_arguments
from tessera.frontend.pytree import flatten, unflatten
from tessera.runtime.launch import check_dims
from tessera.runtime.ranks import world
from tessera.tuner.protocol import first_line
from tessera.tuner.records import Plan
from tessera.tuner.runner import start_child
from tessera.tuner.spare_time import CallCounter
from tessera.types.frozen import frozen

LOWEST = 19
"""The niceness of the process that measures: whatever else wants a CPU has it first."""
MEMORY = 1 << 30
"""Bytes of a program's inputs and results up to which it is tuned: the process that measures has tensors of its own."""
_POLL = 0.02
"""Seconds between two looks of the thread that watches."""
_MAIN = "from tessera.api.online_worker import serve; serve()"


@frozen
class OnlineProgram:
    """What became of one program: how hot it was, and the plan it has, or why it has none."""

    name: str
    signature: str
    calls: int
    seconds: float
    """That its calls took while it was watched."""
    plan: Plan = Plan()
    state: str = "waiting"
    """`waiting`, `measuring`, `adopted`, `kept` the safe plan, `skipped`, or `unfinished` where all has ended."""
    gain: float = 0.0
    reason: str = ""
    runs: int = 0

    def __str__(self) -> str:
        gain = f", {self.gain:+.1%}" if self.state == "adopted" else ""
        why = f": {self.reason}" if self.reason else ""
        done = f"{self.calls} calls in {self.seconds:.3f} s, {self.runs} timed runs"
        return f"{self.name} {self.signature}: {self.state} {self.plan}{gain}{why} ({done})"


class _Program:
    """A program that is watched: whose it is, its code, and what is known of it."""

    def __init__(self, owner: Jit, made: Specialization) -> None:
        self.owner, self.made = owner, made
        self.calls, self.seconds = 0, 0.0
        self.state, self.reason = "waiting", ""
        self.answer = Answer(Plan())
        self.sizes: dict[str, int] | None = None
        """The symbolic dims in a call, once they were looked at."""

    def find_sizes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep the symbolic dims of a call, and none of its tensors."""
        tape, sizes = self.made.traced.tape, dict[str, int]()
        if any(dim.symbols for value in tape.inputs for dim in tape.types[value].shape):
            given = _replace_donated(self.owner, args, kwargs)
            tensors = self.owner.prepare(*given.args, **given.kwargs)[2]
            executable: Any = getattr(self.made.loaded, "executable")  # noqa: B009 - the protocol does not have it
            sizes = dict(check_dims(executable, given_shapes(executable, tensors)))
        self.sizes = sizes

    def skip(self, error: TesseraError) -> None:
        """Measure nothing of it."""
        self.state, self.reason = "skipped", error.message

    def report(self, stopped: str) -> OnlineProgram:
        """What is known of it; `stopped` is why nothing is measured any more."""
        tape, answer, state, reason = self.made.traced.tape, self.answer, self.state, self.reason
        if stopped and state in ("waiting", "measuring"):
            state, reason = "unfinished", f"ended by {stopped}"
        text = ", ".join(str(tape.types[value]) for value in tape.inputs)
        facts = (answer.plan, state, answer.gain, reason, answer.runs)
        return OnlineProgram(self.owner.name, f"({text})", self.calls, self.seconds, *facts)


def _replace_donated(owner: Jit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call that is over, other tensors in the place of those that were donated to it."""
    bound = bind_arguments(owner.python_signature, args, kwargs)
    for name in owner.donate:
        leaves, form = flatten(bound.arguments[name], keep_order=True)
        bound.arguments[name] = unflatten(form, [_make_alike(leaf) for leaf in leaves])
    return bound


def _make_alike(leaf: Any) -> Any:
    kind: Any = leaf.__class__
    return kind.empty(leaf.shape, leaf.dtype) if hasattr(kind, "empty") else leaf


class _Watched(Jit):
    """A jitted function whose calls are counted: what a function is while it is tuned online."""

    __slots__ = ()

    @staticmethod
    def latest_code(function: Jit) -> Callable[..., Any] | None:
        """What a function has called last."""
        scoped, recent = function._scoped, function._recent
        if not recent and scoped is not None:
            recent = scoped.made._recent
        return recent[0] if recent else None

    @staticmethod
    def programs(function: Jit) -> list[tuple[Jit, Specialization]]:
        """All that was compiled of a function, watched or no more, with the function that has it."""
        return [(one, made) for one in function._all() for made in one.specializations]


def _call_watched(call: Callable[..., Any], function: Jit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function by `call`, and count it; one that is watched no more by now, in another thread, is called."""
    watch: Online | None = function.__dict__.get("_online")
    if watch is None:
        return call(function, *args, **kwargs)
    watch.calls.enter()
    began = time.perf_counter_ns()
    try:
        return call(function, *args, **kwargs)
    finally:
        took = time.perf_counter_ns() - began
        watch.calls.leave(is_settled=not watch.devices)
        if (fast := _Watched.latest_code(function)) is not None:
            watch.note(fast, took, args, kwargs)


@cache
def _make_watched(cls: type[Jit]) -> type[Jit]:
    """A class of jitted functions, watched."""

    # It calls the class that it was made of, and no `super()`: a function may have that class again during its calls.
    def call(self: Jit, /, *args: Any, **kwargs: Any) -> Any:
        return _call_watched(cls.__call__, self, args, kwargs)

    return type(f"Watched{cls.__name__}", (_Watched, cls), {"__slots__": (), "__call__": call})


_Sample = tuple[Sequence[Any], Mapping[str, Any]]
_SWAPPING = threading.Lock()
"""Held where functions begin and cease to be watched."""


class Online:
    """Tuning while functions serve; a context manager, and `start` and `stop` for those who have no block to put it in.

    `report()` gives every program that was called, hottest first; printed, it is a page.
    """

    calls: CallCounter
    """The calls of all functions, from `start` on; its memory goes with `stop`."""

    def __init__(self, functions: Sequence[Jit], settings: tuple[float, float, float, float], memory: int) -> None:
        """`settings` are budget, share, quiet seconds and threshold."""
        self._functions, self._memory = tuple(dict.fromkeys(functions)), memory
        self.budget, self._share, self._quiet, self._threshold = settings
        self.devices: dict[Any, None] = {}
        """Devices of programs that return before they are done."""
        self.used, self.discarded = 0.0, 0
        self.stopped = ""
        """Why nothing is measured any more: `budget`, `stop`, or what failed; empty while it goes on."""
        self.niceness, self.setup = LOWEST, ""
        self._programs: dict[Any, _Program] = {}
        self._times: dict[Any, tuple[int, int]] = {}
        self._samples: dict[Any, _Sample] = {}
        """Arguments of programs whose sizes nobody has looked at yet."""
        self._classes: dict[Jit, type[Jit]] = {}
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._child: _Worker | None = None
        self._lock = threading.Lock()
        """Of programs, which the thread that watches and whoever wants a report look for; no call takes it."""
        self._noting = threading.Lock()
        """Of times and samples; held for microseconds, as calls take it. It may be taken within `_lock`."""

    def note(self, fast: Callable[..., Any], took: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A call is over: what ran, the nanoseconds it took, and its arguments."""
        with self._noting:
            if self._end.is_set():
                return
            count, total = self._times.get(fast, (0, 0))
            self._times[fast] = count + 1, total + took
            if fast not in self._programs and not self.stopped:
                self._samples.setdefault(fast, (args, kwargs))

    def start(self) -> Self:
        """Watch the functions from now on."""
        with _SWAPPING:
            if self._thread is not None:
                fix = "make another: `ts.autotune.online(...)`"
                raise TuningError("this online tuning was started before", fix=fix)
            for function in self._functions:
                if "_online" in function.__dict__:
                    raise TuningError(f"`{function.name}` is tuned online already", fix="stop the other one first")
            self.calls = CallCounter()
            for function in self._functions:
                function.__dict__["_online"] = self
                self._classes[function] = type(function)
                function.__class__ = _make_watched(type(function))
            self._thread = threading.Thread(target=self._watch, name="tessera-online", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Measure nothing any more, and end the process that did; plans that were adopted stay."""
        with self._noting:
            self._end.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with _SWAPPING:
            for function, kind in self._classes.items():
                function.__class__ = kind
                del function.__dict__["_online"]
            self._classes.clear()
            self._account()
            self._samples.clear()
            self.stopped = self.stopped or "stop"
            if self._thread is not None:
                self.calls.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def report(self) -> list[OnlineProgram]:
        """Every program that was called since, hottest first."""
        self._account()
        with self._lock:
            programs = sorted(self._programs.values(), key=lambda one: -one.seconds)
            return [one.report(self.stopped) for one in programs]

    def __str__(self) -> str:
        ended = f", ended by {self.stopped}" if self.stopped else ""
        head = (
            f"online: {self.used:.1f} of {self.budget:g} s used, {format_count(self.discarded, 'run')} discarded{ended}"
        )
        return "\n".join([head, *(f"  {one}" for one in self.report())])

    __repr__ = __str__

    # In the thread that watches.

    def _watch(self) -> None:
        try:
            while not self._end.wait(_POLL) and not self.stopped:
                self._settle()
                self._account()
                self._find_sizes()
                self._ask()
        except Exception as error:  # whatever goes wrong here, calls go on; the report says what it was
            self.stopped = f"failed: {first_line(error)}"
        finally:
            if self._child is not None:
                self._follow(self._child)
                self._child.close()
                self._child = None
            with self._noting:
                self._samples.clear()

    def _settle(self) -> None:
        """Say when devices are done with the calls that have returned."""
        if self.devices and self.calls.is_unsettled:
            started = self.calls.started
            for device in self.devices:
                device.synchronize()
            self.calls.settle(started)

    def _account(self) -> None:
        """Add up the calls of each program."""
        with self._lock:
            with self._noting:
                times = dict(self._times)
            for fast, (count, total) in times.items():
                if fast in self._programs or self._find(fast):
                    one = self._programs[fast]
                    one.calls, one.seconds = count, total / 1e9
                    continue
                with self._noting:
                    self._times.pop(fast, None)
                    self._samples.pop(fast, None)

    def _find(self, fast: Any) -> bool:
        for function in self._functions:
            for owner, made in _Watched.programs(function):
                if made.fast is fast:
                    self._programs[fast] = _Program(owner, made)
                    device = device_of(manifest_of(compiled_options(owner, made).backend))
                    if device.is_asynchronous:
                        self.devices = {**self.devices, device: None}
                    return True
        # Code that was exchanged while a call was on its way to it: the next call looks for it anew.
        for function in self._functions if not self._end.is_set() else ():
            function.forget_code(retraces=False)
        return False

    def _find_sizes(self) -> None:
        """Look at the arguments of programs that are new, and let them go."""
        with self._lock, self._noting:
            found = [(self._programs[fast], sample) for fast, sample in self._samples.items() if fast in self._programs]
            self._samples = {fast: one for fast, one in self._samples.items() if fast not in self._programs}
        for one, sample in found:
            try:
                one.find_sizes(*sample)
            except TesseraError as error:
                one.skip(error)

    def _follow(self, child: _Worker) -> None:
        """Say how far the process that measures is with a program."""
        if child.program is not None:
            self.used, self.discarded, runs = self.calls.progress
            child.program.answer = replace(child.program.answer, runs=runs - child.runs_before)

    def _ask(self) -> None:
        """Let the hottest program that waits be measured, where none is, and take what came of one that was."""
        if self._child is not None and self._child.program is not None:
            answer = self._child.poll()
            if answer is None:
                self._follow(self._child)
                return
            program, self._child.program = self._child.program, None
            self.used, self.discarded = answer.used, answer.discarded
            self._finish(program, answer)
            if answer.is_over or self.used >= self.budget:
                self.stopped = "budget"
                return
        with self._lock:
            waiting = [one for one in self._programs.values() if one.state == "waiting" and one.sizes is not None]
        if not waiting:
            return
        hottest = max(waiting, key=lambda one: one.seconds)
        request = self._request(hottest, hottest.sizes or {})
        if request is None:
            return
        if self._child is None:
            settings = (self.budget - self.used, self._share, self._quiet)
            self._child = _Worker(self.calls.file, self.niceness, settings, self.setup)
        hottest.state = "measuring"
        self._child.runs_before = self.calls.progress[2]
        self._child.send(hottest, request)

    def _request(self, one: _Program, sizes: dict[str, int]) -> Request | None:
        """What is asked about a program; None, and its reason, for one that cannot be measured elsewhere."""
        made, tape = one.made, one.made.traced.tape
        try:
            check_effects(one.owner.name, made)
            options = compiled_options(one.owner, made)
            alone = why_in_process([tape])
            if alone:
                raise TuningError(alone, fix="call `autotune`")
            needed = sum(_bytes(tape.types[value], sizes) for value in (*tape.inputs, *tape.outputs))
            if needed > self._memory:
                raise TuningError(f"it takes {needed} bytes of tensors, and `memory` is {self._memory}", fix="raise it")
        except TesseraError as error:
            one.skip(error)
            return None
        return Request(tape, options.text, sizes, self._threshold)

    def _finish(self, one: _Program, answer: Answer) -> None:
        """Run the code of a plan that was found to pay: the next call that looks for its code finds it."""
        one.answer, one.reason = answer, answer.reason
        options = compiled_options(one.owner, one.made)
        plan = stored_plans().plan_for(program_signature(one.made.traced.tape, options))
        if not plan.choices or self._end.is_set():
            one.state = "kept"
            return
        old, code = one.made.fast, load(one.made.traced.tape, one.owner.options, one.owner.name)
        with self._lock:
            one.made.exchange(*code)
            for function in self._functions:
                function.forget_code(retraces=False)
            new = one.made.fast
            self._programs.pop(old, None)
            self._programs[new] = one
            with self._noting:  # calls may have had the new code already
                counted = [self._times.pop(fast, (0, 0)) for fast in (old, new)]
                self._times[new] = sum(calls for calls, _ in counted), sum(took for _, took in counted)
        one.state = "adopted"


def _bytes(type: Any, sizes: dict[str, int]) -> int:
    dim = type.bytes
    return int(dim.evaluate({name: sizes.get(name, 1) for name in dim.symbols}))


class _Worker:
    """The process that measures, and what it is at."""

    def __init__(self, file: int, niceness: int, settings: Sequence[float], setup: str) -> None:
        self.process, self.connection, self._errors = start_child(_MAIN, (file,))
        self.program: _Program | None = None
        self.runs_before = 0
        """Runs for programs before it."""
        with suppress(OSError):
            self.connection.send((file, niceness, tuple(settings), setup))

    def send(self, program: _Program, request: Request) -> None:
        """Ask for a program."""
        self.program = program
        with suppress(OSError):  # it has ended, which whoever asks for the answer finds
            self.connection.send(request)

    def poll(self) -> Answer | None:
        """What it answers; None while it is at it. Raises TuningError (T0803) where it ended."""
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            pass
        if self.process.poll() is None:
            return None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1][:200]}" if lines else ""
        raise TuningError(f"the process that measures ended with status {self.process.returncode}{last}", span=None)

    def close(self) -> None:
        """End it."""
        self.connection.close()
        self.process.kill()
        self.process.wait()
        self._errors.close()


def online(
    *functions: Any,
    budget: float = 60.0,
    share: float = 0.5,
    threshold: float = 0.07,
    quiet: float = 0.005,
    memory: int = MEMORY,
) -> Online:
    """Measure other plans for the hottest programs of jitted functions in the spare time between their calls.

    `with autotune.online(step, budget=60) as tuning:` serves as before. Another process, at the lowest priority,
    measures when no call of the functions is under way in any thread and none was for `quiet` seconds; a run that a
    call comes in on is thrown away. It works for `budget` seconds in all, compiling included, and for at most `share`
    of the quiet time. A plan is adopted as `autotune` does it: equal bits, and faster by `threshold`, surely. It is
    kept for later processes too. Programs with more than `memory` bytes of tensors, with effects on the outside, or
    with kernels of the user are skipped, as `tuning.report()` says. `tuning.stop()` ends it.

    >>> f = ts.jit(lambda x: x * 2.0)
    >>> with ts.autotune.online(f, budget=1.0) as tuning:
    ...     y = f(ts.ones((8,)))
    >>> y.tolist()[:2], tuning.stopped
    ([2.0, 2.0], 'stop')
    """
    check_settings("hybrid", budget, threshold)
    numbers = {"share": (share, 0 < share <= 1 if _is_number(share) else False)}
    numbers |= {"quiet": (quiet, quiet >= 0 if _is_number(quiet) else False)}
    numbers |= {"memory": (memory, memory > 0 if _is_number(memory) else False)}
    for name, (value, is_good) in numbers.items():
        if not is_good:
            what = {"share": "a fraction above 0, at most 1", "quiet": "seconds, at least 0", "memory": "bytes"}[name]
            raise TuningError(f"`{name}` is {what}, got {value!r}", fix=f"leave `{name}` out")
    for one in functions or (None,):
        if not isinstance(one, Jit):
            raise TuningError(
                f"`autotune.online` takes jitted functions, got {type(one).__name__}", fix="write `ts.jit(function)`"
            )
    if world.size() > 1:
        raise TuningError(
            f"this process is one of {world.size()} ranks, which have one plan together",
            fix="tune in a process that is alone: ranks then find the plan in the database",
        )
    return Online(functions, (float(budget), float(share), float(quiet), float(threshold)), int(memory))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
