"""`@jit`: a Python function traced once per signature, compiled, and from then on called natively."""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from tessera.api import eager as eager  # the ops that functions call: loaded here, not by the first call of one
from tessera.api import specialization
from tessera.api.captured_variables import CapturedVariables, Captures
from tessera.api.compilation import choose_device, load
from tessera.api.constants import mark_constants
from tessera.api.specialization import Around, CacheInfo, History, Specialization
from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options, check_names, for_device
from tessera.diagnostics.codes import PolicyError, RuntimeArgumentError
from tessera.diagnostics.error import RecompileWarning, user_span
from tessera.diagnostics.frames import guard_class, hide_frames
from tessera.frontend import check_broadcasts
from tessera.frontend.annotations import (
    annotation_text,
    order_of,
    other_annotations,
    parameters_of,
    required_of,
    resolve,
    signature_of,
)
from tessera.frontend.arguments import check_bool, check_callables, check_strings
from tessera.frontend.bind import Binder, Call, Signature, static_arguments
from tessera.frontend.concrete import common_device, copy_to_host, device_class
from tessera.frontend.kernel.rows import NeedsNumber, RowDims, free_dim_error, specialize_rows
from tessera.frontend.return_annotations import check_returned
from tessera.frontend.trace import TracedFunction, trace_function
from tessera.frontend.traced_number import NeedsValue
from tessera.ir.base import dispatch
from tessera.ir.base.tape import DONATED
from tessera.runtime.foreign import adopt, adopt_tensors
from tessera.runtime.tensor import watch_reads
from tessera.types.device import Device
from tessera.types.effect import PURE, Effects
from tessera.types.policy import SILENT, Policy

if TYPE_CHECKING:
    from tessera.types.constraint import Constraint

CONSTRAINTS = "__tessera_constraints__"
"""Where `@constrain` leaves its constraints on a function."""

RECENT = 4
"""How many specializations a call tries natively, newest first, before it looks the signature up."""

VARIANTS = 16
"""How many specializations of one signature are kept, for different captured variables; the newest stay."""

T = TypeVar("T")
_EMPTY: Any = inspect.Parameter.empty
_NO_RULES: tuple[str, ...] = ()


def _not_yet(*_: Any) -> Any:
    """What a function without specializations answers: look further."""
    return NotImplemented


class _Hot:
    """The one field a call in the common case reads, where it is read fastest."""

    __slots__ = ("_fast",)


class _Scoped(NamedTuple):
    """A function as the scope that it was called in last has it; `limits` are scopes of effects, around or in it."""

    kind: type[Any]
    policy: Policy
    device: Device | None
    made: Jit
    limits: Callable[[], Sequence[Any]]


@guard_class
class Jit(_Hot):
    """A jitted function: call it as the function it wraps."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        static_argnames: Iterable[str] = (),
        dynamic: bool = False,
        options: Options | None = None,
        constraints: Sequence[Constraint] = (),
        policy: Policy = SILENT,
        donate: Sequence[str] = (),
        is_here: bool = False,
    ) -> None:
        """`is_here` says that it runs on the CPU wherever its tensors are."""
        check_callables("jit", function=function)
        check_bool("jit", "dynamic", dynamic)
        functools.update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.function, self.dynamic, self.options = function, dynamic, options or Options()
        self.python_signature = signature_of(function)
        self.parameters = parameters_of(function, self.python_signature, static_argnames)
        self.returns = resolve(function, "return", self.python_signature.return_annotation)
        self.constraints = self._collect_constraints(constraints)
        self.policy, self.donate = policy, _rules().donated_names(donate, self.parameters) if donate else ()
        self._under: dict[tuple[Policy, Device | None], Jit] = {}
        self._scoped: _Scoped | None = None
        self._within: list[Jit] = []
        self._around, self.is_here = Around(), is_here
        self._binder = Binder(self.parameters, self.python_signature, dynamic=dynamic, policy=policy)
        self._rows: RowDims | None = RowDims()
        annotations = other_annotations(self.python_signature, self.parameters)
        self._history = History(self._binder.needed, annotations, self.function)
        # Of one signature there may be several, which differ in their captured variables.
        self._specializations: dict[Signature, tuple[Specialization, ...]] = {}
        self._fast: Callable[..., Any] = _not_yet
        self._recent: tuple[Callable[..., Any], ...] = ()
        self._lock = threading.RLock()
        self._order, self._positional = order_of(self.python_signature)
        self._required = required_of(self.python_signature)
        self._hits = self._misses = self._compiles = 0
        self._last: Specialization | None = None

    def _collect_constraints(self, given: Sequence[Constraint]) -> tuple[Constraint, ...]:
        if not given and not hasattr(self.function, CONSTRAINTS):
            return ()
        from tessera.frontend.constraints import collect_constraints  # noqa: PLC0415 - few functions have any

        return collect_constraints(self.function, self.parameters, given, is_open=self.dynamic)

    def with_function(self, function: Callable[..., Any], constraints: Sequence[Constraint] = ()) -> Jit:
        """Another function under the same settings and more constraints, with nothing compiled yet."""
        static = [parameter.name for parameter in self.parameters if parameter.static]
        given = (*constraints, *(item for item in self.constraints if item not in getattr(self, CONSTRAINTS, ())))
        made = Jit(
            function,
            static_argnames=static,
            dynamic=self.dynamic,
            options=self.options,
            constraints=given,
            policy=self.policy,
            donate=self.donate,
            is_here=self.is_here,
        )
        made._binder.traces_floats = self._binder.traces_floats
        return made

    def trace_floats(self, given: bool) -> None:
        """Whether floats that are arguments are traced, as they are unless told otherwise."""
        self._binder.traces_floats = given

    def under(self, policy: Policy, device: Device | None = None) -> Jit:
        """The same function in a scope of a policy, and on a device; what it is declared with comes before both."""
        if (policy, device) not in self._under:
            made = self.with_function(self.function)
            made.policy = made._binder.policy = policy.overridden(self.policy)
            made.options = for_device(self.options, device)
            made._around, made._history = Around(device), self._history
            made._binder.needed = self._binder.needed
            self._under[policy, device] = made
        return self._under[policy, device]

    def within(self, function: Callable[..., Any], promise: str) -> Jit:
        """The same function as one calls it that promises something, which `function` around it holds it to."""
        made = self.with_function(function)
        made.options, made._history, made._around = self.options, self._history, Around(self._around.device, promise)
        made._binder.needed = self._binder.needed
        self._within.append(made)
        return made

    def _here(self) -> Jit:
        """The function as the policy scope around the call has it."""
        scope: Any = dispatch.active()
        return self.under(scope.policy, scope.device) if getattr(scope, "is_scope", False) else self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        # Inside another trace nothing runs: what is computed from concrete tensors there is computed when it runs.
        try:
            if not kwargs:
                around = dispatch.active()
                result = self._fast(*args) if around is None else self._call_in_scope(around, args)
                if result is not NotImplemented:
                    return result
            return self._call_checked(args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def _call_in_scope(self, scope: Any, args: Sequence[Any]) -> Any:
        """The call in a scope like that of the last such call, by the fast path of the function made for it."""
        known = self._scoped
        if known is None or scope.__class__ is not known.kind or known.limits():
            return NotImplemented
        if scope.policy is not known.policy or scope.device != known.device:
            return NotImplemented
        # As `suspend_traces` does it, without what entering it costs.
        traces = dispatch.TRACES
        stack, traces.stack = traces.stack, []
        try:
            return known.made._fast(*args)
        finally:
            traces.stack = stack

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """As a method, the instance is the first argument."""
        return self if instance is None else functools.partial(self, instance)

    def _call_checked(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_led: bool = False) -> Any:
        """`is_led` says that its tensors alone led the call here, to a GPU: nobody asked for copies."""
        outer: Any = dispatch.active()
        if getattr(outer, "is_scope", False):
            from tessera.frontend.scopes import find_entered, keep_promise  # noqa: PLC0415 - few calls stand in a scope

            here = self.under(outer.policy, outer.device)
            made = keep_promise(here)
            self._scoped = _Scoped(outer.__class__, outer.policy, outer.device, here, find_entered)
            with dispatch.suspend_traces():
                return made(*args, **kwargs)
        if outer is not None:
            # Inside another trace a jitted function is simply more of that trace, and what it declares holds.
            return self._nested.call(outer, args, kwargs)
        arguments = self._arrange(args, kwargs)
        if arguments is not None and self._recent:
            result = self._call_recent(arguments)
            if result is NotImplemented and (adopted := adopt_tensors(arguments)) is not None:
                result = self._call_recent(adopted)
            if result is not NotImplemented:
                return result
        known = frozenset(self._binder.needed)
        call = self.bind(*args, **kwargs)
        if (there := self._where_they_are(call.tensors)) is not None:
            result = there._call_checked(args, kwargs, is_led=True)
            self._prefer(there._fast)
            return result
        try:
            made, captured = self._find(call)
        except NeedsValue as need:
            with self._binder.with_values(need, known):
                return self._call_checked(args, kwargs, is_led=is_led)
        captured = [adopt(tensor) for tensor in captured]
        if captured and (there := self._where_they_are((*call.tensors, *captured), made)) is not None:
            return there(*args, **kwargs)
        if captured and is_led:
            made.check_memory(self.name, call.tensors, captured)
        self._prefer(made.fast)
        is_host = manifest_of(self.options.backend).runs_in_host_memory
        return made.run(copy_to_host(call.tensors) if is_host else call.tensors, captured)

    def _call_recent(self, arguments: Sequence[Any]) -> Any:
        """What the first of the recent specializations gives that takes all arguments; else NotImplemented."""
        for other in self._recent:
            result = other(*arguments)
            if result is not NotImplemented:
                self._prefer(other)
                return result
        return NotImplemented

    def _find(self, call: Call) -> tuple[Specialization, Sequence[Any]]:
        return self._answer(call, self._find_answered)

    def _answer(self, call: Call, work: Callable[[Call], T]) -> T:
        """What `work` gives, once every dim that a kernel holds in one tile is in a bucket, or static."""
        while True:
            try:
                return work(call)
            except NeedsNumber as need:
                if self._rows is None:
                    raise
                with self._lock:
                    answered = self._rows.answer(need, call)
                if answered is None:
                    raise free_dim_error(need) from None
            call = answered

    def _find_answered(self, call: Call) -> tuple[Specialization, Sequence[Any]]:
        if (found := self._current(call.signature)) is not None:
            self._hits += 1
            return found
        if self.constraints:
            self._check_sizes(call)
        return self._specialize(call)

    def _where_they_are(self, tensors: Sequence[Any], made: Specialization | None = None) -> Jit | None:
        """The function on the GPU that its tensors are on; None where it runs here, or names its device itself."""
        if device_class() is None or self.is_here or self._around.device is not None:
            return None
        if self.options.backend != Options().backend:
            return None
        device = common_device(self.name, tensors, () if made is None else made.traced.tape.names)
        return None if device is None else self.under(SILENT, device)

    def _current(self, signature: Signature) -> tuple[Specialization, Sequence[Any]] | None:
        """The specialization for a signature and the captured variables of now, and the tensors among them."""
        made = self._specializations.get(signature)
        if made is None:
            return None
        given = static_arguments(signature)
        for one in made:
            captured = one.captures.tensors_for(given)
            if captured is not None:
                return one, captured
        return None

    @property
    def _nested(self) -> Any:
        from tessera.frontend.nested_calls import DeclaredFunction  # noqa: PLC0415 - few functions call another

        given = self.python_signature, self.parameters, self.returns, self.constraints, self.policy
        return DeclaredFunction(self.function, *given)

    def _check_sizes(self, call: Call) -> None:
        from tessera.frontend.constraints import check_call  # noqa: PLC0415 - few functions have any

        check_call(self.constraints, call.signature, call.tensors)

    def _arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
        """All arguments in the order of the parameters, or None where only Python's own rules can say."""
        if not self._order or len(args) > self._positional:
            return None
        given = list(args)
        used = 0
        for name, default in self._order[len(args) :]:
            if name in kwargs:
                used += 1
            elif default is _EMPTY:
                return None
            given.append(kwargs.get(name, default))
        return given if used == len(kwargs) else None

    def _prefer(self, call: Callable[..., Any]) -> None:
        """Let the next call try this specialization first."""
        if self._positional == len(self._order):
            self._fast = call
        self._recent = (call, *(other for other in self._recent if other is not call))[:RECENT]

    def _specialize(self, call: Call) -> tuple[Specialization, Sequence[Any]]:
        with self._lock:
            # Another thread may have made it while this one waited.
            return self._current(call.signature) or self._specialize_locked(call)

    def _specialize_locked(self, call: Call) -> tuple[Specialization, Sequence[Any]]:
        signature = call.signature
        given = static_arguments(signature)
        before = CapturedVariables(self.function, given)
        with watch_reads() as read:
            traced = self._trace(signature)
        specialization.check(signature, traced, call.tensors)
        captures = Captures(self.function, given, before, traced.lifted, read)
        if captures.meshes:
            from tessera.api.collectives import refuse_to_run  # noqa: PLC0415 - few programs have any

            refuse_to_run(traced.tape, choose_device(self.options, traced.tape).backend, captures.meshes)
        code = getattr(self.function, "__code__", None)
        owner = getattr(code, "co_filename", type(self.function).__module__)
        loaded, origin = load(traced.tape, self.options, f"{owner} {self.name}")
        made = Specialization(signature, traced, captures, loaded, origin)
        if traced.tape.functions:
            made.watch_later(lambda: Captures(self.function, given, before, traced.lifted, captures.meshes))
        self._misses += 1
        self._compiles += origin.source != "disk cache"
        self._last = made
        self._history.add(made, self._around)
        self._warn_of_many()
        others = self._specializations.get(signature, ())
        self._specializations[signature] = (made, *others)[:VARIANTS]
        return made, traced.lifted

    def _warn_of_many(self) -> None:
        """Tell once that a function is compiled again and again, what for, and how to stop it."""
        text = self._history.warning(self.name)
        if text:
            span = user_span()
            where = (span.file, span.line) if span is not None else ("<unknown>", 1)
            warnings.warn_explicit(text, RecompileWarning, *where)

    def _trace(self, signature: Signature) -> TracedFunction:
        check_broadcasts.check_broadcasts(self.function, signature)
        given = self.function, self.python_signature, signature, self.constraints
        with specialize_rows(signature) if self._rows is not None else nullcontext():
            traced = trace_function(*given, returns=self.returns)
        if self.donate:
            traced.tape.promises[DONATED] = _rules().numbers_of(self.donate, traced.tape.names)
        mark_constants(traced.tape, traced.lifted)
        if self.returns is not None:
            check_returned(self.returns, traced)
        if "collective" in traced.effects:
            from tessera.api.collectives import check_order  # noqa: PLC0415 - few programs have any

            check_order(traced.tape)
        return traced

    def bind(self, /, *args: Any, **kwargs: Any) -> Call:
        """The signature of a call, and its tensors."""
        call = self._binder.bind(args, kwargs)
        return call if self._rows is None else self._rows.refine(call)

    def trace(self, /, *args: Any, **kwargs: Any) -> TracedFunction:
        """What the function does for such arguments, as a tape; nothing is compiled or run.

        Without arguments, it is traced as its annotations say, or as it was compiled last.
        """
        here = self._here()
        with dispatch.suspend_traces():
            return here.with_values(
                lambda: here._answer(here._requested_call(args, kwargs), lambda call: here._trace(call.signature))
            )

    def with_values(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, once every float whose value it needs is static."""
        known = frozenset(self._binder.needed)
        try:
            return work()
        except NeedsValue as need:
            with self._binder.with_values(need, known):
                return self.with_values(work)

    def _requested_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """The call that somebody asks about, who may leave the arguments out where all is known."""
        if args or kwargs or not self._required:
            return self.bind(*args, **kwargs)
        return Call(self._known_signature(), ())

    def _known_signature(self) -> Signature:
        """The signature of annotations, or of the last call."""
        if (declared := self._binder.declared_signature()) is not None:
            return declared
        if self._last is not None:
            return self._last.signature
        raise RuntimeArgumentError(
            f"nothing says what `{self.name}` takes: it was not called yet, and its annotations do not say all",
            fix=f"give arguments, as in `{self.name}.lower({', '.join(self._required)})`, or call it first",
        )

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """The program at every level of IR, as text: `.graph`, `.schedule`, `.tile`, `.target`, `.llvm`.

        Without arguments, it is that of the annotations, or the one that was compiled last.
        """
        from tessera.api.compilation import lower_traced  # noqa: PLC0415 - loads the compiler

        return lower_traced(self.trace(*args, **kwargs), self._here().options)

    def schedule(self, /, *args: Any, **kwargs: Any) -> str:
        """The plan that the program is compiled by, as text to read or edit: groups, tiles, pipelines, launch order.

        `with_plan(text)` compiles by such a text. Without arguments, as `lower` is.
        """
        from tessera.api.compilation import plan_traced  # noqa: PLC0415 - loads the compiler

        here = self._here()
        there = here._where_they_are(here.bind(*args, **kwargs).tensors) if args or kwargs else None
        return plan_traced(self.trace(*args, **kwargs), (there or here).options)

    def with_plan(self, plan: str) -> Jit:
        """The same function compiled by a plan that `schedule` gave, edited or not; none of its bits change.

        Raises ScheduleError (T0401) at the first call, at the line of the plan that cannot be carried out.
        """
        made = self.with_function(self.function)
        made.options = replace(self.options, plan=plan)
        return made

    def explain(self, /, *args: Any, **kwargs: Any) -> Any:
        """What runs for such arguments: groups, kernels, choices and their sources, bytes, flops, what is cached.

        Without arguments, all that was compiled so far; before the first call, what the annotations say.
        """
        from tessera.api.compilation import explain_traced  # noqa: PLC0415 - loads the compiler
        from tessera.api.explanation import Account  # noqa: PLC0415 - for those who ask

        here = self._here()
        with dispatch.suspend_traces():
            if not args and not kwargs and here._required:
                known = [(made, one.options) for one in here._all() for made in one.specializations]
                pages = [explain_traced(made.traced, options, made, here._binder.needed) for made, options in known]
                pages = pages or [explain_traced(here.trace(), here.options, None, here._binder.needed)]
                return Account(repr(here).splitlines()[0], here.cache_info(), tuple(pages))
            return here.with_values(lambda: here._answer(here.bind(*args, **kwargs), here._explain))

    def _explain(self, call: Call) -> Any:
        from tessera.api.compilation import explain_traced  # noqa: PLC0415 - loads the compiler

        if (there := self._where_they_are(call.tensors)) is not None:
            return there._explain(call)
        found, needed = self._current(call.signature), self._binder.needed
        made, shapes = None if found is None else found[0], [tensor.shape for tensor in call.tensors]
        return explain_traced(self._trace(call.signature), self.options, made, needed, shapes)

    def profile(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program for such arguments some times, and say where time and memory went: a `ts.profile.Profile`.

        It has each kernel with its start and end and the source lines of its ops, each tensor in memory, and the
        roofline; printed, it is a table, and `save(folder)` writes traces, tables and a page. Arguments that are
        donated are copied for each run, and stay usable. A function with effects on the outside (`io`) runs once.

        >>> f = ts.jit(lambda x, y: ts.ops.relu(x @ y))
        >>> found = f.profile(ts.ones((8, 8)), ts.ones((8, 8)))
        >>> len(found.kernels), found.memory.peak
        (1, 0)
        """
        here = self._here()
        with dispatch.suspend_traces():
            # Found by name, since it is written on top of this.
            return importlib.import_module("tessera.profile.capture").profile_call(here, args, kwargs)

    def autotune(
        self,
        /,
        *args: Any,
        mode: str = "hybrid",
        budget: float = 60.0,
        threshold: float = 0.07,
        progress: Callable[[Any], None] | None = None,
        retune: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure other plans for the program of such a call, and adopt the fastest where it pays: a `TuningResult`.

        Within `budget` seconds groups are tuned one by one, then the program as a whole, by a `mode` of search. A plan
        is adopted where each bit is that of the safe plan and the program is faster by `threshold`, surely. It is kept:
        later calls and processes use it and measure nothing, unless `retune` is true. `progress` is told of each plan.
        """
        from tessera.api.program_tuning import tune_call  # noqa: PLC0415 - loads the compiler

        here = self._here()
        with dispatch.suspend_traces():
            settings = dict[str, Any](mode=mode, budget=budget, threshold=threshold, progress=progress, retune=retune)
            return tune_call(here, args, kwargs, **settings)

    def forget_code(self, *, retraces: bool = True) -> None:
        """Let the next call load its code anew, that of the plan which is stored by then, or find it in its traces."""
        for one in self._all():
            one._specializations = {} if retraces else one._specializations
            one._fast, one._recent = _not_yet, ()

    def prepare(self, /, *args: Any, **kwargs: Any) -> tuple[Jit, Specialization, Sequence[Any]]:
        """What a call runs, compiled where it is not yet: the function on its device, its code, the code's tensors."""
        return self.with_values(lambda: self._prepare(args, kwargs))

    def _prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Jit, Specialization, Sequence[Any]]:
        call = self.bind(*args, **kwargs)
        if (there := self._where_they_are(call.tensors)) is not None:
            return there._prepare(args, kwargs)
        made, captured = self._find(call)
        tensors = (*call.tensors, *map(adopt, captured))
        if captured and (there := self._where_they_are(tensors, made)) is not None:
            return there._prepare(args, kwargs)
        return self, made, tensors

    def _all(self) -> tuple[Jit, ...]:
        """This function, and itself in every scope that it was called in."""
        return (self, *(found for one in (*self._under.values(), *self._within) for found in one._all()))

    def cache_info(self) -> CacheInfo:
        """Counts of calls that found their code, that did not, and of compilations, in all scopes together."""
        return CacheInfo.sum(one._own_info() for one in self._all())

    def _own_info(self) -> CacheInfo:
        made = self.specializations
        return CacheInfo(self._hits + sum(one.fast_calls for one in made), self._misses, self._compiles, len(made))

    def cache_clear(self) -> None:
        """Forget all specializations and counts, in all scopes; the disk cache stays."""
        for one in self._all():
            one._specializations.clear()
            one._fast, one._recent, one._last = _not_yet, (), None
            one._hits = one._misses = one._compiles = 0
        self._history.clear()

    def explain_recompile(self) -> str:
        """Why the last new specialization was needed: what changed, and what to write so that it would not."""
        return self._history.explain(self.name)

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """What has been made so far, oldest first."""
        return tuple(one for made in tuple(self._specializations.values()) for one in reversed(made))

    @property
    def effects(self) -> Effects:
        """Every effect of the specializations made so far; empty means pure.

        Before the first one, a function whose parameters all declare their dtypes is traced as it is declared.
        """
        if not self._specializations and self._binder.declared_signature() is not None:
            return self.trace().effects
        return self._seen_effects()

    def _seen_effects(self) -> Effects:
        return PURE.join(*(made.traced.effects for made in self.specializations))

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.parameters))
        returns = f" -> {annotation_text(self.returns)}" if self.returns is not None else ""
        seen = self._seen_effects()
        effects = f" effects {seen!r}" if seen else ""
        rules = f" where {', '.join(item.text for item in self.constraints)}" if self.constraints else ""
        under = f" under {self.policy}" if self.policy else ""
        lines = [f"jit {self.name}({parameters}){returns}{effects}{rules}{under}"]
        lines += [f"  {made.text}" for made in self.specializations]
        return "\n".join(lines)


@overload
def jit(
    function: Callable[..., Any],
    /,
    *,
    static_argnames: Iterable[str] | str = (),
    dynamic: bool = False,
    constraints: Iterable[str] | str = _NO_RULES,
    policy: Policy = SILENT,
    donate: Iterable[str] | str = (),
    **options: Any,
) -> Jit: ...


@overload
def jit(
    function: None = None,
    /,
    *,
    static_argnames: Iterable[str] | str = (),
    dynamic: bool = False,
    constraints: Iterable[str] | str = _NO_RULES,
    policy: Policy = SILENT,
    donate: Iterable[str] | str = (),
    **options: Any,
) -> Callable[[Callable[..., Any]], Jit]: ...


def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnames: Iterable[str] | str = (),
    dynamic: bool = False,
    constraints: Iterable[str] | str = _NO_RULES,
    policy: Policy = SILENT,
    donate: Iterable[str] | str = (),
    **options: Any,
) -> Any:
    """Compile a function: the first call with a new signature traces it, every later one runs native code.

    Dims named in annotations (`Tensor["B", 128, f32]`) are symbolic: one compilation serves all their values. Dims of
    arguments without annotation are static, or all symbolic with `dynamic=True`. A float that is an argument by itself
    is a scalar of the program, weak as a constant is; where the program needs its value (`if rate:`), the function is
    specialized for it, as `explain()` says. Other Python values, and floats in containers, are static: part of the
    signature. A function that is compiled for more than 8 signatures warns once (`RecompileWarning`).

    Tensors that the function captures (globals, closures, attributes of objects) are read at each call; other values
    that it captures are part of what was compiled, and where one has changed the function is traced again, as
    `explain_recompile()` says. Further keywords are compiler options (`fusion`, `overrides`, `backend`, `debug`).
    `constraints` must hold for sizes: `["D % 8 == 0", "S <= 8192", "D = H*Dh"]`. They name dims of annotations and
    integer arguments, and are checked in native code at every call (T0702); what they prove of shapes costs nothing.
    `policy` is how the function computes: `jit(policy=Training())`.

    `donate` names parameters whose tensors the caller donates: `jit(donate={"cache"})`. Results may use their memory
    (a key-value cache is updated in place); to use such a tensor after the call is an error (T0713). With annotations
    that say how tensors are sharded (`Tensor["B", f32] @ shard("dp")`) it is `tessera.dist.partition` of it.

    Raises: AnnotationError (T0104) and ConstraintError (T0105) at decoration; ShapeError, DTypeError and their kin at
    the first call, before anything runs, each at the line that is wrong.

    >>> @ts.jit
    ... def scale(x: ts.Tensor["N", ts.f32], *, by: float = 2.0):
    ...     return x * by
    >>> scale(ts.array([1.0, 2.0])), scale(ts.array([1.0, 2.0, 3.0]))
    (Tensor([2] f32, [2, 4]), Tensor([3] f32, [2, 4, 6]))
    >>> scale.cache_info().compiles <= 1
    True
    """
    names, donated = check_strings("jit", "static_argnames", static_argnames), check_strings("jit", "donate", donate)
    check_names(options, ("static_argnames", "dynamic", "constraints", "policy", "donate"))
    settings, is_here = Options.of(**options), options.get("backend") == Options().backend
    rules = () if constraints is _NO_RULES else _rules().parse_rules(constraints)
    if not isinstance(policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(f"`jit` takes a Policy as `policy`, got {policy!r}", fix="write `jit(policy=Training())`")

    def decorate(target: Callable[..., Any]) -> Jit:
        given: dict[str, Any] = {"constraints": rules, "policy": policy, "donate": donated, "is_here": is_here}
        made = Jit(target, static_argnames=names, dynamic=dynamic, options=settings, **given)
        is_whole = all(getattr(one.annotation, "sharding", None) is None for one in made.parameters)
        return made if is_whole else importlib.import_module("tessera.api.sharding").partition(made)

    return decorate if function is None else decorate(function)


def _rules() -> Any:  # few functions donate anything, or have rules
    return importlib.import_module("tessera.api.constraints")
