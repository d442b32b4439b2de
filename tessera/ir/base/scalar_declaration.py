"""What the entry of a scalar function says, and the table that `scalar_functions.py` fills with them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from tessera.ir.base.interval import IntervalRule
from tessera.ir.base.spec import FLOATS, ROUND, PolicyRule, Simplify, Transform
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import COMPARISON, FLOATING, PREDICATE, OpClass


@frozen
class GraphOp:
    """A graph op, and public function, that computes a scalar function: its name, dtypes and rules."""

    name: str
    summary: str
    group: OpClass
    dtypes: tuple[str, ...]
    interval: IntervalRule
    simplify: Simplify | None = None


@frozen
class ScalarFunction:
    """One function of scalars.

    `group` says what operands are cast to and what the result is, `dtypes` what the function takes. `reference` is
    its meaning on f64 arrays: "numpy:exp", or the name of a function of `ir/base/scalar_reference.py`;
    `integer_reference` that on integers, where it differs. `emit`, `emit_integer` and `emit_bool` write LLVM for the
    three kinds of operands: an instruction ("fadd"), a comparison ("fcmp oeq"), an intrinsic ("llvm.sqrt"), or a
    function of a file of `ir/target/llvm` ("math_exp:exp"). `ulp` is the largest error in units of the last place of
    f32 and of f64, None for a function that is exact or correctly rounded. `interval` is how far it takes its operands
    (`ir/base/interval.py`), `flops` its cost for one element; an `is_expensive` value is kept rather than computed
    twice. `samples` are the numbers it is tried with: "everything", "positive", "tame" (nothing huge or infinite,
    where there is no limit worth a promise) or "powers".

    The graph op is named as the function is, or `op`; a function with several graph ops lists them as `ops`, which is
    empty for one that only kernels call. `kernel` is the name in the kernel language ("" for none, None for that of
    the op), `number` what it gives for a Python number there; one that `keeps_zero` gives 0 for 0. `jvp`, `transpose`
    and `batch` are slots of the transforms of those names.
    """

    name: str
    summary: str
    reference: str
    arity: int = 1
    group: OpClass = FLOATING
    dtypes: tuple[str, ...] = FLOATS
    integer_reference: str = ""
    emit: str = ""
    emit_integer: str = ""
    emit_bool: str = ""
    ulp: tuple[float, float] | None = None
    interval: IntervalRule | None = None
    flops: int = 1
    is_expensive: bool = False
    samples: str = "everything"
    simplify: Simplify | None = None
    policy: PolicyRule = ROUND
    op: str = ""
    ops: tuple[GraphOp, ...] | None = None
    kernel: str | None = None
    number: Callable[[float], float] | None = None
    keeps_zero: bool = False
    jvp: Transform | None = None
    transpose: Transform | None = None
    batch: Transform | None = None

    @property
    def is_predicate(self) -> bool:
        """Whether it gives bool; all others give the dtype they take."""
        return self.group in (PREDICATE, COMPARISON)

    @property
    def takes_integers(self) -> bool:
        return "i32" in self.dtypes

    @property
    def graph_ops(self) -> tuple[GraphOp, ...]:
        """The graph ops that compute it."""
        if self.ops is not None:
            return self.ops
        assert self.interval is not None
        return (GraphOp(self.op or self.name, self.summary, self.group, self.dtypes, self.interval, self.simplify),)

    @property
    def kernel_name(self) -> str:
        """What the kernel language calls it, or nothing."""
        return self.op or self.name if self.kernel is None else self.kernel

    def emission_for(self, dtype: DType) -> str:
        """The writer for operands of a dtype; empty where there is none."""
        return self.emit if dtype.is_float else self.emit_bool if dtype.is_bool else self.emit_integer


SCALAR_FUNCTIONS: dict[str, ScalarFunction] = {}
"""Every scalar function by its name in tiles."""


def declare(function: ScalarFunction) -> None:
    """Add an entry to the table; raises TypeError for one that lacks what its dtypes need."""

    def fail(field: str, why: str) -> TypeError:
        return TypeError(f"scalar function `{function.name}` lacks `{field}`: {why}")

    if function.name in SCALAR_FUNCTIONS:
        raise TypeError(f"scalar function `{function.name}` is declared twice")
    if function.interval is None and function.ops is None:
        raise fail("interval", "range proofs need a rule of `ir/base/interval.py`; `ANYTHING` says that there is none")
    needed = (("emit", "f32", "floats"), ("emit_integer", "i32", "integers"), ("emit_bool", "bool", "bools"))
    for field, dtype, kind in needed:
        if dtype in function.dtypes and not getattr(function, field):
            raise fail(field, f'it takes {kind}, for which LLVM needs a writer, as in `{field}="math_log:log"`')
    if function.emit.startswith("math_") and function.ulp is None:
        raise fail("ulp", "an approximation states its largest error for f32 and f64, as in `ulp=(1.0, 1.5)`")
    SCALAR_FUNCTIONS[function.name] = function


@cache
def resolve(reference: str) -> Callable[..., Any]:
    """The function that a `reference` names."""
    module, _, name = reference.rpartition(":")
    return getattr(importlib.import_module(module or "tessera.ir.base.scalar_reference"), name)
