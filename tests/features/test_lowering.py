"""Schedule, Tile and Target IR: groups, costs, loop nests, verifiers, fusion and memory, as promised."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult

import tessera as ts
from tessera import ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.interpret import bind_dims
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.host_program.memory import align_bytes, lay_out
from tessera.ir.schedule.passes.plan_memory import lifetimes_in
from tessera.ir.schedule.plan import fusions_in, programs_in
from tessera.types.dim import Dim
from tests.oracles import schedule_interpreter as schedule_interpreter
from tests.oracles.memory_layouts import first_overlap, naive_total
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import inputs_for, run_schedule, simplify, tensor, trace

ROOT = Path(__file__).parents[2]
SIZES = {"M": 9, "K": 17, "N": 20, "B": 2, "S": 13}
LONG = {"M": 2, "K": 2304, "N": 5}
"""Sizes of which a product cuts K into two segments."""


def chain(x: Any, w: Any, b: Any) -> Any:
    h = ops.gelu(x @ w + b)
    return ops.softmax(ops.rmsnorm(h, b) * 2.0 + h)


def chain_tape() -> Tape:
    return trace(chain, tensor("M K"), tensor("K N"), tensor("N"))


def of_kind(root: ModuleOp | SpecOp, name: str) -> list[SpecOp]:
    return [op for op in root.walk() if isinstance(op, SpecOp) and op.name == name]


def steps_taken(body: Any, name: str, sizes: Mapping[str, int]) -> list[SpecOp]:
    """The ops of a kind that run at some sizes, of a branch those of the side that they decide for."""
    found: list[SpecOp] = []
    for op in body.ops:
        if op.name == name:
            found.append(op)
        if op.name == "tsched.if":
            side = op.regions[0 if op.value("size").evaluate(sizes) > 0 else 1]
            found += steps_taken(side.block, name, sizes)
    return found


@pytest.mark.parametrize(("sizes", "count"), [(SIZES, 2), (LONG, 4)], ids=["one segment of K", "two segments of K"])
def test_C1_1_as_many_groups_as_kernels_run(sizes: dict[str, int], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = chain_tape()
    (plan,) = programs_in(run_schedule(simplify(tape), steps=1))
    groups = steps_taken(plan.regions[0].block, "tsched.fuse", sizes)
    launched: list[str] = []
    run = schedule_interpreter.run_kernel

    def counting(kernel: SpecOp, *rest: Any) -> Any:
        launched.append(kernel.value("symbol"))
        return run(kernel, *rest)

    monkeypatch.setattr(schedule_interpreter, "run_kernel", counting)
    lowering = lower(tape, Options())
    run_program(lowering.module, *inputs_for(tape, sizes))
    assert len(groups) == len(launched) == count
    # The host program that is compiled starts the same kernels.
    host = lowering.host.split("define i64 @tessera_entry")[1].split("\n}")[0]
    started = [name for name in launched if re.search(rf"@{name}\b", host)]
    assert started == launched


def test_C1_2_loop_nests_are_printed_and_run() -> None:
    tape = trace(lambda x, w: x @ w, tensor("M K"), tensor("K N"))
    plan = run_schedule(simplify(tape), steps=7)
    choices = [op for op in of_kind(plan, "tsched.tile") if op.value("knob") == "contraction.block"]
    module = run_schedule(simplify(tape))
    kernels = [op for op in of_kind(module, "ttile.kernel") if op.value("kind") == "contraction"]
    # One of a whole K, and one of its segments.
    assert len(choices) == len(kernels) == 2
    assert all(choice.value("chosen") in choice.value("candidates") for choice in choices)
    for text in map(print_module, kernels):
        assert text.count("ttile.program_id") >= 1
        assert "ttile.for" in text
    for sizes in (SIZES, LONG):
        x, w = inputs_for(tape, sizes)
        wide, bound = x.astype(np.float64) @ w, np.abs(x).astype(np.float64) @ np.abs(w)
        found = run_program(module, x, w)[0]
        assert np.all(np.abs(found - wide) <= sizes["K"] * np.finfo(np.float32).eps * bound)


def multiply_twice(x: Any, w: Any, v: Any) -> Any:
    return ops.relu(x @ w) @ v


# Elements that each group reads and writes: the first product with its epilogue, and the second.
WHOLE = (8 * 16 + 16 * 32 + 8 * 32) + (8 * 32 + 32 * 64 + 8 * 64)
# The two segments of the first product, their join, its epilogue, and the second product.
CUT = (2 * 2304 + 2304 * 5 + 2 * 10) + (2 * 10 + 10) + (10 + 10) + (10 + 5 * 3 + 2 * 3)


@pytest.mark.parametrize(
    ("sizes", "flops", "elements"),
    [
        ({"M": 8, "K": 16, "N": 32, "P": 64}, 2 * 8 * 16 * 32 + 8 * 32 + 2 * 8 * 32 * 64, WHOLE),
        ({"M": 2, "K": 2304, "N": 5, "P": 3}, 2 * 2 * 2304 * 5 + 2 * 10 + 10 + 2 * 2 * 5 * 3, CUT),
    ],
    ids=["one segment of K", "two segments of K"],
)
def test_C6_costs_add_up(sizes: Mapping[str, int], flops: int, elements: int) -> None:
    tape = trace(multiply_twice, tensor("M K"), tensor("K N"), tensor("N P"))
    (plan,) = programs_in(run_schedule(simplify(tape), steps=7))
    program = lower(tape, Options()).program
    for root, name in ((plan, "tsched.fuse"), (program, "tsched.call")):
        for op in of_kind(root, name):
            assert all(op.value(cost) is not None for cost in ("flops", "bytes", "time")), op
        found = steps_taken(root.regions[0].block, name, sizes)
        assert sum(op.value("flops").evaluate(sizes) for op in found) == flops
        assert sum(op.value("bytes").evaluate(sizes) for op in found) == 4 * elements
        assert all(op.value("time").evaluate(sizes) > 0 for op in found)


def loops(x: Any, w: Any) -> Any:
    y = ts.fori_loop(0, 5, lambda i, c: ops.relu(c @ w), x)
    z = ts.fori_loop(2, x.shape[0], lambda i, c: c + x, y)
    z = ts.while_loop(lambda c: ops.max(c) < 100.0, lambda c: c + x, z)
    return ts.cond(ops.max(x) > 0, lambda c: c + x, lambda c: c @ w, z)


def test_C6_costs_of_loops_branches_and_copies_add_up() -> None:
    program = lower(trace(loops, tensor("M 8"), tensor("8 8")), Options()).program
    for op in program.walk():
        assert isinstance(op, SpecOp)
        assert all(isinstance(op.value(name), Dim) for name in ("flops", "bytes", "time")), op
    sizes, M = {"M": 9, "trips0": 3}, 9
    five, rows = (op.value("flops").evaluate(sizes) for op in of_kind(program, "tsched.for"))
    assert (five, rows) == (5 * (2 * M * 8 * 8 + M * 8), (M - 2) * M * 8)
    (loop,), (branch,) = of_kind(program, "tsched.while"), of_kind(program, "tsched.if")
    # A maximum is a comparison an element; the bound it is compared with is a number of its own.
    tested, stepped = M * 8 + 2, M * 8
    assert loop.value("flops").evaluate(sizes) == 4 * tested + 3 * stepped
    assert branch.value("flops").evaluate(sizes) == max(M * 8, 2 * M * 8 * 8)
    assert branch.value("bytes").evaluate(sizes) == 4 * max(3 * M * 8, 2 * M * 8 + 8 * 8)
    copies = of_kind(program, "tsched.copy")
    assert {op.value("bytes").evaluate(sizes) for op in copies} == {2 * 4 * M * 8}
    body = program.regions[0].block.ops
    for name in ("flops", "bytes", "time"):
        parts = [op.value(name).evaluate(sizes) for op in body if isinstance(op, SpecOp)]
        assert program.value(name).evaluate(sizes) == sum(parts) > 0


@pytest.mark.parametrize("name", ["flops", "bytes", "time"])
@pytest.mark.parametrize("kind", ["copy", "for", "while", "if", "alloc", "module"])
def test_C6_a_cost_that_does_not_add_up_is_refused(kind: str, name: str) -> None:
    module = lower(trace(loops, tensor("M 8"), tensor("8 8")), Options()).module
    op = of_kind(module, f"tsched.{kind}")[0]
    op.set_value(name, op.value(name) + 1)
    with pytest.raises(OpError, match=f"says {name} = .*, and it takes"):
        verify(module)


def test_C6_explain_says_what_steps_cost() -> None:
    x = np.ones((4, 8), np.float32)
    given = x, np.eye(8, dtype=np.float32)
    function = ts.jit(loops)
    function(*given)
    report = function.explain(*given).report
    lines = [re.sub(r" at .*", "", line) for line in report["steps"]]
    assert f"loop of 5 iterations: {5 * (2 * 4 * 64 + 32)} flops, {5 * 4 * (32 + 64 + 32)} bytes" in lines
    assert f"copy: 0 flops, {2 * 4 * 32} bytes" in lines
    assert any(line.startswith("loop of trips0 iterations") for line in lines)
    assert "trips0" in report["flops"]


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "gemm": (lambda x, w: x @ w, [tensor("M K"), tensor("K N")]),
    "softmax": (lambda x: ops.softmax(x), [tensor("M N")]),
    "attention": (lambda q, k, v: ops.attention(q, k, v, causal=True), [tensor("B 2 S 8")] * 3),
}


def expected(name: str, arrays: list[Any]) -> Any:
    """What NumPy makes of it in f64."""
    wide = [array.astype(np.float64) for array in arrays]
    if name == "gemm":
        return wide[0] @ wide[1]
    scores = wide[0] if name == "softmax" else wide[0] @ wide[1].swapaxes(-1, -2) / np.sqrt(8)
    if name == "attention":
        scores = np.where(np.tril(np.ones(scores.shape[-2:], np.bool_)), scores, -np.inf)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    weights = power / power.sum(-1, keepdims=True)
    return weights if name == "softmax" else weights @ wide[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_J1_tile_kernels_read_back_and_run(name: str) -> None:
    function, types = PROGRAMS[name]
    tape = trace(function, *types)
    lowering = lower(tape, Options())
    for kernel in lowering.kernels:
        again = parse_module(print_module(kernel))
        verify(again)
        assert content_hash(next(iter(again.ops))) == content_hash(kernel)
    module = parse_module(print_module(lowering.module))
    arrays = inputs_for(tape, SIZES)
    np.testing.assert_allclose(run_program(module, *arrays)[0], expected(name, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_X2_the_same_kernels_run_natively(name: str) -> None:
    function, types = PROGRAMS[name]
    arrays = inputs_for(trace(function, *types), SIZES)
    native = ts.jit(function, dynamic=True)
    np.testing.assert_allclose(np.asarray(native(*arrays)), expected(name, arrays), rtol=1e-5, atol=1e-5)
    assert "ttarget.kernel" in native.lower(*arrays).target


ODD = {"s0": 1031, "s1": 2053}
"""Sizes of kernels that no power of two divides."""


def index_values(value: Any) -> set[int]:
    """What an index is in some programs and iterations."""
    maker: Any = value.owner if isinstance(value, OpResult) else value.block.parent_op()
    if maker.name == "ttarget.index":
        parts = [index_values(operand) for operand in maker.operands]
        names = maker.value("names")
        return {maker.value("expr").evaluate({**ODD, **dict(zip(names, at, strict=True))}) for at in product(*parts)}
    if maker.name in ("ttarget.loop", "ttarget.tail"):
        return {low + maker.value("step") * turn for low in index_values(maker.operands[0]) for turn in range(3)}
    return {0, 1, 2}


def alignment(op: SpecOp) -> int:
    """A number of bytes that every start of an access is a multiple of; an argument begins at any element."""
    first = 1 if op.name == "ttarget.load" else 2
    buffer, indices = op.operands[first - 1], op.operands[first:]
    kind: Any = buffer.type
    item, scratch = kind.dtype.bytes, buffer.owner
    base = scratch.value("offset").evaluate(ODD) if isinstance(scratch, SpecOp) else item
    places = product(*map(index_values, indices))
    offsets = [op.value("offset").evaluate({**ODD, **dict(zip(op.value("coords"), at, strict=True))}) for at in places]
    return gcd(base, *(item * offset for offset in offsets))


def faults(op: SpecOp) -> Iterator[tuple[str, Any]]:
    """Attributes of a memory op, made wrong one at a time."""
    names, axes = op.value("coords"), op.value("axes")
    yield from (("align", align) for align in (0, 3, 5, -4, 128, 1024))
    # What an access does not say of itself and is true all the same, in scratch that begins at a line, is no fault.
    yield from (("align", align) for align in (8, 16, 32, 64) if alignment(op) % align)
    yield from (("pattern", pattern) for pattern in ("contiguous", "uniform", "strided", "somehow"))
    yield "coords", names[1:]
    yield "coords", (*names, "extra")
    yield "axes", (*axes, "elsewhere")
    yield "axes", axes[1:]
    yield "guarded", (*op.value("guarded"), "elsewhere")
    yield "bounds", (*op.value("bounds"), op.value("offset"))
    yield "offset", op.value("offset") + Dim.symbol("unheard_of")


def is_caught(module: ModuleOp, op: SpecOp, name: str, value: Any) -> bool:
    """Whether a module is refused with another value of an attribute; it is as it was afterwards."""
    before = dict(op.properties)
    op.set_value(name, value)
    try:
        verify(module)
    except OpError:
        return True
    finally:
        op.properties = before
    return False


def test_X5_1_faults_of_memory_ops_are_caught() -> None:
    tapes = [
        trace(lambda x, b: ops.exp(x) + b, tensor("M N"), tensor("N")),
        trace(lambda x: ops.transpose(x).cast(ts.bf16), tensor("M N")),
        trace(lambda x: ops.sum(x, axis=1), tensor("M N")),
    ]
    injected, missed = 0, list[str]()
    for module in (ModuleOp([target.clone()]) for tape in tapes for target in lower(tape, Options()).targets):
        for op in list(module.walk()):
            if not isinstance(op, SpecOp) or op.name not in ("ttarget.load", "ttarget.store"):
                continue
            for name, value in faults(op):
                if value != op.value(name):
                    injected += 1
                    missed += [] if is_caught(module, op, name, value) else [f"{op.name} {name} = {value}"]
        verify(module)
    assert injected > 100
    assert missed == []


def test_X10_a_declaration_makes_both_the_page_and_the_check_of_an_op() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "ops.py"))
    page = script["PAGES"]["target"].read_text(encoding="utf-8")
    assert page == script["render"]("target"), "run scripts/ops.py"
    seen: set[str] = set()
    for kernel in lower(chain_tape(), Options()).targets:
        for number, op in enumerate(list(kernel.walk())):
            if not isinstance(op, SpecOp) or op.name in seen:
                continue
            seen.add(op.name)
            assert f"`{op.name}({', '.join(op.spec.operands)})`" in page
            for attribute in op.spec.attributes:
                assert f"`{attribute.name}: {attribute.kind}" in page
                if attribute.is_required:
                    copy = kernel.clone()
                    del list(copy.walk())[number].properties[attribute.name]
                    with pytest.raises(OpError, match=f"`{attribute.name}`"):
                        verify(ModuleOp([copy]))
    assert len(seen) >= 8


def test_F1_fusion_runs_fewer_kernels_and_moves_fewer_bytes() -> None:
    def program(x: Any, b: Any) -> Any:
        y = ops.tanh(x) + b
        return ops.exp(y) * y

    x, b = np.linspace(-2, 2, 35, dtype=np.float32).reshape(5, 7), np.ones(7, np.float32)
    fused, alone = ts.jit(program, dynamic=True), ts.jit(program, dynamic=True, fusion=False)
    np.testing.assert_array_equal(np.asarray(fused(x, b)), np.asarray(alone(x, b)))
    one, many = (function.explain(x, b).report for function in (fused, alone))
    assert (len(one["kernels"]), len(many["groups"])) == (1, 4)
    tape = fused.trace(x, b).tape
    sizes = bind_dims([tape.types[value] for value in tape.inputs], [x, b])
    moved = [
        sum(op.value("bytes").evaluate(sizes) for op in fusions_in(run_schedule(simplify(tape), 1, fusion=fusion)))
        for fusion in (True, False)
    ]
    # Read x and b, write the result; each of the three values between costs a write, y is read twice, the others once.
    assert moved[0] == 4 * (35 + 7 + 35)
    assert moved[1] - moved[0] == 4 * 35 * (3 + 4)


def layered(x: Any, w: Any) -> Any:
    for _ in range(5):
        x = ops.softmax(x @ w, axis=1) + x
    return x


@pytest.mark.parametrize("sizes", [{"M": 3, "N": 8}, {"M": 64, "N": 5}], ids=str)
def test_F4_the_plan_lies_between_the_live_bytes_and_all_of_them(sizes: dict[str, int]) -> None:
    module = run_schedule(simplify(trace(layered, tensor("M N"), tensor("N N"))))
    (program,) = programs_in(module)
    _, lifetimes = lifetimes_in(program)
    layout = lay_out(lifetimes)
    assert len(lifetimes) >= 5
    assert first_overlap(lifetimes, layout, sizes) is None
    steps = {life.start for life in lifetimes}
    needed = max(
        sum(align_bytes(life.bytes).evaluate(sizes) for life in lifetimes if life.start <= step <= life.end)
        for step in steps
    )
    assert needed <= layout.total.evaluate(sizes) < naive_total(lifetimes).evaluate(sizes)
    assert program.value("workspace").evaluate(sizes) == layout.total.evaluate(sizes)
