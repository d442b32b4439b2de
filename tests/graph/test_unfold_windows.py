"""Windows as rows of matrices and as chains: the same bits as the contraction over them, however they are read."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Stages
from tessera.ir.base.verify import verify
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes import unfold_windows
from tessera.ir.graph.passes.unfold_windows import MOST_TAPS, UnfoldWindows
from tessera.ir.tile.typed_ops import DotOp, LoadOp
from tests.graph.eager import RuleDTypeError, RuleError, infer, tensor
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import run_schedule, simplify

Drawn = tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], bool]


@st.composite
def convolutions(draw: st.DrawFn) -> Drawn:
    """Attributes, the shapes of image and weights, and whether channels are last in memory and in the result."""
    spatial = draw(st.integers(1, 2))
    taps = [draw(st.integers(1, 3)) for _ in range(spatial)]
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(spatial))
    sizes = [(tap - 1) * step + 1 + draw(st.integers(0, 5)) for tap, step in zip(taps, dilation, strict=True)]
    groups, inside, outside = draw(st.sampled_from([(1, 3, 5), (1, 4, 8), (2, 2, 3), (3, 1, 1), (4, 1, 2), (1, 1, 1)]))
    attributes = {
        "stride": tuple(draw(st.integers(1, 3)) for _ in range(spatial)),
        "padding": draw(st.sampled_from(["same", "valid", 1, 2])),
        "dilation": dilation,
        "groups": groups,
    }
    image, weights = (draw(st.integers(1, 3)), groups * inside, *sizes), (groups * outside, inside, *taps)
    return attributes, image, weights, draw(st.booleans())


def convolve(x: Any, w: Any, attributes: dict[str, Any], is_last: bool) -> Any:
    spatial = len(x.shape) - 2
    op = ts.ops.conv1d if spatial == 1 else ts.ops.conv2d
    w = ts.ops.flip(w, (2,)) if attributes["groups"] != 2 else w
    if not is_last:
        return ts.ops.relu(op(x, w, **attributes))
    x = ts.ops.transpose(x, (0, spatial + 1, *range(1, spatial + 1)))
    return ts.ops.relu(ts.ops.transpose(op(x, w, **attributes), (0, *range(2, spatial + 2), 1)))


def trace(drawn: Drawn, dtype: Any) -> tuple[Any, list[Any]]:
    """The trace of a convolution, and random operands."""
    attributes, image, weights, is_last = drawn
    image = (image[0], *image[2:], image[1]) if is_last else image
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in (image, weights)]
    return ts.jit(lambda x, w: convolve(x, w, attributes, is_last)).trace(*arrays).tape, arrays


@settings(deadline=None, max_examples=60)
@given(convolutions(), st.sampled_from([np.float32, ml_dtypes.bfloat16]), st.sampled_from(["", "f32 bf16"]))
def test_meaning_is_kept_bit_for_bit(drawn: Drawn, dtype: Any, along_k: str) -> None:
    tape, arrays = trace(drawn, dtype)
    module = simplify(tape)
    (function,) = [op for op in module.ops if isinstance(op, SpecOp)]
    (before,) = interpret(function, *arrays)
    UnfoldWindows(along_k).run(module)
    verify(module)
    assert "conv_windows" not in str(module)
    (after,) = interpret(function, *arrays)
    assert np.asarray(before).tobytes() == np.asarray(after).tobytes()


@settings(deadline=None, max_examples=40)
@given(convolutions(), st.sampled_from([np.float32, ml_dtypes.bfloat16]), st.sampled_from(["", "x", "w"]))
def test_windows_that_copies_read_have_the_bits_of_those_that_are_written(drawn: Drawn, dtype: Any, by: str) -> None:
    """A convolution and its gradients, on a machine whose copies take lines of any length."""
    attributes, _, _, is_last = drawn
    tape, arrays = trace(drawn, dtype)
    if by:
        shape = [dim.value or 0 for dim in tape.types[tape.outputs[0]].shape]
        arrays.append(np.random.default_rng(8).standard_normal(shape).astype(dtype))

        def gradient(x: Any, w: Any, y: Any) -> Any:
            def of_one(one: Any) -> Any:
                return convolve(*((one, w) if by == "x" else (x, one)), attributes, is_last)

            return ts.vjp(of_one, x if by == "x" else w)[1](y)[0]

        tape = ts.jit(gradient).trace(*arrays).tape
    found: list[bytes] = []
    for copies in ("", "f32 bf16 2 3 16 8 5"):
        module = simplify(tape)
        (function,) = [op for op in module.ops if isinstance(op, SpecOp)]
        UnfoldWindows(copies=copies).run(module)
        verify(module)
        found.append(np.asarray(interpret(function, *arrays)[0]).tobytes())
    assert found[0] == found[1]


@settings(deadline=None, max_examples=15)
@given(convolutions())
def test_a_program_for_a_gpu_has_the_bits_of_a_cpu(drawn: Drawn) -> None:
    tape, arrays = trace(drawn, np.float32)
    attributes, _, _, is_last = drawn
    module = from_tape(tape)
    Stages(lambda: from_tape(tape)).run(
        "graph", graph.with_unfolded(graph.pipeline(), GPUS["sm_90a"].instructions[0]), module, graph.EXIT
    )
    assert "conv_windows" not in str(module)
    run_schedule(module, machine=GPUS["sm_90a"])
    found = run_program(module, *arrays)
    expected = np.asarray(ts.jit(lambda x, w: convolve(x, w, attributes, is_last))(*arrays))
    np.testing.assert_array_equal(np.asarray(found[0]), expected)


def _kernels(function: Any, *shapes: tuple[int, ...]) -> list[SpecOp]:
    """The tile kernels of a program of bf16 for sm_90a, with what was chosen for them."""
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in shapes]
    jitted: Any = ts.jit(function)
    return list(lower(jitted.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",))).kernels)


@pytest.mark.parametrize(
    ("shapes", "attributes", "count"),
    [
        (((4, 64, 14, 16), (128, 64, 3, 3)), {"padding": 1}, 2),
        (((4, 64, 16, 16), (128, 64, 1, 1)), {}, 1),
        (((4, 64, 14, 14), (128, 64, 1, 1)), {}, 1),
        (((4, 3, 32, 32), (64, 3, 7, 7)), {"stride": 2, "padding": 3}, 2),
        (((4, 3, 32, 32), (96, 3, 4, 4)), {"stride": 4}, 2),
        (((4, 64, 16, 16), (64, 1, 3, 3)), {"groups": 64, "padding": 1}, 1),
        (((4, 16, 16, 16), (16, 1, 7, 7)), {"groups": 16, "padding": 3}, 1),
    ],
    ids=["3x3", "1x1", "1x1, rows of 392 bytes", "stem", "patches", "depthwise", "depthwise 7x7"],
)
def test_what_a_layer_becomes(shapes: Any, attributes: dict[str, Any], count: int) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        return ts.ops.relu(ts.ops.conv2d(x, w, **attributes) + b)

    found = _kernels(layer, *shapes, (shapes[1][0], 1, 1))
    # Others may write the weights in the order of K, and the image with channels last.
    assert count <= len(found) <= count + 2
    units = [op.unit for kernel in found for op in kernel.walk() if isinstance(op, DotOp)]
    assert units == ["wgmma"] * (attributes.get("groups", 1) == 1)


def test_large_batches_are_multiplied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Drawn = ({"padding": 1, "groups": 1}, (5, 4, 6, 6), (8, 4, 3, 3), False)
    for is_last in (False, True):
        tape, arrays = trace((*drawn[:3], is_last), np.float32)
        module = simplify(tape)
        (function,) = [op for op in module.ops if isinstance(op, SpecOp)]
        (before,) = interpret(function, *arrays)
        # Two images of 36 positions and 36 elements of K each.
        monkeypatch.setattr(unfold_windows, "LARGEST", 2 * 36 * 36 * 4 + 1)
        UnfoldWindows().run(module)
        verify(module)
        assert str(module).count("tgraph.dot_general") == 3
        (after,) = interpret(function, *arrays)
        assert np.asarray(before).tobytes() == np.asarray(after).tobytes()


def _gradients(x: Any, w: Any) -> Any:
    return ts.grad(lambda a, b: ts.ops.conv2d(a, b, stride=2, padding=1).sum(), argnums=(0, 1))(x, w)


@pytest.mark.parametrize(
    ("function", "shapes", "dynamic"),
    [
        (lambda x, w: ts.ops.conv2d(x, w, padding=1), [(1, 8, 20, 20), (16, 8, 1, 1)], False),
        (lambda x, w: ts.ops.conv2d(x, w, padding=1), [(1, 8, 20, 20), (16, 8, 3, 3)], True),
        (lambda x, w: ts.ops.conv3d(x, w, padding=1, groups=2), [(2, 16, 4, 6, 6), (16, 8, 3, 3, 3)], False),
        (lambda x, w: ts.ops.conv_transpose2d(x, w, stride=2, padding=1), [(2, 16, 6, 6), (16, 8, 3, 3)], False),
        (lambda x, w: ts.ops.conv_transpose1d(x, w, stride=2), [(2, 16, 30), (16, 8, 5)], True),
        (lambda x, w: ts.ops.conv2d(x, w, padding=1, accumulate="f64"), [(1, 8, 20, 20), (16, 8, 3, 3)], False),
        (_gradients, [(2, 8, 20, 20), (16, 8, 3, 3)], False),
        (_gradients, [(2, 8, 20, 20), (16, 8, 3, 3)], True),
    ],
)
def test_no_dot_of_a_gpu_reads_windows(function: Any, shapes: list[Any], dynamic: bool) -> None:
    """So models of blocks know matrices alone; all GPUs have an instruction that multiplies them."""
    jitted: Any = ts.jit(function, dynamic=dynamic)
    tape = jitted.trace(*(np.zeros(shape, np.float32) for shape in shapes)).tape
    kernels = lower(tape, Options.of(backend="cuda", features=("sm_90a",))).kernels
    multiplying = [kernel for kernel in kernels if any(isinstance(op, DotOp) for op in kernel.walk())]
    assert multiplying
    assert not any(op.windows for kernel in multiplying for op in kernel.walk() if isinstance(op, LoadOp))
    assert all(machine.instructions for machine in GPUS.values())


def test_a_chain_is_no_longer_than_a_kernel_holds() -> None:
    """One tap more than a kernel holds is a product of matrices, whatever the batch."""
    for taps, is_chain in ((MOST_TAPS, True), (MOST_TAPS + 1, False)):
        for batch in (1, 3):
            arrays = [np.zeros(shape, np.float32) for shape in ((batch, 2, 60), (2, 1, taps))]
            module = simplify(ts.jit(lambda x, w: ts.ops.conv1d(x, w, groups=2)).trace(*arrays).tape)
            UnfoldWindows().run(module)
            assert ("fma_chain" in str(module)) == is_chain


def test_the_ops_say_what_is_wrong() -> None:
    x = tensor(3, 4, dtype=ts.f32)
    with pytest.raises(RuleError, match="has 4 steps and 2 offsets, got 3 and 2"):
        infer("unfold", x, shape=(3, 4), steps=(1, 0, 0), low=(0, 0))
    with pytest.raises(RuleError, match="pairs of operands, got 3"):
        infer("fma_chain", x, x, x, accumulate=ts.f32, dtype=ts.f32)
    with pytest.raises(RuleDTypeError, match="cannot add products of f32 in i32"):
        infer("fma_chain", x, x, accumulate=ts.i32, dtype=ts.i32)
