"""Profiling a call: the program runs as always, its kernels are timed, and what ran is matched with its plan."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tessera.api.compilation import choose_device, device_of
from tessera.api.jit import Jit
from tessera.api.specialization import Specialization
from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options
from tessera.compiler.program_plan import ProgramPlan, match_launches, plan_program
from tessera.diagnostics.codes import OverrideError
from tessera.diagnostics.error import format_count
from tessera.frontend.pytree import leaf_paths, map_leaves
from tessera.profile.result import KernelEvent, Profile
from tessera.runtime.launch import check_dims
from tessera.runtime.timeline import Span, record_timeline
from tessera.tuner.machine_rates import kept_rates
from tessera.types.frozen import frozen
from tessera.types.rates import Rates, rates_of
from tessera.types.settings import Settings

CALLS, SECONDS = 10, 1.0
"""Calls that are measured at most, and seconds after which no other is begun."""


def profile_call(function: Jit, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Profile:
    """Compile a call where that is to be done, run it some times, and say what it did.

    Raises OverrideError (T0402) for a backend that compiles nothing, and has no kernels.
    """
    here, made, tensors = function.prepare(*args, **kwargs)
    if not hasattr(made.loaded, "executable"):
        raise OverrideError(
            f"backend `{here.options.backend}` interprets programs, and has no kernels to profile",
            fix='profile it on the CPU: `jit(backend="cpu")`',
        )
    run = _Runs(here, made, args, kwargs)
    windows, spans, missed = run.measure()
    # The fastest: what slows others are other processes, and threads that had to be woken.
    start, end = min(windows, key=lambda one: one[1] - one[0])
    executable: Any = getattr(made.loaded, "executable")  # noqa: B009 - the protocol of programs does not have it
    sizes = check_dims(executable, [tuple(tensor.shape) for tensor in tensors])
    options = _compiled_options(here.options, made)
    plan = plan_program(made.traced.tape, options, _result_names(made))
    rates, is_own = _rates_for(options, executable)
    inside = [one for one in spans if start <= one.start <= end]
    return Profile(
        name=here.name,
        signature=made.text,
        device=_describe_device(options, executable),
        times=tuple(ended - begun for begun, ended in windows),
        duration=end - start,
        events=tuple(_events(plan, inside, start, sizes)),
        plan=plan,
        sizes=sizes,
        work=executable.metadata.get("work", ()),
        rates=rates,
        tape=made.traced.tape,
        options=options,
        missed=missed,
        is_machine_measured=is_own,
    )


@frozen
class _Runs:
    """Calls of a function with the same arguments; those that are donated are copied for each."""

    function: Jit
    made: Specialization
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def measure(self) -> tuple[list[tuple[int, int]], Sequence[Span], int]:
        """When each call began and ended, what ran in them, and how many kernels were not kept.

        What acts on the outside runs once. Ranks that communicate run as often as each other, whatever time they take.
        """
        effects = self.made.traced.effects
        is_once, is_shared = effects.has("io"), effects.has("collective")
        if not is_once:
            self._call()
        windows: list[tuple[int, int]] = []
        with self._recorder() as timeline:
            until = time.monotonic() + SECONDS
            while not windows or (not is_once and len(windows) < (3 if is_shared else CALLS)):
                if windows and not is_shared and time.monotonic() > until:
                    break
                if (begin := getattr(timeline, "begin", None)) is not None:
                    begin()  # the clocks of host and device drift apart
                windows.append(self._call())
            return windows, timeline.spans, timeline.missed

    def _recorder(self) -> AbstractContextManager[Any]:
        """What times kernels: events on a GPU, else the timeline of this process."""
        own: Callable[[], AbstractContextManager[Any]] | None = getattr(self.made.loaded, "record_launches", None)
        return record_timeline() if own is None else own()

    def _call(self) -> tuple[int, int]:
        """When a call began, and when the device was done with it."""
        args, kwargs = self._arguments()
        device = device_of(manifest_of(self.function.options.backend))
        wait = device.synchronize if device.is_asynchronous else None
        if wait is not None:
            wait()
        start = time.monotonic_ns()
        self.function(*args, **kwargs)
        if wait is not None:
            wait()
        return start, time.monotonic_ns()

    def _arguments(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        if not self.function.donate:
            return self.args, self.kwargs
        bound = self.function.python_signature.bind(*self.args, **self.kwargs)
        for name in self.function.donate:
            if name in bound.arguments:
                kind = self.function.python_signature.parameters[name].kind
                assert kind is not inspect.Parameter.VAR_KEYWORD
                bound.arguments[name] = map_leaves(_copy, bound.arguments[name])
        return bound.args, bound.kwargs


def _copy(leaf: Any) -> Any:
    """A tensor of any library in memory of its own; what is none as it is."""
    copy = getattr(leaf, "clone", None) or getattr(leaf, "copy", None)
    return copy() if copy is not None and hasattr(leaf, "shape") else leaf


def _compiled_options(options: Options, made: Specialization) -> Options:
    """The options that code was made with: where it runs, and for which device exactly."""
    chosen = choose_device(options, made.traced.tape)
    manifest = manifest_of(chosen.backend)
    return replace(chosen, features=device_of(manifest).features()) if manifest.asks_device else chosen


def _result_names(made: Specialization) -> list[str]:
    """What to call each output of a program: its path in the function's result."""
    paths = leaf_paths(made.traced.tree, "result")
    names: dict[int, str] = {}
    for path, slot in zip(paths, made.traced.slots, strict=True):
        if slot.output is not None:
            names.setdefault(slot.output, path)
    return [names.get(number, f"result {number}") for number in range(len(made.traced.tape.outputs))]


def _events(plan: ProgramPlan, spans: Sequence[Span], start: int, sizes: Mapping[str, int]) -> list[KernelEvent]:
    """What ran in a call, with the launch of the plan that each kernel is."""
    kernels = [one.name for one in spans if one.kind == "kernel"]
    calls = iter(match_launches(plan, kernels, sizes))
    return [
        KernelEvent(
            one.kind,
            one.name,
            one.start - start,
            one.end - start,
            one.track,
            one.rank,
            next(calls) if one.kind == "kernel" else None,
        )
        for one in spans
    ]


def _describe_device(options: Options, executable: Any) -> str:
    if manifest_of(options.backend).runs_in_host_memory:
        return f"{options.backend}, {format_count(Settings.from_environment().threads, 'thread')}"
    return f"{options.backend} ({executable.metadata.get('architecture', 'some device')})"


def _rates_for(options: Options, executable: Any) -> tuple[Rates | None, bool]:
    """The rates of such a machine with as many threads as there are here, and whether this very one was measured."""
    machine = executable.metadata.get("architecture", options.backend)
    kept = kept_rates(machine)
    rates = kept or rates_of(machine)
    if rates is not None and manifest_of(options.backend).runs_in_host_memory:
        rates = rates.on(Settings.from_environment().threads)
    return rates, kept is not None
