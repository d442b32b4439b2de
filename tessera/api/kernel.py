"""`@kernel`: a function of the kernel language as a callable, alone, inside `jit`, and under the debugger."""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.api.custom_rules import Rule, Rules, call_with_rules
from tessera.api.jit import Jit
from tessera.api.specialization import Specialization
from tessera.api.tuning import Tuning
from tessera.compiler.backend import machines
from tessera.compiler.kernel_instance import KernelInstance
from tessera.compiler.options import Options, for_device
from tessera.diagnostics.codes import (
    ArgumentError,
    BlockValueError,
    GuardError,
    KernelError,
    RuntimeArgumentError,
)
from tessera.diagnostics.error import CompilationError
from tessera.diagnostics.frames import guard_class, hide_frames
from tessera.frontend.annotations import annotation_text
from tessera.frontend.arguments import check_callables, check_string, describe_value
from tessera.frontend.concrete import (
    adopt_operand,
    common_device,
    concrete_type,
    device_class,
    is_concrete,
)
from tessera.frontend.functions.movement import reshape
from tessera.frontend.functions.operands import shape_dims
from tessera.frontend.kernel.definition import KernelBinder, KernelDefinition, fused_shape, result_annotations
from tessera.frontend.kernel.operands import CACHE_FIELDS
from tessera.frontend.kernel.rows import NeedsNumber, free_dim_error, is_answered, rows_of
from tessera.frontend.pytree import as_tuple, flatten, leaf_paths, unflatten
from tessera.frontend.size import size_of
from tessera.frontend.trace import TracedFunction
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.tile.collective_parts import Collective
from tessera.runtime.foreign import adopt, adopt_tensors
from tessera.types.device import Device
from tessera.types.machine import Machine
from tessera.types.schedule import Schedule, Space, schedule_of
from tessera.types.shape import TensorType

# The derivatives that a kernel is given: declared with `defvjp` and `defjvp`, and checked where they are asked for.


def check_declared(definition: KernelDefinition, function: Callable[..., Any]) -> None:
    """Raises KernelError (T0206) for a derivative that cannot be called with operands, results and their gradients."""
    operands = sum(len(CACHE_FIELDS) if one.kind == "cache" else 1 for one in definition.inputs)
    declared = len(definition.results) or len(result_annotations(definition))
    counts = (declared,) if declared else range(1, 9)
    if any(_takes(function, operands + 2 * count) for count in counts):
        return
    wanted = f"{operands} operands, {declared or 'its'} results and as many gradients"
    total = f", {operands + 2 * declared} tensors in all" if declared else ""
    called = vjp_name(function) if vjp_name(function).isidentifier() else "derivative"
    raise KernelError(
        f"the derivative of `{definition.name}` takes {wanted}{total}, and `{vjp_name(function)}` takes "
        f"{_arity(function)}",
        fix=f"write `def {called}({_list_parameters(definition, declared)})`",
    )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True  # a callable that does not say
    positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    least = sum(item.default is item.empty for item in positional)
    is_open = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    return least <= count and (is_open or count <= len(positional))


def _arity(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(item.kind in kinds for item in inspect.signature(function).parameters.values())


def _keyword_statics(function: Callable[..., Any], statics: Mapping[str, Any]) -> dict[str, Any]:
    """The static arguments that a derivative asks for by keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    kinds = {name: item.kind for name, item in parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return dict(statics)
    return {name: value for name, value in statics.items() if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY}


def kernel_rules(
    definition: KernelDefinition, call: Callable[..., Any], operands: Sequence[str], statics: Mapping[str, Any]
) -> Rules | None:
    """The derivatives that a kernel was given, for one call of it; None where it has none."""
    vjp, backward, jvp = definition.vjp, definition.backward, definition.jvp
    if vjp is None and jvp is None:
        return None

    def run(*tensors: Any) -> Any:
        result = call_with_rules(call, rules, tensors)
        return result, (tensors, as_tuple(result))

    def pull(residuals: Any, gradients: Any) -> Any:
        assert vjp is not None
        operands, results = residuals
        return as_tuple(vjp(*operands, *results, *as_tuple(gradients), **_keyword_statics(vjp, statics)))

    def bind(function: Callable[..., Any] | None) -> Rule | None:
        if function is None:
            return None
        return Rule(functools.partial(function, **_keyword_statics(function, statics)), function)

    first = Rule(run, vjp) if vjp is not None and backward is None else bind(vjp)
    second = Rule(pull, vjp) if vjp is not None and backward is None else bind(backward)
    rules = Rules(definition.name, tuple(operands), first, second, bind(jvp))
    return rules


def _list_parameters(definition: KernelDefinition, declared: int) -> str:
    operands = [
        name
        for one in definition.inputs
        for name in ([f"{one.name}_{field}" for field in CACHE_FIELDS] if one.kind == "cache" else [one.name])
    ]
    results = [parameter.name for parameter in definition.results]
    results = results or (["out"] if declared < 2 else [f"out{at}" for at in range(declared)])
    return ", ".join([*operands, *results, *(f"d_{name}" for name in results)])


def vjp_name(function: Callable[..., Any]) -> str:
    """What a derivative is called in programs."""
    return str(getattr(function, "__name__", type(function).__name__))


KEY = "key"


@guard_class
class Kernel:
    """A kernel: call it with tensors, and it returns tensors.

    Called eagerly it is compiled once for each set of static sizes that its tiles need; inside `jit` it is an op of
    the program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schedule: Schedule | None = None,
        tuning: Tuning | None = None,
        definition: KernelDefinition | None = None,
        options: Options | None = None,
    ) -> None:
        check_callables("kernel", function=function)
        functools.update_wrapper(self, function)
        self.definition = definition or KernelDefinition(function)
        self.name, self.given, self.tuning = self.definition.name, schedule, tuning
        self.options = options or Options()
        self.signature = self._call_signature()
        self._on_devices: dict[Device, Kernel] = {}
        self._has_device = False
        self._jit = _KernelJit(self)

    def _call_signature(self) -> inspect.Signature:
        """What a caller gives: no results, no sizes of blocks; a random key where the kernel draws."""
        kept = {parameter.name for parameter in (*self.definition.inputs, *self.definition.statics)}
        found = [p.replace(annotation=p.empty) for p in self.definition.signature.parameters.values() if p.name in kept]
        if self.definition.is_random and KEY not in kept:
            found.append(inspect.Parameter(KEY, inspect.Parameter.KEYWORD_ONLY, default=None))
        return inspect.Signature(found)

    @property
    def schedule(self) -> Schedule:
        """The schedule in force on this machine, with everything that was not chosen filled in."""
        return self.definition.complete(self.given)

    def with_schedule(self, schedule: Any) -> Kernel:
        """The same kernel under another schedule; this one stays as it is."""
        return Kernel(self.definition.function, schedule_of(schedule), None, self.definition, self.options)

    def with_options(self, **options: Any) -> Kernel:
        """The same kernel under other options of the compiler, such as `backend="cuda"` or `debug=True`."""
        made = Kernel(self.definition.function, self.given, self.tuning, self.definition, Options.of(**options))
        made._has_device = "backend" in options
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs and self.tuning is None and dispatch.active() is None:
                result = self._jit.fast(*args)
                if result is not NotImplemented:
                    return result
            return self._call_checked(args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def _call_checked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not kwargs and dispatch.active() is None and (adopted := adopt_tensors(args)) is not None:
            return self(*adopted)
        scope: Any = dispatch.active()
        if getattr(scope, "device", None) is not None:
            with scope.without_device():
                return self._at(scope.device)(*args, **kwargs)
        if (scope is None or getattr(scope, "is_scope", False)) and (
            device := self._residence(args, kwargs)
        ) is not None:
            return self._at(device)(*args, **kwargs)
        if self.tuning is not None:
            return self.tuning.choose(self, args, kwargs)._call_as_op(args, kwargs)
        return self._call_as_op(args, kwargs)

    def _residence(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Device | None:
        """The GPU that the tensors of a call are on, where nobody names a device for the kernel."""
        # To share the first tensor of a GPU loads what runs there.
        tensors = [adopt(leaf) for leaf in flatten((args, kwargs))[0] if is_concrete(leaf)]
        if self._has_device or device_class() is None or self.options.backend != Options().backend:
            return None
        return common_device(self.name, tensors)

    def _at(self, device: Device) -> Kernel:
        """The kernel on a device."""
        if device not in self._on_devices:
            options = for_device(self.options, device)
            made = Kernel(self.definition.function, self.given, self.tuning, self.definition, options)
            made._has_device = True
            self._on_devices[device] = made
        return self._on_devices[device]

    def _call_as_op(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        results = [f"`{parameter.name}`" for parameter in self.definition.results]
        if results and len(args) > len(self.signature.parameters):
            # Python would say that there are too many, and they may be all that the author wrote down.
            count = len(self.signature.parameters)
            raise RuntimeArgumentError(
                f"`{self.name}` takes {count} argument{'s' * (count != 1)}, and {len(args)} are given",
                notes=(
                    f"{', '.join(results)}: a kernel stores there, so it is a result, which a caller does not pass",
                ),
                fix="read from parameters that the kernel does not write: it never does both with one",
            )
        if dispatch.active() is not None:
            return self._jit(*args, **kwargs)
        try:
            return self._jit.retry_with_sizes(lambda: self._jit(*args, **kwargs))
        except GuardError:
            self._refuse_blocks(args, kwargs)
            raise

    def _refuse_blocks(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises BlockValueError (T0504) at the line of the kernel, where its sizes show that blocks are the cause."""
        try:
            self.program(*args, **kwargs)
        except BlockValueError as error:
            raise error from None
        except CompilationError:
            return  # the guard says it

    def record_op(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel as an op of the trace that is being made, with the derivatives that it was given."""
        bound = self._bound(args, kwargs)
        names = [parameter.name for parameter in self.definition.inputs]
        leaves, tree = flatten({name: bound.arguments[name] for name in names}, keep_order=True)

        def call(*tensors: Any) -> Any:
            return self._record_call({**bound.arguments, **unflatten(tree, tensors)})

        paths = [path for name in names for path in leaf_paths(flatten(bound.arguments[name])[1], name)]
        rules = kernel_rules(self.definition, call, paths, self._static_arguments(bound))
        return call(*leaves) if rules is None else call_with_rules(call, rules, leaves)

    def _record_call(self, arguments: Mapping[str, Any]) -> Any:
        operands, lead = self._operands(arguments, lambda x, shape: reshape(x, tuple(shape)), shape_dims)
        types = [_type_of(operand) for operand in operands]
        instance = KernelInstance(self.definition, self._statics(arguments), self.given, rows_of(types))
        try:
            results = _record_parts(instance, operands, types)
        except NeedsNumber as need:
            need.kernel = self.name
            if self._jit.is_own_trace or is_answered():
                raise
            raise free_dim_error(need) from None
        shaped = [_apart(result, lead) for result in results]
        return shaped[0] if len(shaped) == 1 else tuple(shaped)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RuntimeArgumentError(f"`{self.name}`: {error}") from None
        bound.apply_defaults()
        return bound

    def _statics(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {parameter.name: arguments[parameter.name] for parameter in self.definition.statics}

    def _static_arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """What a derivative may ask for by keyword: static arguments, and the random key."""
        key = bound.arguments.get(KEY)
        return {**self._statics(bound.arguments), **({} if key is None else {KEY: key})}

    def _operands(
        self, arguments: Mapping[str, Any], to_shape: Callable[[Any, Any], Any], dims: Callable[[Any], Any]
    ) -> tuple[list[Any], tuple[Any, ...]]:
        """The tensors in order, fused dims joined; and the dims that were joined first, to take results apart by."""
        found: list[Any] = []
        lead: tuple[Any, ...] = ()
        for parameter in self.definition.inputs:
            leaves, _ = flatten(arguments[parameter.name])
            for leaf in map(adopt_operand, leaves):
                if not hasattr(leaf, "shape"):
                    raise RuntimeArgumentError(
                        f"`{parameter.name}` must be a tensor, got {describe_value(leaf)}",
                        fix="`ts.array(...)` makes one",
                    )
                shape = fused_shape(parameter, dims(leaf))
                if shape is not None and parameter.kind != "cache" and not lead:
                    lead = tuple(dims(leaf)[: len(dims(leaf)) - len(shape) + 1])
                found.append(leaf if shape is None else to_shape(leaf, shape))
        if arguments.get(KEY) is not None and all(parameter.name != KEY for parameter in self.definition.parameters):
            found.append(arguments[KEY])
        return found, lead

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function itself in Python, on tiles with data: `breakpoint()` in it stops on that line."""
        return self._on_arrays(args, kwargs, native=True)

    def run_tiles(self, *args: Any, observer: Any = None, **kwargs: Any) -> Any:
        """Run the tile program op by op on NumPy, every access checked; `observer` looks on."""
        return self._on_arrays(args, kwargs, native=False, observer=observer)

    def _on_arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, native: bool, observer: Any = None) -> Any:
        import numpy as np  # noqa: PLC0415 - the interpreter's alone

        from tessera.api.eager import Tensor  # noqa: PLC0415
        from tessera.compiler.kernel_trial import run_program, run_python  # noqa: PLC0415

        arguments = self._bound(args, kwargs).arguments
        given, lead = self._operands(arguments, lambda x, shape: np.asarray(x).reshape(shape), lambda x: x.shape)
        arrays, statics = [np.asarray(one) for one in given], self._statics(arguments)
        if native:
            schedule = self.definition.complete(self.given, types=[_type_of(array) for array in arrays])
            results = run_python(self.definition, arrays, statics, schedule)
        else:
            results = run_program(KernelInstance(self.definition, statics, self.given), arrays, observer)
        count = len(lead)
        shaped = [
            Tensor.of(result.reshape((*lead, *result.shape[1:]) if count else result.shape)) for result in results
        ]
        return shaped[0] if len(shaped) == 1 else tuple(shaped)

    def trace(self, *args: Any, **kwargs: Any) -> TracedFunction:
        """The kernel as the one op of a program, for such arguments; nothing is compiled or run."""
        return self._jit.retry_with_sizes(lambda: self._jit.trace(*args, **kwargs))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel at every level of IR, as text: `.graph`, `.schedule`, `.tile`, `.target`, `.llvm`."""
        return self._jit.retry_with_sizes(lambda: self._jit.lower(*args, **kwargs))

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """What runs for such arguments."""
        return self._jit.retry_with_sizes(lambda: self._jit.explain(*args, **kwargs))

    def profile(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel for such arguments some times, and say where time went: a `ts.profile.Profile`."""
        device = self._residence(args, kwargs)
        jitted = self._jit if device is None else self._at(device)._jit
        return jitted.retry_with_sizes(lambda: jitted.profile(*args, **kwargs))

    def cache_info(self) -> Any:
        """Counts of eager calls that found their code, that did not, and of compilations."""
        return self._jit.cache_info()

    def cache_clear(self) -> None:
        """Forget what was compiled, after a function that the kernel calls was defined anew."""
        self._jit.cache_clear()

    def program(self, *args: Any, kind: str = "cpu", **kwargs: Any) -> Any:
        """The kernel as records for such arguments, with their sizes as numbers."""
        instance, types = self._for(args, kwargs)
        return instance.program(types, kind)

    def check(self, *args: Any, machine: Machine | str = "sm_90a", **kwargs: Any) -> None:
        """Raises ScheduleError (T0401) where a machine cannot carry the schedule out for such arguments.

        It says what is needed, what there is, and the nearest legal schedule; `machine` may be a GPU's architecture.
        """
        instance, types = self._for(args, kwargs)
        instance.check(types, _machine("check", machine))

    def discover(self, *args: Any, machine: Machine | str = "sm_90a", **kwargs: Any) -> Schedule:
        """The schedule that such arguments run under on a machine: the one given, or the one found where none is.

        Its `history()` says how it was found; `kernel.with_schedule(found)` keeps it whatever the sizes are.
        """
        instance, types = self._for(args, kwargs)
        return instance.discover(types, _machine("discover", machine))

    def legal(self, space: Any, *args: Any, machine: Machine | str = "sm_90a", **kwargs: Any) -> list[Schedule]:
        """The schedules of a space that a machine can carry out for such arguments."""
        found: list[Schedule] = []
        for schedule in Space.of(space):
            try:
                self.with_schedule(schedule).check(*args, machine=machine, **kwargs)
            except CompilationError:
                continue
            found.append(schedule)
        return found

    def _for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[KernelInstance, list[TensorType]]:
        """The kernel with the static arguments of a call, and the types of its operands, sizes as numbers."""
        arguments = self._bound(args, kwargs).arguments
        given, _ = self._operands(
            arguments, lambda x, shape: TensorType.of(shape, _type_of(x).dtype), lambda x: tuple(x.shape)
        )
        types = [one if isinstance(one, TensorType) else _type_of(one) for one in given]
        return KernelInstance(self.definition, self._statics(arguments), self.given), types

    def defvjp(self, function: Callable[..., Any], backward: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Give the kernel its derivative: a function of its operands, its results and their gradients.

        It gives one gradient for each operand, of its shape and dtype, or None; it may ask for static arguments by
        keyword. With `backward`, the two are as those of `custom_vjp`: the first takes the operands and returns result
        and residuals, the second takes residuals and gradients of the result.
        """
        check_callables("defvjp", function=function, **({} if backward is None else {"backward": backward}))
        if backward is None:
            check_declared(self.definition, function)
        self.definition.vjp = function
        self.definition.backward = backward
        return function

    def defjvp(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the kernel its derivative for forward mode, as that of `custom_jvp`: reverse mode is made of it.

        The function takes a tuple of the operands and one of their tangents, and returns result and tangent; it may ask
        for static arguments by keyword.
        """
        check_callables("defjvp", function=function)
        self.definition.jvp = function
        return function

    @property
    def vjp(self) -> Callable[..., Any] | None:
        """The derivative that the kernel was given."""
        return self.definition.vjp

    def register(self, name: str = "") -> Kernel:
        """Let the kernel be called as `tessera.ops.<name>`."""
        # The facade is a layer above this one, and knows nothing of kernels: found by name.
        ops = importlib.import_module("tessera.ops")
        wanted = check_string("register", "name", name) or self.name
        if hasattr(ops, wanted) and not isinstance(getattr(ops, wanted), Kernel):
            raise KernelError(f"`tessera.ops` has a `{wanted}` already", fix="give the kernel another name")
        vars(ops)[wanted] = self
        return self

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __copy__(self) -> Kernel:
        """Itself, as of any function."""
        return self

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self

    def __reduce__(self) -> str:
        """Pickled by its name, as a function is."""
        return self.definition.function.__qualname__

    def __repr__(self) -> str:
        vjp = self.definition.vjp
        derivative = "" if vjp is None else f" with vjp `{vjp_name(vjp)}`"
        return f"kernel {self.name}{_written_signature(self.definition)} {self.schedule}{derivative}"


def _written_signature(definition: KernelDefinition) -> str:
    """The parameters as they were written, whether annotations are values or texts of them."""
    declared = {item.name: item.annotation for item in definition.parameters}
    items = [
        item.replace(annotation=_Written(declared[item.name] or item.annotation))
        if item.annotation is not item.empty
        else item
        for item in definition.signature.parameters.values()
    ]
    returns = definition.signature.empty if definition.returns is None else _Written(definition.returns)
    return str(definition.signature.replace(parameters=items, return_annotation=returns))


class _Written:
    """An annotation that shows as its text."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def __repr__(self) -> str:
        return annotation_text(self.annotation)


def _machine(what: str, machine: Machine | str) -> Machine:
    """A machine, or the GPU of an architecture; raises for what is none."""
    chosen = machines().get(machine) if isinstance(machine, str) else machine
    if not isinstance(chosen, Machine):
        raise ArgumentError(f"`{what}` knows no machine {machine!r}", fix=f"machines are {', '.join(machines())}")
    return chosen


def _type_of(operand: Any) -> TensorType:
    found = getattr(operand, "type", None)
    if isinstance(found, TensorType):
        return found
    concrete = concrete_type(operand)
    if concrete is None:
        raise RuntimeArgumentError(f"a kernel takes tensors, got {type(operand).__name__}")
    return concrete


def _record_parts(instance: KernelInstance, operands: Sequence[Any], types: Sequence[TensorType]) -> tuple[Any, ...]:
    """The results of a kernel as an op; with collectives, as an op for each part, and collectives between them."""
    received: list[Any] = []
    results: tuple[Any, ...] = ()
    for part, own in instance.parts(types):
        given = [*operands, *(received[number] for number in part.received)]
        name = own.register_name([*types, *part.program.arguments[len(types) : part.program.inputs]])
        results = apply("kernel_call", given, {"kernel": name})
        if part.collective is not None:
            received.append(_communicate(part.collective, results[0]))
    return results


def _communicate(collective: Collective, sent: Any) -> Any:
    """What a rank receives of a collective of tiles, with a first axis of ranks where it gathers."""
    from tessera.api import collectives  # noqa: PLC0415 - few kernels have any

    axis, shape = collective.axis, tuple(size_of(dim) for dim in shape_dims(sent))
    if collective.name == "all_reduce":
        return collectives.all_reduce(sent, axis, collective.reduction)
    if collective.name == "all_gather":
        return collectives.all_gather(reshape(sent, (1, *shape)), axis)
    return reshape(collectives.reduce_scatter(sent, axis, 0, collective.reduction), shape[1:])


def _apart(result: Any, lead: Sequence[Any]) -> Any:
    """A result with its first dim as those that were joined."""
    if not lead:
        return result
    dims = shape_dims(result)
    return reshape(result, (*(size_of(dim) for dim in lead), *(size_of(dim) for dim in dims[1:])))


class _KernelJit(Jit):
    """The jitted form of a kernel alone: dims are dynamic, except those that turn out to be sizes of tiles."""

    def __init__(self, kernel: Kernel) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            return kernel.record_op(*args, **kwargs)

        call.__name__ = call.__qualname__ = kernel.name
        call.__signature__ = kernel.signature  # type: ignore[attr-defined]
        super().__init__(call, options=kernel.options)
        self._rows, self._retrying = None, threading.local()
        self.written = kernel.__repr__
        self._binder: KernelBinder = KernelBinder(kernel.definition, self.parameters, kernel.signature)

    def __repr__(self) -> str:
        return self.written()

    def _where_they_are(self, tensors: Sequence[Any], made: Specialization | None = None) -> None:
        """The kernel has looked."""

    def _warn_of_many(self) -> None:
        """A size that is that of a tile has to be a number: nothing that its caller writes could change that."""

    @property
    def fast(self) -> Callable[..., Any]:
        """The fast path to the specialization that was called last."""
        return self._fast

    @property
    def is_own_trace(self) -> bool:
        """Whether this thread traces the kernel alone, and takes dims as numbers that its tiles need."""
        return getattr(self._retrying, "is_open", False)

    def retry_with_sizes(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, once every dim that must be a number is taken as one."""
        outer, self._retrying.is_open = self.is_own_trace, True
        try:
            while True:
                known = frozenset(self._binder.numbers)  # another thread may add to them meanwhile
                try:
                    return work()
                except NeedsNumber as need:
                    if need.dim.symbols <= known:
                        raise
                    self._binder.numbers |= need.dim.symbols
        finally:
            self._retrying.is_open = outer


class KernelDecorator:
    """`kernel` itself: `@kernel`, `@kernel.auto`, `@kernel.schedule(s)`, `@kernel.autotune(...)`."""

    def __call__(self, given: Any = None, /) -> Any:
        """Make a function a kernel: `@kernel`, `@kernel()`, or `@kernel(schedule)`."""
        if given is None:
            return self
        if callable(given) and not isinstance(given, Schedule):
            return Kernel(given)
        return self.schedule(given)

    def auto(self, function: Callable[..., Any], /) -> Kernel:
        """A kernel whose schedule is chosen for the machine."""
        return Kernel(function)

    def schedule(self, schedule: Any, /) -> Callable[[Any], Kernel]:
        """A kernel under a schedule."""
        chosen = schedule_of(schedule)

        def decorate(function: Any) -> Kernel:
            return function.with_schedule(chosen) if isinstance(function, Kernel) else Kernel(function, chosen)

        return decorate

    def autotune(
        self, *, space: Any, metric: str = "latency_ms", budget_ms: float = 200.0, cache: str = ""
    ) -> Callable[[Any], Kernel]:
        """A kernel whose schedule is the fastest of a space, measured when it is first called with such sizes.

        Measuring stops after `budget_ms`; `cache` is a folder or a JSON file that keeps what was found. Choices that
        would change results are kept at their first value.
        """
        tuning = Tuning(space, metric, budget_ms, cache)

        def decorate(function: Any) -> Kernel:
            target = function.definition.function if isinstance(function, Kernel) else function
            return Kernel(target, None, tuning)

        return decorate


kernel = KernelDecorator()
"""Make a function a kernel."""
