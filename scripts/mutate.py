"""Draws one-line mutants of verifiers, maps, guards, roundings and recipes, and counts those that tests kill.

    python -m scripts.mutate --count 300 --seed 1 --record benchmarks/results/mutants.json

A mutant is the package with one line changed: a comparison swapped, a number off by one, a conjunct dropped, a
condition negated, two arguments swapped, a statement removed. Each is tried in a copy of the tree, never in place, by
the tests of its neighbourhood alone (`NEIGHBOURHOODS`); one that all of them pass survives. Survivors are listed: each
needs a test that kills it, or a reason in `EQUIVALENT` why no program can tell it from the original.

    python -m pytest -p scripts.reach --reach build/reach.json.gz -n 2 -m "not slow"
    python -m scripts.mutate --reach build/reach.json.gz --jobs 2 --count 1000 --seed 2

With `--reach` a mutant is tried by tests that reach its line, wherever they are, before those of its neighbourhood;
`scripts.reach` writes that map. `--jobs` tries so many mutants at a time, each in a copy of its own. `--again` tries
the survivors of a record, and `--only` keeps to modules whose path contains a text, of a draw and of a record.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

OF_OPS = (
    "tests/graph/test_op_rules.py tests/graph/test_decompositions.py tests/ir/graph/test_every_op.py "
    "tests/numerics/test_intervals.py"
)
"""What holds every op of the graph."""
OF_RULES = "tests/transforms/test_custom.py::test_a_rule_may_take_its_tangent_as_any_operand " + " ".join(
    f"tests/transforms/test_{name}.py" for name in ("symbolic", "every_op", "grad", "vmap", "loops")
)
"""What holds rules of derivatives and batches."""

NEIGHBOURHOODS: Mapping[str, str] = {
    # Verifiers.
    "tessera/ir/tile/passes/check_races.py": "tests/lit/tile/check_races.mlir tests/tile/test_check_races.py",
    "tessera/ir/tile/passes/check_bounds.py": "tests/lit/tile/check_bounds.mlir tests/tile/test_check_bounds.py",
    "tessera/ir/tile/passes/check_barriers.py": "tests/lit/tile/check_barriers.mlir tests/tile/test_check_barriers.py",
    "tessera/ir/tile/sampled_run.py": "tests/tile/test_race_observer.py tests/tile/test_check_races.py "
    "tests/tile/test_check_barriers.py",
    "tessera/ir/tile/sites.py": "tests/tile/test_indexing.py tests/tile/test_check_bounds.py "
    "tests/tile/test_check_races.py tests/lit/tile",
    "tessera/ir/tile/ops/access.py": "tests/tile/test_op_verifiers.py tests/lit/tile "
    "tests/tile/test_memory_ops.py tests/kernel/test_gather.py",
    "tessera/ir/tile/ops/control.py": "tests/tile/test_op_verifiers.py tests/lit/tile tests/kernel/test_pipelines.py",
    "tessera/ir/base/block_ops.py": "tests/ir/base/test_block_ops.py tests/tile/test_op_verifiers.py "
    "tests/lit/tile tests/lit/target tests/tile/test_interpret.py tests/tile/test_lanes.py",
    "tessera/ir/target/ops/blocks.py": "tests/target/test_block_rules.py tests/target/test_memory.py "
    "tests/target/test_mutations.py",
    "tessera/ir/target/ops/kernel.py": "tests/target/test_block_rules.py tests/target/test_kernel.py "
    "tests/target/test_launch.py tests/target/test_contraction_rules.py",
    "tessera/ir/target/ops/matrix.py": "tests/target/test_contraction_rules.py tests/lit/target",
    "tessera/ir/target/limits.py": "tests/target/test_limits.py tests/target/test_block_rules.py "
    "tests/target/test_memory.py tests/target/test_kernel.py tests/target/test_spaces.py "
    "tests/lit/nvptx/choose_vectors.mlir tests/lit/target",
    "tessera/ir/schedule/host_program/accesses.py": "tests/schedule/test_host_accesses.py tests/lit/schedule "
    "tests/schedule/test_lifetimes.py",
    "tessera/ir/schedule/host_program/memory.py": "tests/schedule/test_memory.py tests/schedule/test_host_accesses.py "
    "tests/lit/schedule",
    "tessera/ir/schedule/ops/plan.py": "tests/schedule/test_op_verifiers.py tests/lit/schedule "
    "tests/schedule/test_plans.py tests/schedule/test_text.py",
    "tessera/ir/schedule/ops/host.py": "tests/schedule/test_op_verifiers.py tests/lit/schedule "
    "tests/schedule/test_lifetimes.py",
    "tessera/ir/graph/passes/check_policy.py": "tests/ir/graph/test_checks.py "
    "tests/lit/graph/check_policy.mlir tests/policy/test_passthrough.py tests/policy/test_policy.py "
    "tests/policy/test_refusals.py tests/policy/test_composites.py tests/policy/test_verify.py",
    "tessera/ir/graph/passes/check_numerics.py": "tests/ir/graph/test_checks.py tests/lit/graph/check_numerics.mlir",
    "tessera/ir/graph/passes/check_effects.py": "tests/ir/graph/test_checks.py "
    "tests/lit/graph/check_effects.mlir tests/effects/test_inference.py",
    "tessera/ir/graph/passes/check_ranges.py": "tests/ir/graph/test_checks.py "
    "tests/lit/graph/check_ranges.mlir tests/policy/test_verify.py",
    "tessera/ir/graph/kept_values.py": "tests/graph/test_kept_values.py",
    "tessera/ir/graph/tape_analysis.py": "tests/effects/test_order.py tests/policy/test_verify.py "
    "tests/effects/test_inference.py",
    "tessera/backends/nvptx/ops/mma_sync.py": "tests/backends/nvptx/test_instruction_rules.py "
    "tests/backends/nvptx/test_kernel_rules.py tests/backends/nvptx/test_ampere.py",
    "tessera/backends/nvptx/ops/tcgen05.py": "tests/backends/nvptx/test_instruction_rules.py "
    "tests/backends/nvptx/test_kernel_rules.py tests/backends/nvptx/test_blackwell.py",
    "tessera/backends/nvptx/ops/tma.py": "tests/backends/nvptx/test_instruction_rules.py "
    "tests/backends/nvptx/test_kernel_rules.py tests/backends/nvptx/test_hopper.py",
    "tessera/backends/nvptx/ops/wgmma*.py": "tests/backends/nvptx/test_instruction_rules.py "
    "tests/backends/nvptx/test_kernel_rules.py tests/lit/target tests/backends/nvptx/test_hopper.py "
    "tests/backends/nvptx/test_operand_faults.py",
    "tessera/backends/nvptx/mma/check_copies.py": "tests/backends/nvptx/test_kernel_rules.py "
    "tests/backends/nvptx/test_hopper.py tests/backends/nvptx/test_verify.py tests/backends/nvptx/test_blackwell.py "
    "tests/backends/nvptx/test_ampere.py",
    # Maps.
    "tessera/ir/base/index_maps.py": "tests/ir/base/test_index_maps.py tests/graph/test_movement.py",
    "tessera/ir/tile/indexing.py": "tests/tile/test_indexing.py tests/tile/test_check_bounds.py "
    "tests/tile/test_check_races.py tests/lit/tile",
    "tessera/types/dim.py": "tests/types tests/ir/base/test_index_maps.py",
    "tessera/types/shape.py": "tests/types/test_shape.py tests/types/test_constraint.py tests/graph/test_movement.py",
    "tessera/backends/nvptx/passes/choose_vectors.py": "tests/backends/nvptx/test_choose_vectors.py "
    "tests/lit/nvptx/choose_vectors.mlir",
    "tessera/backends/nvptx/layout.py": "tests/backends/nvptx/test_layout.py",
    # Guards.
    "tessera/types/constraint.py": "tests/types/test_constraint.py",
    "tessera/types/constraint_proof.py": "tests/types/test_constraint.py",
    "tessera/types/constraint_store.py": "tests/types/test_constraint_store.py tests/types/test_constraint_values.py "
    "tests/types/test_constraint.py "
    "tests/frontend/test_constraints.py",
    "tessera/frontend/constraints.py": "tests/frontend/test_constraints.py tests/frontend/test_constraints_of_ops.py "
    "tests/frontend/test_dynamic_dims.py tests/errors/test_programs.py tests/errors/test_fixes.py",
    "tessera/runtime/donation.py": "tests/api/test_donation.py",
    # Rounding.
    "tessera/ir/base/interval.py": "tests/ir/base/test_interval.py tests/numerics/test_intervals.py "
    "tests/policy/test_verify.py",
    "tessera/ir/base/scalar_reference.py": "tests/ir/base/test_scalar_functions.py tests/ir/base/test_block_ops.py "
    "tests/tile/test_interpret.py tests/graph/test_elementwise.py tests/numerics/test_samples.py",
    "tessera/types/promotion.py": "tests/types/test_promotion.py",
    "tessera/ir/target/llvm/convert.py": "tests/backends/cpu/test_convert.py tests/policy/test_rounding.py "
    "tests/policy/test_execution.py tests/policy/test_plain_roundings.py",
    "tessera/ir/graph/policy_casts.py": "tests/policy/test_conversions.py tests/lit/graph/apply_policy.mlir "
    "tests/graph/test_op_rules.py tests/policy/test_refusals.py tests/policy/test_policy.py "
    "tests/policy/test_composites.py tests/policy/test_accumulators.py::test_sums_at_indices "
    "tests/policy/test_accumulators.py::test_f64_is_left_alone "
    "tests/policy/test_accumulators.py::test_products_of_vectors_and_stacks "
    "tests/policy/test_accumulators.py::test_mistakes_are_told_of_the_op_that_was_written",
    # Recipes.
    "tessera/ir/graph/ops/reduce.py": f"{OF_OPS} tests/graph/test_reduce.py tests/graph/test_simplify.py",
    "tessera/ir/graph/ops/sort.py": f"{OF_OPS} tests/graph/test_sort.py tests/graph/test_simplify.py",
    "tessera/ir/graph/ops/normalization.py": f"{OF_OPS} tests/graph/test_norm.py tests/graph/test_softmax.py "
    "tests/graph/test_composite.py",
    "tessera/ir/graph/ops/random.py": f"{OF_OPS} tests/graph/test_random.py tests/graph/test_composite.py",
    # Derivatives and batches.
    "tessera/ir/graph/derivatives/*.py": OF_RULES,
    "tessera/ir/graph/derivatives/kernel*.py": "tests/transforms/test_kernels.py tests/trials/test_kernel_gradients.py",
    "tessera/ir/graph/derivatives/custom.py": "tests/transforms/test_custom.py tests/transforms/test_effects.py",
    "tessera/ir/graph/derivatives/movement.py": f"{OF_RULES} "
    "tests/transforms/test_collectives.py::test_a5_a_gradient_on_four_ranks_is_that_of_one",
    "tessera/ir/graph/derivatives/control.py": f"{OF_RULES} tests/transforms/test_checkpoint.py "
    "tests/transforms/test_custom.py tests/transforms/test_orders.py",
    "tessera/ir/graph/transforms/*.py": f"{OF_RULES} tests/transforms/test_checkpoint.py "
    "tests/transforms/test_custom.py tests/policy/test_gradients.py tests/features/test_graph.py",
    "tessera/ir/graph/transforms/associativity.py": "tests/transforms/test_algebra.py",
    "tessera/ir/graph/transforms/combine.py": "tests/transforms/test_algebra.py",
    "tessera/ir/graph/transforms/linearity.py": "tests/transforms/test_custom.py",
    "tessera/ir/graph/batching/*.py": f"{OF_RULES} tests/transforms/test_custom.py tests/transforms/test_axis_names.py "
    "tests/transforms/test_checkpoint.py",
    # Interpreters.
    "tessera/ir/tile/interpret.py": "tests/tile/test_interpret_memory.py tests/tile/test_interpret.py "
    "tests/tile/test_softmax_ops.py tests/tile/test_lanes.py",
}
"""Modules, and the tests around each: seconds, not the whole suite."""

EQUIVALENT: Mapping[str, str] = {
    "tessera/backends/nvptx/layout.py: quotient, reach = 0, 2": "what no thread moves is a constant, and folded as one",
    "tessera/backends/nvptx/layout.py: is_whole = self.threads > 33 and self.threads & (self.threads - 1) == 0 "
    "and not self.replicas": "33 threads are no power of two",
    "tessera/backends/nvptx/layout.py: is_whole = self.threads > 32 and self.threads & (self.threads - 2) == 0 "
    "and not self.replicas": "an even number shares no bit with two less where it shares none with one less, and an "
    "odd one shares one with both",
    "tessera/backends/nvptx/ops/tma.py: if not total or total >= MAX_TRANSACTION:": "tiles are multiples of 256 bytes, "
    "and the limit is odd",
    "tessera/ir/target/ops/blocks.py: if row & (row - 2) or row * size <= swizzle:": "only a row of one element tells "
    "them apart, and it is no longer than a piece",
    "tessera/ir/target/limits.py: return (second.value or 0) > 1 and _grows(first, names)": "parts of 1 are no parts",
    "tessera/ir/target/limits.py: return top is not None and fits(size, top, bound)": "both are taken from the bound",
    "tessera/ir/target/ops/matrix.py: types = [value.type for value in op.operands[:5]]": "a fifth operand is an index",
    "tessera/ir/base/interval.py: return 1 / (1 + math.exp(-x)) if x > 0 else (math.exp(x) / (1 + math.exp(x)))": ""
    "both forms give one half at zero",
    "tessera/ir/base/index_maps.py: ends = {product(dim for _, dim in given[:end]): end for end in "
    "range(1, len(given) + 2)}": "a slice that ends behind the last is the whole, as the one before it",
    "tessera/ir/base/index_maps.py: if end_given is not None and end_given >= first_given:": "a product of sizes comes "
    "again only where one of them is zero, and no map is made for those",
    "tessera/ir/base/scalar_reference.py: ends = np.where(wide >= 0, whole.dtype.type(high), whole.dtype.type(low))": ""
    "zero is in every range, and takes neither end",
    "tessera/ir/base/scalar_reference.py: inside = (wide > low) & (wide < float(high + 1))": "the lowest number is the "
    "end that it takes otherwise",
    "tessera/ir/graph/ops/reduce.py: end = np.where(np.isinf(end) | (end == 0), x.dtype.type(2), end)": "a row of "
    "zeros or infinities has one norm, whatever it is divided by and multiplied with",
    "tessera/ir/graph/kept_values.py: source, sink = -1, -3": "any two numbers that no value has",
    "tessera/ir/tile/sampled_run.py: while size <= _LARGEST_SIZE:": "sizes are odd, and the limit is even",
    "tessera/ir/graph/policy_casts.py: return rule.saturates and all(is_integer(dtype) and dtype.bits <= 33 for dtype "
    "in dtypes)": "no dtype has 33 bits",
    'tessera/ir/graph/policy_casts.py: wide = dt.i32 if own.bits <= 9 else dt.u64 if own is dt.u32 and op == "mul" '
    "else dt.i64": "no dtype has 9 bits",
    "tessera/ir/graph/policy_casts.py: narrow = promote_all([type.dtype for type in types if type.dtype.is_float])": ""
    "ops without floats are left alone before",
    "tessera/ir/graph/policy_casts.py: return self.narrow(found, self._result(promote_all(floats)))": "ops without "
    "floats are left alone before",
    "tessera/types/constraint_store.py: if modulus >= 1:": "a class of modulus 1 moves no bound, and has no reason",
    "tessera/ir/schedule/host_program/memory.py: while isinstance(value.owner, AliasOp):": "an argument is "
    "owned by a block, and no op",
    "tessera/ir/tile/sampled_run.py: with suppress(RaceError, BoundsError, _LimitError):": "errors in any order",
    "tessera/ir/tile/passes/check_races.py: and not are_atomic(second.op, first.op)": "both are, in any order",
    "tessera/ir/tile/passes/check_barriers.py: part, limit = found, 2": "sizes are at least 1, and the smallest of the "
    "points within a limit is taken: all sizes 1, where that is one of them",
    "tessera/ir/tile/passes/check_barriers.py: back = [(a, b) for a in numbers for b in numbers if a >= b]": "an "
    "access and itself are a pair already, which is decided alike once more",
    "tessera/ir/tile/passes/check_barriers.py: if first.buffer is second.buffer and clash and not "
    "_is_one_worker(second, first):": "both have one worker, in any order",
    "tessera/ir/tile/indexing.py: if second.value is not None and second.value > 1:": "a division by 1 is none: it is "
    "simplified away when it is written",
    "tessera/ir/tile/indexing.py: found = self._unknown(Dim((((atom,), 2),)))": "the key of a fresh name: twice an "
    "atom stands for it as well as the atom",
    "tessera/ir/schedule/host_program/memory.py: slots[at].size = _larger(size, slots[at].size)": "the larger of two "
    "has no order",
    "tessera/ir/schedule/host_program/memory.py: return (1, (held - size).value or 1)": "sizes are whole lines: a "
    "difference that is known is 64 or more, and one that is not stays before it",
    "tessera/ir/schedule/host_program/memory.py: return (2, at) if is_at_most(held, size) else (4, at)": "the last of "
    "four ranks stays the last",
    'tessera/types/dim.py: return a if (difference > 0) == (kind == "max") else b': "where they are equal either is",
    "tessera/types/shape.py: is_forward = step >= 0": "a step of 0 is refused before",
    "tessera/types/shape.py: distance, stride = (stop - start, step) if step >= 0 else (start - stop, -step)": ""
    "no slice has a step of 0",
    "tessera/types/constraint_store.py: if bound <= store.high[node]:": "a bound that is no narrower changes nothing",
    "tessera/types/constraint_store.py: if bound >= store.low[node]:": "a bound that is no narrower changes nothing",
    "tessera/ir/target/llvm/convert.py: sticky = f.const_like(value, (below - 1) >> 1)": "bits below the "
    "sticky one are set in its place: they are rounded up to it, or are as sticky as it is",
}
"""`path: line after the change`, and why no program can tell that mutant from the original."""

NONZERO = re.compile(r"(coefficient(?: \* sign)?) (>|<)(?:=? 0|= 1(?<=>= 1)| 1(?<=< 1))(?!\d)")
"""Comparisons of the coefficient of a term: no term of a dim has 0, so that `>= 0`, `> 0` and `>= 1` are one."""

COMMUTATIVE = {
    "_add",
    "_multiply",
    "is_refuted",
    "add",
    "mul",
    "min",
    "max",
    "smin",
    "smax",
    "minimum",
    "maximum",
    "gcd",
    "zip",
    "join",
    "_join",
    "multiply",
    "promote",
    "combine",
}
"""Calls whose first two arguments may be swapped."""
SKIPPED_CALLS = {"fail", "note", "describe"}
"""Calls that make texts alone, which golden files hold."""


@dataclass(frozen=True)
class Mutant:
    """One line of one file, and what it becomes."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    text: str

    def source(self, original: str) -> str:
        """The module with the line changed."""
        lines = original.splitlines(keepends=True)
        return "".join([*lines[: self.line - 1], self.text, *lines[self.line :]])

    @property
    def key(self) -> str:
        return f"{self.path}: {self.after}"

    @property
    def reason(self) -> str:
        """Why no program can tell it from the original; empty where one should."""
        before, after = (NONZERO.sub(r"\1 \2 0", line) for line in (self.before, self.after))
        return "no term of a dim has the coefficient 0" if before == after else EQUIVALENT.get(self.key, "")


Trial = tuple[Mutant, list[str]]
"""A mutant, and the tests that try it."""

# Where mutants come from.

STATEMENT_LINES = 12
"""How far above its line the start of a mutant's statement is looked for."""

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
}
ARITHMETIC: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}


class _Finder(ast.NodeVisitor):
    """The mutants of a module, each as (start, end, text) on one line."""

    def __init__(self, source: str) -> None:
        self.lines = [line.encode() for line in source.splitlines()]
        self.found: list[tuple[str, int, int, int, str]] = []
        self.is_inside = False

    def _add(self, kind: str, node: ast.AST, text: str, last: ast.AST | None = None) -> None:
        """`node`, or all from it to `last`, becomes `text`, where that is one line."""
        end: Any = last or node
        first: Any = node
        if self.is_inside and first.lineno == end.end_lineno:
            self.found.append((kind, first.lineno, first.col_offset, end.end_col_offset, text))

    def _part(self, line: int, start: int, end: int) -> str:
        return self.lines[line - 1][start:end].decode()

    def _text(self, node: Any) -> str:
        is_whole = node.lineno == node.end_lineno
        return self._part(node.lineno, node.col_offset, node.end_col_offset) if is_whole else ""

    def _between(self, kind: str, left: Any, right: Any, swap: tuple[str, str]) -> None:
        """The sign between two operands becomes another."""
        if not self.is_inside or left.end_lineno != right.lineno:
            return
        gap = self._part(right.lineno, left.end_col_offset, right.col_offset)
        if gap.count(swap[0]) == 1:
            at = left.end_col_offset
            self.found.append((kind, left.end_lineno, at, right.col_offset, gap.replace(*swap)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if _makes_samples(node):
            return
        outer, self.is_inside = self.is_inside, True
        for statement in node.body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text:
                self.visit(statement)
        self.is_inside = outer

    def visit_Raise(self, node: ast.Raise) -> None:
        """What is said when it is too late is held by golden texts."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Invariants of our own: they do nothing where they hold."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """An argument, unless it is the samples of an op: those are what tests try."""
        if node.arg != "samples":
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
            self._between("comparison", left, right, COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = [side for side in (node.left, node.right) if isinstance(side, ast.Constant | ast.JoinedStr)]
        is_text = not all(map(_is_number, texts))
        if type(node.op) in ARITHMETIC and not is_text:
            self._between("arithmetic", node.left, node.right, ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for number, value in enumerate(node.values):
            others = [self._text(other) for at, other in enumerate(node.values) if at != number]
            if all(others) and self._text(value):
                joined = (" and " if isinstance(node.op, ast.And) else " or ").join(others)
                self._add("conjunct", node, joined)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if text := self._text(node.test):
            self._add("condition", node.test, f"not ({text})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if _is_number(node):
            assert isinstance(node.value, int)
            self._add("number", node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in SKIPPED_CALLS:
            return
        if name not in COMMUTATIVE and name not in ("isinstance", "getattr", "range", "cast") and len(node.args) >= 2:
            first, second = (self._text(argument) for argument in node.args[:2])
            is_plain = not any(isinstance(argument, ast.Starred) for argument in node.args[:2])
            if first and second and is_plain and first != second:
                self._add("arguments", node.args[0], f"{second}, {first}", node.args[1])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") not in SKIPPED_CALLS:
            self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("statement", node, "pass")


def _makes_samples(node: ast.FunctionDef) -> bool:
    """Whether a function makes example operands of an op: those are what tests try, and no promise of their own."""
    returned = "" if node.returns is None else ast.unparse(node.returns)
    return returned == "Make" or "Sample" in returned or any(one.arg == "rng" for one in node.args.args)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    lines = source.splitlines(keepends=True)
    seen: set[tuple[int, str]] = set()
    for kind, number, start, end, text in finder.found:
        raw = lines[number - 1].encode()
        line = (raw[:start] + text.encode() + raw[end:]).decode()
        if (number, line) not in seen and line != lines[number - 1]:
            seen.add((number, line))
            yield Mutant(path, number, kind, lines[number - 1].strip(), line.strip(), line)


def modules(only: str = "") -> dict[str, list[str]]:
    """The modules that are changed, those whose path contains `only`, and the tests around each."""
    files = ((file, tests) for pattern, tests in NEIGHBOURHOODS.items() for file in sorted(ROOT.glob(pattern)))
    found = {str(file.relative_to(ROOT)): tests.split() for file, tests in files if file.name != "__init__.py"}
    return {path: tests for path, tests in found.items() if only in path}


def draw(count: int, seed: int, only: str = "") -> list[Trial]:
    """Mutants at random, as many of each module as of the others, and the tests around each."""
    choose, rows = random.Random(seed), list[list[Trial]]()
    for path, tests in modules(only).items():
        found = [(mutant, tests) for mutant in mutants_of(path, (ROOT / path).read_text(encoding="utf-8"))]
        rows.append(choose.sample(found, len(found)))
    drawn = [one for row in zip_longest(*rows) for one in row if one is not None]
    return choose.sample(drawn[:count], min(count, len(drawn)))


def survivors_of(record: Path, only: str = "") -> list[Trial]:
    """The survivors of a record, as the sources are now."""
    wanted = {(one["path"], one["before"], one["after"]) for one in json.loads(record.read_text())["survivors"]}
    drawn = draw(sys.maxsize, 0, only)
    return [(one, tests) for one, tests in drawn if (one.path, one.before, one.after) in wanted]


def add_reaching(drawn: Sequence[Trial], file: Path) -> list[Trial]:
    """Mutants with the tests that reach their lines, by a map of `scripts.reach`, before those around them."""
    known = json.loads(gzip.decompress(file.read_bytes()))
    found: list[Trial] = []
    for mutant, tests in drawn:
        lines = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
        # A line inside a statement of several may have no event of its own: the next above it that has one.
        above = (f"{mutant.path}: {line.strip()}" for line in lines[mutant.line - 1 :: -1][:STATEMENT_LINES])
        numbers = next((known["lines"][line] for line in above if line in known["lines"]), ())
        found.append((mutant, [*(known["tests"][number] for number in numbers), *tests]))
    return found


# Trying them.

PRELOADED = ("numpy", "ml_dtypes", "xdsl.parser", "xdsl.pattern_rewriter", "islpy", "z3")
"""Libraries that no mutant changes, loaded once for all."""


class Laboratory:
    """A copy of the tree in which mutants are tried, one at a time."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.process, self.end = 0, 0.0
        self.changed: tuple[Path, str] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-mutants-"))
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "build", ".*_cache")
        shutil.copytree(ROOT, self.folder, ignore=ignored, dirs_exist_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, tests: Sequence[str], mutant: Mutant | None = None) -> None:
        """Run tests in a process of their own, up to the first failure."""
        if mutant is not None:
            file = self.folder / mutant.path
            original = file.read_text(encoding="utf-8")
            self.changed = file, original
            file.write_text(mutant.source(original), encoding="utf-8")
        command = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-m", "not slow", *tests]
        self.end = time.monotonic() + self.timeout
        self.process = os.fork()
        if not self.process:
            self._child(command)

    def poll(self) -> str:
        """`passed`, `failed`, `broken` or `timeout`, and the copy as it was; nothing while tests run."""
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done and time.monotonic() < self.end:
            return ""
        if not done:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        if self.changed is not None:
            self.changed[0].write_text(self.changed[1], encoding="utf-8")
            self.changed = None
        return {0: "passed", 1: "failed"}.get(os.waitstatus_to_exitcode(status), "broken") if done else "timeout"

    def run(self, tests: Sequence[str], mutant: Mutant | None = None) -> str:
        """How tests end, with a mutant or without."""
        self.start(tests, mutant)
        while not (result := self.poll()):
            time.sleep(0.05)
        return result

    def _child(self, command: Sequence[str]) -> None:
        """Never comes back."""
        os.setpgid(0, 0)
        code = 70
        try:
            os.chdir(self.folder)
            sys.path[:] = [str(self.folder), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
            os.environ.update(PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1")
            sys.dont_write_bytecode = True
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tessera", "tests")]:
                del sys.modules[name]
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            code = int(pytest.main(list(command)))
        finally:
            os._exit(code)


def check_baseline(laboratory: Laboratory, drawn: Sequence[Trial]) -> None:
    """Stop where tests fail without a mutant: nothing would be learned from them."""
    print("first the tests without any mutant", flush=True)
    for tests in sorted({tuple(tests) for _, tests in drawn}):
        start = time.monotonic()
        result = laboratory.run(tests)
        print(f"  {time.monotonic() - start:6.1f} s  {result}  {' '.join(tests)}", flush=True)
        if result != "passed":
            raise SystemExit(f"without any mutant these tests end with `{result}`: {' '.join(tests)}")


def run_trials(laboratories: Sequence[Laboratory], drawn: Sequence[Trial]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and how its tests ended, as they end."""
    waiting, running = list(drawn), dict[Laboratory, Mutant]()
    while waiting or running:
        for laboratory in laboratories:
            if laboratory not in running and waiting:
                mutant, tests = waiting.pop(0)
                laboratory.start(tests, mutant)
                running[laboratory] = mutant
            elif laboratory in running and (result := laboratory.poll()):
                yield running.pop(laboratory), result
        time.sleep(0.05)


def try_all(
    laboratories: Sequence[Laboratory], drawn: Sequence[Trial], write: Callable[[list[tuple[Mutant, str]]], None]
) -> list[tuple[Mutant, str]]:
    """Each mutant and how its tests ended, with progress; `write` gets what is known after each."""
    found: list[tuple[Mutant, str]] = []
    start = time.monotonic()
    for mutant, result in run_trials(laboratories, drawn):
        found.append((mutant, result))
        survived = sum(one == "passed" for _, one in found)
        took = f"{len(found)}/{len(drawn)} {time.monotonic() - start:.0f} s"
        print(f"{took}, {survived} alive: {result:7} {mutant.path}:{mutant.line}", flush=True)
        if result == "passed":
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
        write(found)
    return found


def summarize(found: Sequence[tuple[Mutant, str]], seed: int) -> dict[str, Any]:
    """What is recorded: the rate, and every survivor."""
    survivors = [mutant for mutant, result in found if result == "passed"]
    equivalent = [mutant for mutant in survivors if mutant.reason]
    alive = [mutant for mutant in survivors if not mutant.reason]
    counted = len(found) - len(equivalent)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "python": sys.version.split()[0],
        "seed": seed,
        "mutants": len(found),
        "results": dict(Counter(result for _, result in found)),
        "kinds": dict(Counter(mutant.kind for mutant, _ in found)),
        "rate": round((counted - len(alive)) / max(counted, 1), 4),
        "survivors": [_shown(mutant) for mutant in alive],
        "equivalent": [{**_shown(mutant), "reason": mutant.reason} for mutant in equivalent],
    }


def _shown(mutant: Mutant) -> dict[str, Any]:
    return {name: value for name, value in asdict(mutant).items() if name != "text"}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What `--help` shows."""
    opening, _, rest = (__doc__ or "").partition("\n\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=opening, epilog=rest, formatter_class=form)
    parser.add_argument("--count", type=int, default=300, help="mutants to draw (300)")
    parser.add_argument("--seed", type=int, default=1, help="which of them are drawn (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="modules whose path contains this")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for the tests of one (180)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="where to write the result as JSON")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the survivors of a record instead of drawing")
    parser.add_argument("--reach", type=Path, metavar="FILE", help="a map of `scripts.reach`, to choose tests by lines")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at a time (1)")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a mutant first")
    parser.add_argument("--list", action="store_true", help="print what would be drawn, and run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, try, print; 1 where fewer than 95 % are killed."""
    given = parse_arguments(arguments)
    drawn = survivors_of(given.again, given.only) if given.again else draw(given.count, given.seed, given.only)
    if given.list:
        for mutant, _ in drawn:
            print(f"{mutant.path}:{mutant.line} {mutant.kind}\n    - {mutant.before}\n    + {mutant.after}")
        return 0
    for name in PRELOADED:
        __import__(name)
    laboratories = [Laboratory(given.timeout) for _ in range(given.jobs)]

    def write(found: list[tuple[Mutant, str]]) -> None:
        if given.record:
            given.record.write_text(json.dumps(summarize(found, given.seed), indent=2) + "\n", encoding="utf-8")

    try:
        print(f"{len(drawn)} mutants, in {', '.join(str(one.folder) for one in laboratories)}", flush=True)
        if not given.trust:
            check_baseline(laboratories[0], drawn)
        trials = add_reaching(drawn, given.reach) if given.reach else drawn
        record = summarize(try_all(laboratories, trials, write), given.seed)
    finally:
        for laboratory in laboratories:
            laboratory.close()
    print(json.dumps(record, indent=2))
    print(f"{record['rate']:.1%} of {record['mutants']} mutants are killed; {len(record['survivors'])} survive")
    return int(record["rate"] < 0.95)


if __name__ == "__main__":
    raise SystemExit(main())
