"""A jitted function made for one signature: its tape, its executable, and the way from arguments to results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tessera.api.captures import Captures
from tessera.api.outside import MISSING
from tessera.diagnostics.codes import GuardError, RuntimeArgumentError
from tessera.diagnostics.error import Fix, TesseraError
from tessera.diagnostics.span import user_span
from tessera.frontend.bind import Signature, fitting, named_sizes
from tessera.frontend.facts import Assumption
from tessera.frontend.several import several
from tessera.frontend.shortcuts import taker
from tessera.frontend.trace_function import TracedFunction
from tessera.types.dim import Dim
from tessera.types.frozen import frozen


class Loaded(Protocol):
    """A program ready to run; `calls` is how often it ran."""

    @property
    def calls(self) -> int: ...

    def call(self, *tensors: Any) -> Any:
        """The result of one output, or a tuple; NotImplemented when the tensors are not what this path takes."""
        ...

    def run(self, arguments: Sequence[Any]) -> Any:
        """As `call`, by the way that takes all that can be made to fit and says what is wrong with the rest."""
        ...


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
        self, signature: Signature, traced: TracedFunction, captures: Captures, loaded: Loaded, origin: Origin
    ) -> None:
        self.signature, self.traced, self.loaded, self.origin = signature, traced, loaded, origin
        self.captures = captures
        self._watch: Callable[[], Captures] | None = None
        self.is_plain = (
            all(leaf.dtype is not None for leaf in signature.leaves)
            and all(child.is_leaf for child in signature.tree.children)
            and not any(leaf.dims == () for leaf in signature.leaves)
        )
        self.returns_outputs = _returns_outputs(traced)
        self.fast = self._fast_call()
        self._checked_calls = 0

    def run(self, tensors: Sequence[Any], captured: Sequence[Any]) -> Any:
        """The function's result for the tensors of a call, and those it takes from outside."""
        try:
            outputs = self.loaded.run((*tensors, *captured))
            self._checked_calls += 1
            if self._watch is not None:
                self.captures, self._watch = self._watch(), None
                self.fast = self._fast_call()
        except (GuardError, RuntimeArgumentError) as error:
            raise self._explained(error, tensors) from None
        return self.traced.result(several(outputs))

    def watch_later(self, watch: Callable[[], Captures]) -> None:
        """Look at the outside again after the first run: what functions that the program calls change is theirs."""
        self._watch = watch

    @property
    def fast_calls(self) -> int:
        """How many calls went the short way; native code counts them, so that counting costs nothing."""
        return max(0, self.loaded.calls - self._checked_calls)

    def _fast_call(self) -> Callable[..., Any]:
        """The shortest way from all arguments, in the order of the parameters, to the result.

        It gives NotImplemented for arguments that are not of this signature's form; sizes and dtypes of tensors are
        the program's own to check.
        """
        call, captures, returns_outputs = self.loaded.call, self.captures, self.returns_outputs
        if self.is_plain and returns_outputs:
            return call if captures.is_empty else _watched_call(call, captures)
        leaves = iter(self.signature.leaves)
        takers = [taker(child, leaves) for child in self.signature.tree.children]
        count, result, is_alone = len(takers), self.traced.result, captures.is_empty

        def call_around(*arguments: Any) -> Any:
            if len(arguments) != count:
                return NotImplemented
            tensors: list[Any] = []
            for take, argument in zip(takers, arguments, strict=True):
                if not take(argument, tensors):
                    return NotImplemented
            if not is_alone:
                captured = captures.tensors()
                if captured is None:
                    return NotImplemented
                tensors += captured
            outputs = call(*tensors)
            if outputs is NotImplemented or returns_outputs:
                return outputs
            return result(several(outputs))

        return call_around

    def _explained(self, error: TesseraError, tensors: Sequence[Any]) -> TesseraError:
        """A failed guard as the rule that the trace relied on, both values, and where each came from."""
        sizes = named_sizes(self.signature, tensors)
        values = {symbol: size for symbol, (size, _) in sizes.items()}
        for item in self.traced.assumptions:
            if not (item.left.symbols | item.right.symbols) <= values.keys():
                continue
            left, right = item.left.evaluate(values), item.right.evaluate(values)
            if left == right:
                continue
            if item.constraint is not None:
                from tessera.frontend.constraints import Given, static_numbers, violation  # noqa: PLC0415 - few have any

                rules = [other.constraint for other in self.traced.assumptions if other.constraint is not None]
                call = Given(self.signature, tensors, rules)
                return violation(item.constraint, sizes, static_numbers(self.signature), call) or error
            symbols = sorted(item.left.symbols | item.right.symbols)
            sources = tuple(f"`{symbol}` is {sizes[symbol][0]} from `{sizes[symbol][1]}`" for symbol in symbols)
            return GuardError(
                _sides(item.left, left, item.right, right),
                span=item.span,
                notes=(f"rule: {item.rule}", *sources),
                fix=self._fix(item, sizes, tensors),
            )
        return error

    def _fix(self, item: Assumption, sizes: Mapping[str, tuple[int, str]], tensors: Sequence[Any]) -> Fix | None:
        """The edit of the op that assumes nothing, else that of the call which pads the smaller of two named sizes."""
        of_op = None if item.asker is None else item.asker.shape_fix()
        left, right = item.left.symbol_name, item.right.symbol_name
        if of_op is not None or left is None or right is None:
            return of_op
        small, large = sorted((sizes[left], sizes[right]))
        edit = fitting(self.signature, tensors, small[1], large[0])
        found = edit(user_span()) if callable(edit) else None
        return found if isinstance(found, Fix) else None


def _watched_call(call: Callable[..., Any], captures: Captures) -> Callable[..., Any]:
    """A program's own call, as long as what it took from outside is as it was."""

    def call_watched(*arguments: Any) -> Any:
        watched, pairs, reads = captures.current
        for get, key, seen in watched:
            if get(key, MISSING) is not seen:
                return NotImplemented
        if pairs:
            captured = captures.tensors()
            return NotImplemented if captured is None else call(*arguments, *captured)
        return call(*arguments, *[get(key, MISSING) for get, key in reads]) if reads else call(*arguments)

    return call_watched


def _sides(left: Dim, left_value: int, right: Dim, right_value: int) -> str:
    if left.is_static or right.is_static:
        free, value, wanted = (right, right_value, left_value) if left.is_static else (left, left_value, right_value)
        return f"`{free}` is {value}, but it must be {wanted}"
    return f"`{left}` is {left_value} and `{right}` is {right_value}, but they must be equal"


def _returns_outputs(traced: TracedFunction) -> bool:
    """Whether the program's outputs are the function's result as they are: one tensor, or a tuple of several."""
    numbers = [slot.output for slot in traced.slots]
    if numbers != list(range(len(numbers))):
        return False
    tree = traced.tree
    if tree.is_leaf:
        return True
    return tree.type is tuple and len(numbers) > 1 and all(child.is_leaf for child in tree.children)
