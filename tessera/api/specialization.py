"""A jitted function made for one signature: its executable, the path from arguments to results, and why it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tessera.api.captured_variables import MISSING, Captures
from tessera.diagnostics.codes import GuardError, RuntimeArgumentError
from tessera.diagnostics.error import Fix, TesseraError, readable, user_span
from tessera.frontend.bind import Signature, fit_argument_fix, named_sizes
from tessera.frontend.concrete import common_device
from tessera.frontend.pytree import Flattener, as_tuple, make_flattener
from tessera.frontend.shape_inference import Assumption
from tessera.frontend.trace import TracedFunction
from tessera.ir.base.tape import DONATED
from tessera.runtime.devices import Program
from tessera.runtime.foreign import adopt, adopt_tensors
from tessera.types.device import Device
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.frozen import frozen

# Guards that the sizes of a call break: the rule that the trace relied on, the values, and where each came from.


def check(signature: Signature, traced: TracedFunction, tensors: Sequence[Any]) -> None:
    """Raise GuardError (T0702) where the sizes of a call break what the trace relies on: before code is made for it."""
    found = broken_assumption(signature, traced, tensors) if traced.assumptions else None
    if found is not None:
        raise found


def broken_assumption(signature: Signature, traced: TracedFunction, tensors: Sequence[Any]) -> TesseraError | None:
    """The error for the first assumption of a trace that the sizes of a call break; None where they keep all."""
    sizes = named_sizes(signature, tensors)
    values = {symbol: size for symbol, (size, _) in sizes.items()}
    for item in traced.assumptions:
        if not (item.left.symbols | item.right.symbols) <= values.keys():
            continue
        left, right = item.left.evaluate(values), item.right.evaluate(values)
        if left == right:
            continue
        if item.constraint is not None:
            from tessera.frontend.constraints import BoundCall, static_numbers, violation_error  # noqa: PLC0415 - few have any

            rules = [other.constraint for other in traced.assumptions if other.constraint is not None]
            call = BoundCall(signature, tensors, rules)
            return violation_error(item.constraint, sizes, static_numbers(signature), call)
        symbols = sorted(item.left.symbols | item.right.symbols)
        sources = tuple(f"`{symbol}` is {sizes[symbol][0]} from `{sizes[symbol][1]}`" for symbol in symbols)
        return GuardError(
            _dims(item.left, left, item.right, right),
            span=item.span,
            notes=(f"rule: {item.rule}", *sources),
            fix=_fix(item, sizes, signature, tensors),
        )
    return None


def _fix(
    item: Assumption, sizes: Mapping[str, tuple[int, str]], signature: Signature, tensors: Sequence[Any]
) -> Fix | str | None:
    """The edit of the op that assumes nothing, else that of the call which pads the smaller of two named sizes.

    Of a size that is no multiple of a number the error names the nearest ones.
    """
    of_op = None if item.asker is None else item.asker.shape_fix()
    whole = _multiple(item.left, item.right)
    if of_op is None and whole is not None:
        name, step = whole
        size, source = sizes[name]
        less = size // step * step
        return f"give `{source}` a multiple of {step}: pad it to {less + step}" + (
            f", or cut it to {less}" * bool(less)
        )
    left, right = item.left.symbol_name, item.right.symbol_name
    if of_op is not None or left is None or right is None:
        return of_op
    small, large = sorted((sizes[left], sizes[right]))
    edit = fit_argument_fix(signature, tensors, small[1], large[0])
    found = edit(user_span()) if callable(edit) else None
    return found if isinstance(found, Fix) else None


def _multiple(left: Dim, right: Dim) -> tuple[str, int] | None:
    """The name of a size and the number that must divide it, where two dims say just that: `N` and `4*(N // 4)`."""
    for one, other in ((left, right), (right, left)):
        name = one.symbol_name
        for step in sorted({abs(factor) for _, factor in other.terms}) if name is not None else ():
            if other == Dim.symbol(name or "") // step * step:
                return name or "", step
    return None


def _dims(left: Dim, left_value: int, right: Dim, right_value: int) -> str:
    whole = _multiple(left, right)
    if whole is not None:
        return f"`{whole[0]}` is {max(left_value, right_value)}, but it must be a multiple of {whole[1]}"
    if left.is_static or right.is_static:
        free, value, wanted = (right, right_value, left_value) if left.is_static else (left, left_value, right_value)
        named = next((name for name in free.symbols if free == minimum(Dim.symbol(name), wanted)), None)
        if named is not None:  # the least of a size and a number is the number where the size is as large
            return f"`{named}` is {value}, but it must be at least {wanted}"
        return f"`{free}` is {value}, but it must be {wanted}"
    for bounded, value, dim, limit in ((left, left_value, right, right_value), (right, right_value, left, left_value)):
        if dim in (minimum(bounded, limit), maximum(bounded, limit)):  # which is the limit where the two differ
            return f"`{bounded}` is {value}, but it must be at {'most' if limit < value else 'least'} {limit}"
    return f"`{left}` is {left_value} and `{right}` is {right_value}, but they must be equal"


@frozen
class Origin:
    """Where a program came from: `compiled`, `disk cache` or `reference`, and why it was not in the cache."""

    source: str
    key: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.source}, {self.reason}" if self.reason else self.source


class Specialization:
    """One executable of a jitted function and what is around it."""

    def __init__(
        self, signature: Signature, traced: TracedFunction, captures: Captures, loaded: Program, origin: Origin
    ) -> None:
        self.signature, self.traced, self.loaded, self.origin = signature, traced, loaded, origin
        self.captures = captures
        self._capacity, self._result = None, _result_maker(traced)
        if DONATED in traced.tape.promises:
            from tessera.api.kv_cache import needed_capacity, with_donation_note  # noqa: PLC0415 - few are given anything

            self._capacity, self._result = needed_capacity(traced.tape), with_donation_note(self._result)
        self._watch: Callable[[], Captures] | None = None
        self.is_plain = (
            all(leaf.dtype is not None for leaf in signature.leaves)
            and all(child.is_leaf for child in signature.tree.children)
            and not any(leaf.dims == () for leaf in signature.leaves)
        )
        self.returns_outputs = _returns_outputs(traced)
        self._numbers = _number_makers(signature, traced, loaded)
        self.fast = self._fast_call()
        self._checked_calls = self._earlier_calls = 0

    def run(self, tensors: Sequence[Any], captured: Sequence[Any]) -> Any:
        """The function's result for the tensors of a call, and those it captures."""
        try:
            if self._capacity is not None:
                self._capacity.check(tensors)
            given = [*tensors, *map(adopt, captured)]
            for at, make in self._numbers:
                given[at] = make(given[at].item())
            outputs = self.loaded.run(given)
            self._checked_calls += 1
            if self._watch is not None:
                self.captures, self._watch = self._watch(), None
                self.fast = self._fast_call()
        except (GuardError, RuntimeArgumentError) as error:
            raise broken_assumption(self.signature, self.traced, tensors) or error from None
        return self._result(as_tuple(outputs))

    def check_memory(self, name: str, tensors: Sequence[Any], captured: Sequence[Any]) -> None:
        """Raise DeviceError (T0720) where the tensors of a call are on a GPU, and a captured one is not.

        What was made while tracing is a constant of the program, and goes along.
        """
        held = [(path, tensor) for path, tensor in zip(self.captures.paths, captured, strict=True) if path]
        names = (*self.traced.tape.names[: len(tensors)], *(path for path, _ in held))
        common_device(name, (*tensors, *(tensor for _, tensor in held)), names)

    def watch_later(self, watch: Callable[[], Captures]) -> None:
        """Look at captured variables again after the first run, as functions that the program calls may change them."""
        self._watch = watch

    def exchange(self, loaded: Program, origin: Origin) -> None:
        """Run other code from the next call on that looks here; a call under way ends on what it began with."""
        self._earlier_calls, self._checked_calls = self.fast_calls, 0
        self.loaded, self.origin = loaded, origin
        self.fast = self._fast_call()

    @property
    def fast_calls(self) -> int:
        """How many calls went the fast path; native code counts them, so that counting costs nothing."""
        return self._earlier_calls + max(0, self.loaded.calls - self._checked_calls)

    @property
    def text(self) -> str:
        """What it takes and gives, and what it does besides."""
        tape = self.traced.tape
        inputs = ", ".join(f"{name}: {tape.types[v]}" for name, v in zip(tape.names, tape.inputs, strict=True))
        outputs = ", ".join(str(tape.types[v]) for v in tape.outputs)
        return readable(f"({inputs}) -> ({outputs}) {self.traced.effects}")

    def _fast_call(self) -> Callable[..., Any]:
        """The fast path from all arguments, in the order of the parameters, to the result.

        It gives NotImplemented for arguments that are not of this signature's form; sizes and dtypes of tensors are
        the program's own to check.
        """
        call, captures, returns_outputs = self.loaded.call, self.captures, self.returns_outputs
        if self._capacity is not None:
            call = self._capacity.before(call)
        if self.is_plain and returns_outputs:
            return call if captures.is_empty else _watched_call(call, captures)
        if self.is_plain and captures.is_empty and not self._numbers:
            return _built_call(call, self._result)
        leaves = iter(self.signature.leaves)
        takers = [make_flattener(child, leaves) for child in self.signature.tree.children]
        result, is_alone, numbers = self._result, captures.is_empty, self._numbers

        def call_around(*arguments: Any) -> Any:
            tensors = _collect_tensors(takers, arguments)
            if tensors is None:
                return NotImplemented
            for at, make in numbers:
                tensors[at] = make(tensors[at])
            if not is_alone:
                captured = captures.tensors()
                if captured is None:
                    return NotImplemented
                tensors += captured
            outputs = _call_adopting(call, tensors)
            if outputs is NotImplemented or returns_outputs:
                return outputs
            return result(as_tuple(outputs))

        return call_around


def _built_call(call: Callable[..., Any], result: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """A program's own call, whose outputs are put into the form of the function's result."""

    def call_built(*arguments: Any) -> Any:
        outputs = call(*arguments)
        return outputs if outputs is NotImplemented else result(as_tuple(outputs))

    return call_built


def _collect_tensors(takers: Sequence[Flattener], arguments: Sequence[Any]) -> list[Any] | None:
    """The tensors of arguments, in order; None for arguments of another form."""
    if len(arguments) != len(takers):
        return None
    tensors: list[Any] = []
    for take, argument in zip(takers, arguments, strict=True):
        if not take(argument, tensors):
            return None
    return tensors


def _number_makers(
    signature: Signature, traced: TracedFunction, loaded: Program
) -> list[tuple[int, Callable[[float], Any]]]:
    """Which tensors of a call are Python floats, and what makes each a scalar that the program takes."""
    tape = traced.tape
    leaves = enumerate([leaf for leaf in signature.leaves if leaf.dtype is not None])
    dtypes = [(at, tape.types[tape.inputs[at]].dtype) for at, leaf in leaves if leaf.is_number]
    if not dtypes:
        return []
    placed: Any = getattr(loaded, "number_maker", None)
    if placed is None:
        from tessera.runtime.tensor import number_maker as placed  # noqa: PLC0415 - few functions take numbers
    return [(at, placed(dtype, is_given=DONATED in tape.promises)) for at, dtype in dtypes]


def _watched_call(call: Callable[..., Any], captures: Captures) -> Callable[..., Any]:
    """A program's own call, as long as its captured variables are as they were."""

    def call_watched(*arguments: Any) -> Any:
        watched, pairs, reads = captures.current
        for get, key, seen in watched:
            if get(key, MISSING) is not seen:
                return NotImplemented
        if pairs:
            captured = captures.tensors()
            if captured is None:
                return NotImplemented
        else:
            captured = [get(key, MISSING) for get, key in reads] if reads else ()
        return _call_adopting(call, (*arguments, *captured))

    return call_watched


def _call_adopting(call: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    """A program's own call, with tensors of other libraries as ours where it does not take them as they are."""
    outputs = call(*tensors)
    if outputs is NotImplemented and (adopted := adopt_tensors(tensors)) is not None:
        return call(*adopted)
    return outputs


def _result_maker(traced: TracedFunction) -> Callable[[Sequence[Any]], Any]:
    """What makes the function's result of the outputs: often its form alone, with each output once and in order."""
    if [slot.output for slot in traced.slots] != list(range(len(traced.slots))):
        return traced.result
    make = traced.make
    return lambda outputs: make(iter(outputs))


def _returns_outputs(traced: TracedFunction) -> bool:
    """Whether the program's outputs are the function's result as they are: one tensor, or a tuple of several."""
    numbers = [slot.output for slot in traced.slots]
    if numbers != list(range(len(numbers))):
        return False
    tree = traced.tree
    if tree.is_leaf:
        return True
    return tree.type is tuple and len(numbers) > 1 and all(child.is_leaf for child in tree.children)


# Why a jitted function was specialized again: what changed between two signatures, and how to avoid it.


@frozen
class CacheInfo:
    """What a jitted function's calls found: `compiles` made code, the other `misses` loaded it from disk."""

    hits: int
    misses: int
    compiles: int
    size: int

    @classmethod
    def sum(cls, infos: Iterable[CacheInfo]) -> CacheInfo:
        """The counts of several functions together."""
        counts = [(info.hits, info.misses, info.compiles, info.size) for info in infos]
        return cls(*map(sum, zip(*counts, strict=True)))


@frozen
class Around:
    """Where a function was called, as far as its code depends on it: a scope's device, and what a caller promises."""

    device: Device | None = None
    promise: str = ""


MANY = 8
"""Specializations of a function up to which nobody is told."""


class History:
    """The last two specializations of a function, in whatever scopes they were made, and what changed so far.

    `needed` are floats whose values the program needs, and why; `annotations` those of parameters that are not
    Tessera's, as they are written; `function` is whose source says how names are written there.
    """

    def __init__(self, needed: Mapping[str, str], annotations: Mapping[str, str], function: Any) -> None:
        self._seen: list[tuple[Specialization, Around]] = []
        self._needed, self._annotations, self._function = needed, annotations, function
        self._changed: Counter[str] = Counter()
        self.count, self._is_told = 0, False

    def add(self, made: Specialization, around: Around) -> None:
        """A new specialization."""
        self._seen = [*self._seen[-1:], (made, around)]
        self.count += 1
        if len(self._seen) == 2:
            self._changed.update(_changed_arguments(*(one.signature for one, _ in self._seen)))

    def clear(self) -> None:
        """Forget all of them."""
        self._seen, self.count, self._is_told = [], 0, False
        self._changed.clear()

    def warning(self, name: str) -> str:
        """What to tell of a function that was specialized often, once; else nothing."""
        if self.count <= MANY or self._is_told:
            return ""
        self._is_told = True
        most = self._changed.most_common(1)
        changed = f": `{most[0][0]}` changed {most[0][1]} times" if most else ""
        return f"`{name}` has been compiled for {self.count} signatures{changed}\n{self.explain(name)}"

    def explain(self, name: str) -> str:
        """Why the last one was needed: what changed, and what to write so that it would not."""
        if len(self._seen) < 2:
            return f"`{name}` has not been specialized a second time"
        from tessera.api import recompile  # noqa: PLC0415 - few ask

        (before, there), (after, here) = self._seen
        lines = [f"`{name}` was specialized again because", *recompile.scope_changes(there, here)]
        old, new = before.signature, after.signature
        lines += recompile.policy_change(old.policy, new.policy) if old.policy != new.policy else []
        known = recompile.Known(self._needed, self._annotations, self._function)
        lines += recompile.form_changes(old, new) if old.tree != new.tree else recompile.leaf_changes(old, new, known)
        # Between equal signatures on equal devices, the change is in captured variables.
        captured = after.captures.differences(before.captures) if len(lines) == 1 else ()
        return "\n".join([*lines, *recompile.captured_changes(captured)])


def _changed_arguments(old: Signature, new: Signature) -> list[str]:
    """The paths of the leaves in which two signatures of one form differ."""
    if old.tree != new.tree:
        return []
    triples = zip(new.paths(), old.leaves, new.leaves, strict=True)
    return [path for path, before, after in triples if before != after]
