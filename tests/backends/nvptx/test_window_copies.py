"""Convolutions whose windows TMA reads: simulated bit for bit, what is taken, and what the driver is asked for."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.host import STATE
from tessera.backends.nvptx.mma.window_boxes import find_windows
from tessera.backends.nvptx.tensor_cores import UnfitError
from tessera.backends.nvptx.types import sizes_of
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import attribute_of
from tessera.ir.target.machine_code import compile_text
from tessera.ir.tile.typed_ops import DotOp, LoadOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.runtime.devices.cuda.metrics import TensorMaps
from tessera.runtime.loader import link
from tessera.types.dim import Dim
from tests.backends.nvptx.matrices import BACKEND, kernels_of
from tests.backends.nvptx.test_passes import both
from tests.oracles.nvptx_simulator import copy_windows

Layer = tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], bool, str]


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Attributes, the shapes of image and weights, whether channels are last, and which derivative it is."""
    spatial = draw(st.integers(1, 3))
    taps = [draw(st.integers(1, 3)) for _ in range(spatial)]
    taps[0] = max(taps[0], 2)
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(spatial))
    most = {1: 40, 2: 12, 3: 5}[spatial]
    sizes = [(tap - 1) * step + 1 + draw(st.integers(0, most)) for tap, step in zip(taps, dilation, strict=True)]
    attributes = {
        "stride": tuple(draw(st.integers(1, 3)) for _ in range(spatial)),
        "padding": draw(st.sampled_from(["same", "valid", 1, 2])),
        "dilation": dilation,
    }
    channels, filters = (draw(st.sampled_from(sizes)) for sizes in ((16, 32, 48, 96, 160), (16, 64, 80, 144)))
    image = (draw(st.integers(1, 3)), channels, *sizes)
    return attributes, image, (filters, channels, *taps), draw(st.booleans()), draw(st.sampled_from(["", "x", "w"]))


def function_of(layer: Layer) -> tuple[Any, list[tuple[int, ...]]]:
    """A convolution or one of its gradients, with the shapes of its arguments."""
    attributes, image, weights, is_last, by = layer
    spatial = len(image) - 2
    op = getattr(ts.ops, f"conv{spatial}d")

    def convolve(x: Any, w: Any) -> Any:
        if not is_last:
            return op(x, w, **attributes)
        x = ts.ops.transpose(x, (0, spatial + 1, *range(1, spatial + 1)))
        return ts.ops.transpose(op(x, w, **attributes), (0, *range(2, spatial + 2), 1))

    image = (image[0], *image[2:], image[1]) if is_last else image
    if not by:
        return convolve, [image, weights]
    tape = ts.jit(convolve).trace(*(np.zeros(shape, ml_dtypes.bfloat16) for shape in (image, weights))).tape
    result = tuple(dim.value or 0 for dim in tape.types[tape.outputs[0]].shape)

    def gradient(x: Any, w: Any, y: Any) -> Any:
        back = ts.vjp((lambda x: convolve(x, w)) if by == "x" else (lambda w: convolve(x, w)), x if by == "x" else w)
        return back[1](y)[0]

    return gradient, [image, weights, result]


def windowed(kernels: list[SpecOp]) -> list[SpecOp]:
    return [kernel for kernel in kernels if kernel.value("symbol").startswith("dot_windows")]


@settings(max_examples=40, deadline=None)
@given(layers())
def test_what_copies_read_through_windows_is_what_the_program_says(layer: Layer) -> None:
    """Of integers, of which all sums are exact; by the interpreter of tiles, and as tensor cores have it."""
    function, shapes = function_of(layer)
    for kernel in windowed(kernels_of(function, shapes)):
        found = BACKEND.fit_tensor_cores(kernel)
        assert found.kernel is not None, found.reasons
        expected, made = both(kernel)
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("channels", "block"), [(128, (128, 240, 64)), (128, (64, 192, 64)), (96, (64, 80, 64))])
def test_no_line_has_channels_of_two_elements(channels: int, block: Any) -> None:
    """Whatever the block, of which columns are the elements of windows with their channels."""
    layer: Layer = {"padding": 1}, (2, channels, 6, 5), (64, channels, 3, 3), False, "w"
    function, shapes = function_of(layer)
    (kernel,) = windowed(kernels_of(function, shapes, overrides={"contraction.block": block}))
    expected, made = both(kernel)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("sizes", [(28, 28), (16, 32), (7, 100), (1, 700)], ids=str)
def test_segments_of_positions_begin_within_images(sizes: tuple[int, int]) -> None:
    """A gradient by weights, of which segments are summed apart: positions of images, or of parts of them."""
    layer: Layer = {"padding": 1}, (5, 32, *sizes), (64, 32, 3, 3), False, "w"
    function, shapes = function_of(layer)
    (kernel,) = windowed(kernels_of(function, shapes))
    assert len(kernel.value("grid")) == 3
    assert (kernel.value("grid")[0].value or 0) > 1
    expected, made = both(kernel)
    np.testing.assert_array_equal(made, expected)


X, W = (4, 64, 28, 28), (64, 64, 3, 3)
FORMS: dict[str, Layer] = {
    "columns": ({"padding": 1}, X, W, False, ""),
    "rows": ({"padding": 1}, X, W, True, ""),
    "rows of small images": ({"padding": 1}, (8, 96, 7, 7), (72, 96, 3, 3), False, ""),
    "by image": ({"padding": 1}, X, W, False, "x"),
    "by weights": ({"padding": 1}, X, W, False, "w"),
    "strided": ({"stride": 2}, X, W, True, ""),
    "along one dim": ({"dilation": 3}, (4, 32, 300), (96, 32, 5), False, ""),
    "of three dims": ({"padding": 1}, (2, 48, 9, 10, 11), (64, 48, 3, 3, 3), False, ""),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_assembler_takes_copies_through_windows(name: str) -> None:
    """Nothing is spilled, and no wait is added."""
    function, shapes = function_of(FORMS[name])
    (kernel,) = windowed(kernels_of(function, shapes))
    found = BACKEND.fit_tensor_cores(kernel)
    assert found.kernel is not None, found.reasons
    ptx = compile_text(BACKEND.code(found.kernel).text, BACKEND.code_target)
    assert f"{len(shapes[0])}d.shared::cluster.global.im2col".encode() in ptx
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    words = assemble_with_words(ptx, "sm_90a")[1]
    assert "wgmma" not in words
    assert " 0 bytes spill stores" in words


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (({"padding": 1}, (4, 8, 28, 28), W, False, ""), "channels that are no line"),
        (({"stride": 9}, (4, 64, 90, 90), W, False, ""), "a stride of more than 8"),
        (({"dilation": 130}, (1, 64, 300, 300), W, False, ""), "offsets of more than 8 bits"),
        (
            ({"dilation": (127, 1), "padding": (127, 1)}, (1, 48, 300, 12), W, False, ""),
            "offsets of a last step of more than 8 bits",
        ),
        (({"groups": 2, "padding": 1}, (4, 64, 28, 28), (64, 32, 3, 3), False, ""), "groups"),
        (({"padding": 1}, (1, 64, 28, 28), W, False, "w"), "one image, whose positions end with it"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_windows_that_copies_do_not_read_are_written(layer: Layer, reason: str) -> None:
    attributes, image, weights, is_last, by = layer
    weights = (weights[0], image[1] // attributes.get("groups", 1), *weights[2:])
    function, shapes = function_of((attributes, image, weights, is_last, by))
    kernels = kernels_of(function, shapes)
    assert not windowed(kernels), reason
    assert any(kernel.value("symbol").startswith("unfold") for kernel in kernels)


def test_images_are_put_in_order_once() -> None:
    """A layer and both of its gradients read one copy of the image with its channels last, and one of the cotangent."""

    def step(x: Any, w: Any, y: Any) -> Any:
        made, back = ts.vjp(lambda x, w: ts.ops.conv2d(x, w, padding=1), x, w)
        return (made, *back(y))

    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in (X, W, X)]
    found = lower(ts.jit(step).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    calls = [line for line in str(found.program).splitlines() if "tsched.call" in line]
    assert len([line for line in calls if "dot_windows" in line]) == 3
    copies = [line for line in calls if "@map_" in line]
    assert len(copies) <= 5  # two images, weights in two orders and their gradient


@ts.jit
def layer_of_any_batch(x: ts.Tensor["N", 48, 9, 11, ts.bf16], w: ts.Tensor[24, 48, 3, 3, ts.bf16]) -> Any:
    return ts.ops.conv2d(x, w, padding=1)


@ts.jit
def weights_of_any_batch(
    x: ts.Tensor["N", 48, 9, 11, ts.bf16], w: ts.Tensor[24, 48, 3, 3, ts.bf16], y: ts.Tensor["N", 24, 9, 11, ts.bf16]
) -> Any:
    return ts.vjp(lambda w: ts.ops.conv2d(x, w, padding=1), w)[1](y)[0]


@pytest.mark.parametrize(("function", "expected"), [(layer_of_any_batch, True), (weights_of_any_batch, False)])
def test_a_batch_of_any_size_runs_on_tensor_cores(function: Any, expected: bool) -> None:
    """By windows; where segments of positions are symbolic, by what they read."""
    shapes = [(3, 48, 9, 11), (24, 48, 3, 3), (3, 24, 9, 11)][: 2 if expected else 3]
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in shapes]
    options = Options.of(backend="cuda", features=("sm_90a",))
    found = lower(function.trace(*arrays).tape, options)
    dots = [op for kernel in found.kernels for op in kernel.walk() if isinstance(op, DotOp)]
    assert {dot.unit for dot in dots if dot.unit != "multiply-adds"} == {"wgmma"}
    assert bool(windowed(list(found.kernels))) == expected


# What is not a window, told from the map of a load.


def load_of(layer: Layer | None = None) -> LoadOp:
    """The load of an image through windows; of 4 x 28 x 28 x 64 through windows of 3 x 3 where none is named."""
    function, shapes = function_of(layer or FORMS["columns"])
    (kernel,) = windowed(kernels_of(function, shapes))
    (load,) = [op for op in kernel.walk() if isinstance(op, LoadOp) and op.windows]
    return load


def test_corners_and_offsets_of_a_load() -> None:
    found = find_windows(load_of())
    assert (found.low, found.high, found.strides) == ((-1, -1), (-1, -1), (1, 1))
    indices, offsets = found.at(0)
    env = {"_b0": 2, "_n": 28 * 5 + 7, "_k": 64 * 5 + 16}
    assert [expr.evaluate(env) for expr in indices] == [2, 4, 6, 16]
    assert [expr.evaluate(env) for expr in offsets] == [1, 2]


K, N = Dim.symbol("_k"), Dim.symbol("_n")
B = Dim.symbol("_b0")
MAP = (B, K // 64 // 3 + N // 28 - 1, K // 64 % 3 + N % 28 - 1, K % 64)
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "padding": ({"pad": 1.0}, "what TMA reads outside of windows is 0"),
    "windows": ({"windows": (MAP[1], Dim.of(27), MAP[2], Dim.of(28))}, "end where those do"),
    "channels": ({"map": (*MAP[:3], K % 32)}, "channels are `.*`, and `_k mod 64` are contiguous"),
    "both": ({"map": (*MAP[:3], (K + N) % 64)}, "channels `.*` are not along one axis"),
    "mixed": ({"map": (B, (K * N) // 28, *MAP[2:])}, "is neither of a window nor of its position"),
    "images": ({"map": (B + K // 64, *MAP[1:])}, "`_k` walks images"),
    "offsets": ({"map": (B, K // 32 // 3 + N // 28 - 1, *MAP[2:])}, "is no offset of elements of a window"),
    "backwards": ({"map": (B, N // 28 - K // 64 // 3, *MAP[2:])}, "is no offset of elements of a window"),
    "order": ({"map": (B, K // 64 // 3 + N % 28 - 1, K // 64 % 3 + N // 28 - 1, K % 64)}, "are not those of images"),
    "strides": ({"map": (B, K // 64 // 3 + (N // 28) * 9 - 1, *MAP[2:])}, "TMA walks in strides of 1 to 8"),
    "corners": ({"map": (B, K // 64 // 3 + N // 28 - 129, *MAP[2:])}, "do not have 8 bits"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_other_loads_are_not_read_by_windows(name: str) -> None:
    changes, text = BROKEN[name]
    load = load_of()
    if "map" in changes:
        map = changes["map"]
        changes = {**changes, "windows": (map[1], Dim.of(28), map[2], Dim.of(28))}
    for key, value in changes.items():
        load.properties[key] = attribute_of(load.kinds[key], value)
    with pytest.raises(UnfitError, match=text):
        find_windows(load)


@pytest.mark.parametrize(("channels", "expected"), [(64, True), (48, False)])
def test_offsets_of_the_last_step_keep_to_their_field(channels: int, expected: bool) -> None:
    """Elements of a window 100 apart: with 64 channels steps end with the window, with 48 the last one counts on."""
    load = load_of(({"padding": 1}, (4, channels, 28, 28), (64, channels, 3, 3), False, ""))
    inner = load.value("axes").index("_k")
    assert (9 * channels % sizes_of(load.result)[inner] == 0) == expected
    map = (B, (K // channels // 3) * 100 + N // 28 - 1, K // channels % 3 + N % 28 - 1, K % channels)
    for key, value in {"map": map, "windows": (map[1], Dim.of(28), map[2], Dim.of(28))}.items():
        load.properties[key] = attribute_of(load.kinds[key], value)
    if expected:
        assert find_windows(load).offsets[0].evaluate({"_k": 9 * channels - 1}) == 200
    else:
        with pytest.raises(UnfitError, match="is no offset of elements of a window, from 0 to 255"):
            find_windows(load)


def test_rows_of_a_copy_go_on_from_one_image_to_the_next() -> None:
    """The simulator's rule of TMA's, on an image of two rows and three columns, in strides of 2 along the last dim."""
    image = np.arange(2 * 2 * 3 * 2).reshape(2, 2, 3, 2)
    corners = ((-1, 0), (-1, 0), (1, 2))
    found = copy_windows(image, (8, 2), corners, 1, [0, 0, 2, 0, 1, 0])
    places = [(0, 1, 2), (1, 0, 0), (1, 0, 2), (1, 1, 0), (1, 1, 2), None, None, None]
    expected = [[0, 0] if place is None else list(image[place]) for place in places]
    assert found.tolist() == expected


# What the driver is asked for.


def test_the_driver_is_asked_for_corners_and_strides() -> None:
    attributes, image, weights = {"padding": (1, 2), "stride": (2, 3)}, (2, 64, 30, 31), (64, 64, 3, 3)
    function, shapes = function_of((attributes, image, weights, True, ""))
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in shapes]
    jitted: Any = ts.jit(function)
    made = compile_tape(jitted.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    asked: list[dict[str, Any]] = []

    def words(address: int, count: int, type: Any) -> list[int]:
        return list((type * count).from_address(address))

    def encode(*given: int | None) -> int:
        args = [one or 0 for one in given]
        numbers = [one & 0xFFFFFFFF for one in args]
        rank = numbers[2]
        asked.append(
            {
                "dtype": numbers[1],
                "dims": words(args[4], rank, ctypes.c_uint64),
                "strides": words(args[5], rank - 1, ctypes.c_uint64),
                "low": words(args[6], rank - 2, ctypes.c_int32),
                "high": words(args[7], rank - 2, ctypes.c_int32),
                "box": numbers[8:10],
                "steps": words(args[10], rank, ctypes.c_uint32),
                "modes": numbers[11:15],
            }
        )
        return 0

    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 15)
    tiled = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)
    own = {"encode_windows": call(encode), "encode": tiled(lambda *_: 0), "launch": tiled(lambda *_: 0)}
    state = [ctypes.cast(own[name], ctypes.c_void_p).value if name in own else 0 for name in STATE]
    area = TensorMaps(made.metadata["maps"])
    state[STATE.index("maps")] = area.address
    called = len(made.metadata["called"])
    table = (ctypes.c_void_p * (len(state) + called))(*state, *[1] * called)
    code = link([made.objects[0]], {})
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)(code.address("tessera_entry"))
    assert entry((ctypes.c_void_p * 2)(0x10000, 0x20000), (ctypes.c_void_p * 1)(0x30000), None, 0x40000, table) == 0
    (found,) = asked
    # 15 x 11 positions; bf16 in lines of 128 bytes, into L2 by 128, and zeros outside.
    assert found.pop("box")[0] == 64
    assert found == {
        "dtype": 9,
        "dims": [64, 31, 30, 2],
        "strides": [128, 31 * 128, 30 * 31 * 128],
        "low": [-2, -1],
        "high": [10 * 3 + 1 - 2 - 31, 14 * 2 + 1 - 1 - 30],
        "steps": [1, 3, 2, 1],
        "modes": [0, 3, 2, 0],
    }
