"""L11: every choice that a compilation makes has a default, can be fixed by an override, and is then seen in the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import FusionError, OverrideError
from tessera.ir.base.compilation import KNOBS
from tessera.ir.base.text import print_module

Array: TypeAlias = np.ndarray[Any, Any]


def full(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


def block(x: Any, w: Any, b: Any) -> Any:
    return ops.softmax(ops.gelu(x @ w + b)), ops.exp(x) * 2 + x


def columns(x: Any) -> Any:
    return ops.softmax(x.sum(axis=0) * 2)


def product(x: Any, w: Any) -> Any:
    return x @ w


def across(x: Any, y: Any) -> Any:
    return ops.softmax(ops.transpose(x) + y)


def transposed(a: Any, b: Any) -> Any:
    return ops.matmul(a, ops.transpose(b), dtype=ts.f32)


def many(dtype: Any) -> tuple[Array, Array]:
    return full(1792, 640, dtype=dtype), full(2816, 640, dtype=dtype)


def dequantized(x: Any, w: Any, s: Any) -> Any:
    return x @ ops.transpose(ops.dequantize(w, s, dtype=ts.bf16, block=(1, 128)))


def unpacked(x: Any, w: Any, s: Any) -> Any:
    weight = ops.concat([(w & 15) - 8, w >> 4], 1)
    return x @ ops.transpose(ops.dequantize(weight, s, dtype=ts.bf16, block=(1, 128)))


def several(x: Any) -> Any:
    return tuple(ops.softmax(x * scale) @ x for scale in range(1, 7))


def attend_and_sum(q: Any, k: Any, v: Any) -> Any:
    return attend(q, k, v).sum()


def attend(q: Any, k: Any, v: Any) -> Any:
    return ops.flash_attention(q, k, v, causal=True)


def scan(x: Any) -> Any:
    return ops.cumsum(x, axis=0)


def activated(q: Any, k: Any, v: Any) -> Any:
    return ops.epilogue.chain([ops.epilogue.act("relu")])(ops.attention(q, k, v))


def scatter(x: Any, i: Any, u: Any) -> Any:
    return ops.scatter_add(x, i, u)


def largest(x: Any) -> Any:
    return ops.topk(x, 4)


def reduce(x: Any) -> Any:
    y = ts.dist.all_reduce(x, "dp")
    return y + ops.exp(x) @ x


def gathered(x: Any, w: Any) -> Any:
    return ts.dist.all_gather(x, "dp") @ w


@ts.kernel
def shifted(x: ts.KTile["M", "N", ts.f32]) -> ts.KTile["M", "N", ts.f32]:
    """Every element, and one."""
    T = ts.tile.context()
    return ts.tile.load(x, rows=T.m, cols=T.n) + 1.0


@ts.kernel
def multiplied(a: ts.KTile["M", "K", ts.bf16], b: ts.KTile["K", "N", ts.bf16]) -> ts.KTile["M", "N", ts.f32]:
    """A dot."""
    T = ts.tile.context()
    acc = ts.tile.zeros((T.m, T.n), ts.f32)
    for k in ts.tile.range_k(a.shape, T.k):
        acc += ts.tile.dot(ts.tile.load(a, T.m, k), ts.tile.load(b, k, T.n))
    return acc


@ts.kernel
def normalized(x: ts.KTile["M", "D", ts.f32]) -> ts.KTile["M", "D", ts.f32]:
    """Whole rows."""
    T = ts.tile.context()
    row = ts.tile.load(x, rows=T.m, cols=T.d)
    return row / ts.tile.sum(row, 1)[:, None]


def centred(x: Any) -> Any:
    """Rows less their means, and sums along columns."""
    return x - x.mean(axis=1, keepdims=True), x.sum(axis=0)


BLOCK = full(3, 4), full(4, 5), full(5)
WIDE = full(256, 256, dtype=ml_dtypes.bfloat16), full(256, 256, dtype=ml_dtypes.bfloat16)
HEADS = (full(1, 2, 64, 32),) * 3
WEIGHT = full(5, 256, dtype=ml_dtypes.bfloat16), full(72, 256, dtype=np.int8), full(72, 2)
PACKED = full(5, 512, dtype=ml_dtypes.bfloat16), full(72, 256, dtype=np.int8), full(72, 4)
MACHINES = {"cpu": ("x86-64-v4",), "cuda": ("sm_90a",)}
"""What programs are lowered for, wherever the test runs: defaults follow the lanes and instructions of a machine."""


@dataclass(frozen=True)
class Case:
    """A program that makes the choice, another value than its default, and the IR that changes with it."""

    program: Callable[..., Any]
    arguments: Sequence[Array]
    value: Any
    level: str = "tile"
    backend: str = "cpu"
    fast: bool = False
    """Whether it is made where other bits are allowed, and nowhere else."""


PROMISED = "fusion.library"
"""Kernels of the library take what `epilogue.chain` promises alone, so without it there is no program."""

CASES: dict[str, Case] = {
    "fusion.map": Case(block, BLOCK, False, "schedule"),
    "fusion.row": Case(block, BLOCK, False, "schedule"),
    "fusion.contraction": Case(block, BLOCK, False, "schedule"),
    "fusion.assembly": Case(unpacked, PACKED, False, "schedule", "cuda"),
    PROMISED: Case(activated, HEADS, False, "schedule"),
    "layout.order": Case(across, (full(64, 64), full(64, 64)), (0, 1), "schedule"),
    "map.tile": Case(block, BLOCK, 64),
    "row.columns": Case(columns, (full(300, 400),), 64),
    "row.levels": Case(centred, (np.broadcast_to(np.float32(0), (8192, 2048)),), 0, "tile", "cuda"),
    "row.runs": Case(columns, (full(3000, 40),), 1),
    "contraction.block": Case(product, BLOCK[:2], (64, 64, 64)),
    "contraction.segment": Case(product, (full(8, 16384), full(16384, 8)), 8192, "schedule", fast=True),
    "contraction.computed": Case(dequantized, WEIGHT, (128, 8, 128), "target", "cuda"),
    "kernel.block": Case(multiplied, WIDE, (32, 64, 64)),
    "pipeline.stages": Case(product, WIDE, 3, "target", "cuda"),
    "attention.queries": Case(attend, HEADS, 32),
    "attention.backward": Case(ts.grad(attend_and_sum, argnums=1), HEADS, (64, 128)),
    "attention.backward_queries": Case(ts.grad(attend_and_sum), HEADS, (64, 128)),
    "scan.tile": Case(scan, (full(64, 40),), 32),
    "scatter.tile": Case(scatter, (full(10, 40), np.array([1, 2, 3]), full(3, 40)), 32),
    "sort.tile": Case(ops.sort, (full(8, 50),), 16),
    "select.tile": Case(largest, (full(8, 5000),), 32),
    "select.stretches": Case(largest, (full(8, 5000),), 4),
    "topk.algorithm": Case(largest, (full(8, 5000),), "sort"),
    "matrix.instruction": Case(product, WIDE, "mma.sync", "target", "cuda"),
    "matrix.multicast": Case(transposed, many(ml_dtypes.bfloat16), "always", "target", "cuda"),
    "matrix.roles": Case(transposed, many(ml_dtypes.bfloat16), "uniform", "target", "cuda"),
    "matrix.lag": Case(transposed, many(ml_dtypes.float8_e4m3fn), 1, "target", "cuda"),
    "matrix.epilogue": Case(transposed, many(ml_dtypes.bfloat16), "after", "target", "cuda"),
    "math.exp": Case(ops.exp, (full(64),), "hardware", "llvm", "cuda"),
    "launch.streams": Case(several, (full(64, 64),), 2, "llvm", "cuda"),
    "collectives.chunks": Case(gathered, (full(8, 8), full(8, 8)), 2, "schedule"),
    "collectives.overlap": Case(reduce, (full(8, 8),), False, "schedule"),
}


def lowered(case: Case, **overrides: Any) -> Lowering:
    with ts.dist.mesh(dp=2):
        tape = ts.jit(case.program).trace(*case.arguments).tape
    given: dict[str, Any] = {"backend": case.backend, "features": MACHINES[case.backend], "fast_math": case.fast}
    options = Options.of(overrides=overrides, **given)
    return lower(tape, options)


def text_of(found: Lowering, level: str) -> str:
    """The program at a level: the host program and its tile kernels, Target IR, or LLVM text."""
    if level == "target":
        return "\n".join(map(str, found.targets))
    if level == "llvm":
        return "\n".join((found.host, *found.texts))
    return print_module(found.module)


def test_every_declared_choice_has_a_case() -> None:
    assert CASES.keys() == KNOBS.keys()


@pytest.mark.parametrize("knob", sorted(KNOBS.keys() - {PROMISED}))
def test_L11_a_choice_is_overridden_and_seen(knob: str) -> None:
    case = CASES[knob]
    plain, fixed = lowered(case), lowered(case, **{knob: case.value})
    defaults = [choice for key, choice in plain.chooser.asked.items() if key.partition("@")[0] == knob]
    assert defaults, "the program does not make this choice"
    assert all(choice.source != "override" and choice.value != case.value for choice in defaults)
    chosen = [choice for key, choice in fixed.chooser.asked.items() if key.partition("@")[0] == knob]
    assert all((choice.source, choice.value) == ("override", case.value) for choice in chosen)
    fixed.chooser.check_overrides()
    assert text_of(plain, case.level) != text_of(fixed, case.level)


def test_a_choice_against_a_promise_is_refused() -> None:
    assert f"{PROMISED}@" in " ".join(lowered(CASES[PROMISED]).chooser.asked)
    with pytest.raises(FusionError, match="fusion with `attention` is switched off"):
        lowered(CASES[PROMISED], **{PROMISED: False})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"tile.q": 1}, "`tile.q` is not a choice"),
        ({"map.tlie": 64}, "did you mean `map.tile`?"),
        ({"map.tile": 3}, "`map.tile` cannot be 3"),
        ({"sort.tile": 16}, "`sort.tile` is not a choice of this program"),
        ({"map.tile@nowhere": 64}, "`map.tile@nowhere` is not a choice"),
    ],
)
def test_L11_an_unknown_choice_or_value_is_refused(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(OverrideError) as caught:
        ts.jit(block, overrides=overrides)(*BLOCK)
    assert words in str(caught.value)


OPTIONS: dict[str, Callable[[], bool]] = {
    "backend": lambda: "ptx_kernel" in ts.jit(block, backend="cuda").lower(*BLOCK).llvm,
    "fusion": lambda: _calls(fusion=False) > _calls(),
    "debug": lambda: "debug" in ts.jit(block, debug=True).explain(*BLOCK).options,
    "fast_math": lambda: ts.jit(_fma, fast_math=True).lower(full(64)).tile != ts.jit(_fma).lower(full(64)).tile,
    "features": lambda: "lanes = 4" in ts.jit(block, features=("sse2",)).lower(*BLOCK).target,
    "largest_contraction": lambda: (
        '"largest_contraction":4096' in ts.jit(block, largest_contraction=4096).explain(*BLOCK).options
    ),
    "tuned": lambda: 'source = "autotune"' in ts.jit(block, tuned={"map.tile": 64}).lower(*BLOCK).schedule,
    "memory": lambda: '"memory":4096' in ts.jit(block, memory=4096).explain(*BLOCK).options,
    "offload": lambda: '"offload":true' in ts.jit(block, memory=4096, offload=True).explain(*BLOCK).options,
    "plan": lambda: '"plan":"sha256:' in ts.jit(block, plan=ts.jit(block).schedule(*BLOCK)).explain(*BLOCK).options,
    "overrides": lambda: "64" in ts.jit(block, overrides={"map.tile": 64}).lower(*BLOCK).schedule,
}


def _fma(x: Any) -> Any:
    return x * 2.5 + x


def _calls(**options: Any) -> int:
    return ts.jit(block, **options).lower(*BLOCK).schedule.count("tsched.call")


def test_L11_every_option_is_overridden_and_seen() -> None:
    assert OPTIONS.keys() == {field.name for field in fields(Options)}
    for name, is_seen in OPTIONS.items():
        assert is_seen(), name


POLICIES: dict[str, tuple[ts.Policy, str]] = {
    "storage": (ts.Policy(storage=ts.bf16), "bf16"),
    "compute": (ts.compute(ts.tf32), "tf32"),
    "accumulate": (ts.accum(ts.f64), "accumulate = f64"),
    "rounding": (ts.Policy(storage=ts.bf16, rounding="toward_zero"), "toward_zero"),
    "saturation": (ts.Policy(storage=ts.f8e4m3, saturation="saturate"), "saturate"),
    "denormals": (ts.Policy(storage=ts.bf16, denormals="flush"), "flush"),
    "loss_scale": (ts.loss_scale(8.0), "loss_scale"),
    "scales": (ts.Policy(storage=ts.f8e4m3).overridden(ts.scaled(0)), "scale"),
}


@pytest.mark.parametrize("name", [field.name for field in fields(ts.Policy)])
def test_L11_every_part_of_a_numerics_policy_is_seen_in_graph_ir(name: str) -> None:
    policy, words = POLICIES[name]
    given = full(8, 8), full(8, 8)
    assert words not in ts.jit(product).lower(*given).graph
    assert words in ts.jit(product, policy=policy).lower(*given).graph


BASE = ts.Schedule(block=(64, 64, 64))
SCHEDULES: dict[str, tuple[Any, Sequence[Array], ts.Schedule, ts.Schedule]] = {
    "block": (multiplied, WIDE, BASE, ts.Schedule(block=(128, 64, 64))),
    "d": (normalized, (full(64, 64),), ts.Schedule(block=(16,)), ts.Schedule(block=(16,), d=64)),
    "warps": (shifted, (full(64, 64),), ts.Schedule(block=(16, 64)), ts.Schedule(block=(16, 64), warps=1)),
    "stages": (multiplied, WIDE, BASE, ts.Schedule(block=(64, 64, 64), stages=3)),
    "vector": (shifted, (full(64, 64),), ts.Schedule(block=(16, 64)), ts.Schedule(block=(16, 64), vector=1)),
    "swizzle": (multiplied, WIDE, BASE, ts.Schedule(block=(64, 64, 64), swizzle="none")),
    "triangular": (multiplied, WIDE, BASE, BASE.triangular_only("lower")),
    "max_registers": (
        shifted,
        (full(64, 64),),
        ts.Schedule(block=(16, 64)),
        ts.Schedule(block=(16, 64), max_registers=40),
    ),
    "max_shared": (shifted, (full(64, 64),), ts.Schedule(block=(16, 64)), ts.Schedule(block=(16, 64), max_shared=1024)),
}


@pytest.mark.parametrize("name", [field.name for field in fields(ts.Schedule) if field.compare])
def test_L11_every_part_of_a_schedule_is_seen_in_the_ir_of_a_kernel(name: str) -> None:
    kernel, arguments, before, after = SCHEDULES[name]
    assert getattr(before, name) != getattr(after, name)
    plain, fixed = (kernel.with_schedule(one).with_options(backend="cuda").lower(*arguments) for one in (before, after))
    assert (plain.tile, plain.target) != (fixed.tile, fixed.target)
    words = {"max_registers": "max_registers = 40", "max_shared": "max_shared = 1024"}.get(name, "")
    assert words in fixed.target
