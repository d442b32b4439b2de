"""Loads, stores and casts of every dtype, each code of the small ones, against NumPy and ml_dtypes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tessera.ir.base import arrays
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.scalar_reference import cast as reference_cast
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import TargetText, Value, bytes_of, vector
from tessera.ir.target.llvm.text import ModuleText
from tessera.types import dtype as dt
from tessera.types.dtype import DENORMALS, FORMATS, ROUNDINGS, SATURATIONS, DType, conversion_fault
from tests.backends.cpu.jit import Compiled, build, targets

Array = np.ndarray[Any, Any]
each_target = pytest.mark.parametrize("target", targets(), ids=lambda target: f"lanes{target.lanes}")


def compile_cast(target: TargetText, pairs: list[tuple[DType, DType]]) -> Compiled:
    """One function per pair: load as the first dtype, cast, store as the second; with a masked tail."""
    module = ModuleText(target)
    for source, to in pairs:
        f = module.function(f"{source}_{to}", [("ptr", "to"), ("ptr", "source"), ("i64", "n")])
        out, pointer, n = f.arguments
        lanes = target.lanes

        def body(i: Value, tail: Value | None = None) -> None:
            start = f.gep(pointer, i, convert.storage_type(source))  # noqa: B023
            value = convert.cast(f, convert.load(f, start, source, lanes, tail), source, to)  # noqa: B023
            convert.store(f, value, f.gep(out, i, convert.storage_type(to)), to, tail)  # noqa: B023

        whole = f.round_down(n, lanes)
        f.loop(0, whole, lanes, body)
        body(whole, f.lane_mask(f.sub(n, whole), lanes))
        f.ret()
    return build(module)


def run(kernel: Compiled, source: DType, to: DType, values: Array) -> Array:
    out = np.zeros(len(values) + 1, numpy_dtype(to))
    kernel(f"{source}_{to}", out, values, len(values))
    assert not out[-1:].view(np.uint8).any(), "nothing is written past the end"
    return out[:-1]


def bits_of(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def samples(dtype: DType) -> Array:
    """Every value of a small dtype; of a wide one the corners and random ones."""
    rng = np.random.default_rng(7)
    numpy = numpy_dtype(dtype)
    if dtype is dt.i4:
        return np.arange(-8, 8, dtype=np.int8)
    if dtype.is_bool:
        return np.array([False, True, True, False, True])
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"u{dtype.bytes}").view(numpy)
    if not dtype.is_float:
        info = np.iinfo(numpy)
        ends = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 127, 128, 255, 256], numpy)
        spread = rng.integers(info.min, info.max, 2000, dtype=numpy, endpoint=True)
        return np.concatenate([ends, spread, spread >> rng.integers(0, dtype.bits - 1, 2000).astype(numpy)])
    corners = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        -np.nan,
        1e-46,
        -1e-40,
        448.0,
        464.0,
        464.00003,
        480.0,
        61440.0,
        65520.0,
    ]
    ends = [sign * 2.0**power * near for power in (3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 65) for near in
            (1 - 2**-22, 1, 1 + 2**-22) for sign in (1, -1)]  # fmt: skip
    wide = rng.normal(size=4000) * 10.0 ** rng.uniform(-12, 12, 4000)
    with np.errstate(over="ignore"):
        return np.array([*corners, *ends, *wide], numpy)


@each_target
@pytest.mark.parametrize("source", dt.ALL, ids=str)
def test_every_cast_matches_the_reference(target: TargetText, source: DType) -> None:
    kernel = compile_cast(target, [(source, to) for to in dt.ALL])
    values = samples(source)
    for to in dt.ALL:
        with np.errstate(all="ignore"):
            expected = reference_cast(values, dtype=to)
        actual = run(kernel, source, to, values)
        if to.is_float:
            with np.errstate(invalid="ignore"):
                nan = np.isnan(expected.astype(np.float64))
                np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), nan, str(to))
            actual, expected = actual[~nan], expected[~nan]
        np.testing.assert_array_equal(bits_of(actual), bits_of(expected), f"{source} to {to}")


@each_target
@pytest.mark.parametrize("to", [dt.bf16, dt.f16, dt.f8e4m3, dt.f8e5m2], ids=str)
def test_rounding_to_narrow_floats_around_every_midpoint(target: TargetText, to: DType) -> None:
    with np.errstate(invalid="ignore"):
        codes = samples(to).astype(np.float32)
    finite = np.unique(codes[np.isfinite(codes)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -np.float32(np.inf))]
    )
    with np.errstate(all="ignore"):
        expected = values.astype(numpy_dtype(to))
    actual = run(compile_cast(target, [(dt.f32, to)]), dt.f32, to, values)
    np.testing.assert_array_equal(bits_of(actual), bits_of(expected))


@each_target
@pytest.mark.parametrize("through", dt.ALL, ids=str)
def test_a_value_that_stays_in_registers_is_one_of_its_dtype(target: TargetText, through: DType) -> None:
    """Two casts with nothing stored between: what a narrow dtype does not hold is lost at the first of them."""
    module = ModuleText(target)
    lanes, sources = target.lanes, (dt.i32, dt.u64, dt.f32, dt.f64)
    for source in sources:
        f = module.function(str(source), [("ptr", "to"), ("ptr", "source")])
        out, pointer = f.arguments
        held = convert.cast(f, convert.load(f, pointer, source, lanes), source, through)
        convert.store(f, convert.cast(f, held, through, dt.f64), out, dt.f64)
        f.ret()
    kernel = build(module)
    for source in sources:
        values = samples(source)[:256].reshape(-1, lanes)
        with np.errstate(all="ignore"):
            expected = reference_cast(reference_cast(values, dtype=through), dtype=dt.f64)
        actual = np.zeros_like(expected)
        for row, given in zip(actual, values, strict=True):
            kernel(str(source), row, given)
        np.testing.assert_array_equal(actual, expected, f"{source} to {through} to f64")


def ties(to: DType, bits: int) -> list[int]:
    """Integers that a float's last place cannot tell apart, at ties and beside them, of every length up to `bits`."""
    mantissa = to.mantissa + 1
    found: list[int] = []
    for length in range(mantissa + 1, bits):
        unit = 1 << (length - mantissa)
        for head in ((1 << mantissa) - 1, (1 << mantissa) - 2, (1 << (mantissa - 1)) + 1, 1 << (mantissa - 1)):
            found += [head * unit + unit // 2 + near for near in (-2, -1, 0, 1, 2)]
    for power in (24, 25, 53, 54):
        found += [(1 << power) + near for near in (-2, -1, 0, 1, 2) if power < bits]
    return found


@each_target
@pytest.mark.parametrize("to", [dt.f32, dt.f64, dt.f16, dt.bf16, dt.f8e4m3, dt.f8e5m2], ids=str)
@pytest.mark.parametrize("source", [dt.i32, dt.u32, dt.i64, dt.u64], ids=str)
def test_integers_round_once(target: TargetText, source: DType, to: DType) -> None:
    """To the nearest number of the float itself, by whole numbers, and not to one of a wider float before."""
    info = np.iinfo(numpy_dtype(source))
    given = [sign * value for value in ties(to, source.bits + 1) for sign in (1, -1)]
    whole = [value for value in given if info.min <= value <= info.max]
    assert whole
    actual = run(compile_cast(target, [(source, to)]), source, to, np.array(whole, numpy_dtype(source)))
    kind = FORMATS[str(to)] if to is not dt.f64 else None
    largest = int(kind.largest) if kind is not None else 1 << 1000
    for value, found in zip(whole, actual.astype(np.float64), strict=True):
        drop = max(abs(value).bit_length() - (to.mantissa + 1), 0)
        wanted = round(Fraction(abs(value), 1 << drop)) << drop
        if wanted > largest:
            assert np.isinf(found) if kind is not None and kind.has_infinity else np.isnan(found), value
        else:
            assert int(found) == (wanted if value > 0 else -wanted), value


@each_target
@pytest.mark.parametrize("to", [dt.f16, dt.bf16, dt.f8e4m3, dt.f8e5m2], ids=str)
def test_f64_rounds_once(target: TargetText, to: DType) -> None:
    """Beside a tie by less than f32 tells: rounded to f32 first, it would be the tie."""
    whole = [value for value in ties(to, 54) if value >> 40]
    values = np.array([sign * value / 2.0**45 for value in whole for sign in (1, -1)])
    actual = run(compile_cast(target, [(dt.f64, to)]), dt.f64, to, values).astype(np.float64)
    drops = [value.bit_length() - (to.mantissa + 1) for value in whole]
    wanted = [round(Fraction(value, 1 << drop)) << drop for value, drop in zip(whole, drops, strict=True)]
    np.testing.assert_array_equal(actual, [sign * value / 2.0**45 for value in wanted for sign in (1, -1)])


@each_target
@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_some_elements_are_loaded_and_the_others_are_zero(target: TargetText, dtype: DType) -> None:
    module = ModuleText(target)
    widths = (1, 2, target.lanes)
    for lanes in widths:
        f = module.function(f"load{lanes}", [("ptr", "to"), ("ptr", "source"), ("i64", "n")])
        out, pointer, n = f.arguments
        convert.store(f, convert.load_some(f, pointer, dtype, lanes, n), out, dtype)
        f.ret()
    kernel = build(module)
    memory = np.arange(1, 3 * target.lanes + 1).astype(numpy_dtype(dtype if dtype is not dt.i4 else dt.i8))
    if dtype is dt.i4:
        memory = (memory % 7 - 8).astype(np.int8)
    assert memory.astype(np.float64).all()
    for lanes in widths:
        for count in range(lanes + 4):
            actual = np.full_like(memory, memory[0])
            kernel(f"load{lanes}", actual, memory, count)
            expected = np.full_like(memory, memory[0])
            expected[:lanes] = np.where(np.arange(lanes) < count, memory[:lanes], np.zeros_like(memory[:lanes]))
            np.testing.assert_array_equal(bits_of(actual), bits_of(expected), f"{count} of {lanes}")


def near_numbers(format: str) -> Array:
    """Numbers of a format around its ends, the middles between them, quarters, and those beside each."""
    kind = FORMATS[format]
    if not kind.is_float:
        middles = (kind.lowest, 0, kind.largest, 2 * kind.largest, 3 * kind.largest)
        around = np.concatenate([middle + np.arange(-9, 10) / 4 for middle in middles])
    else:
        heads = np.unique(np.linspace(1 << kind.mantissa, (2 << kind.mantissa) - 1, 4).astype(np.int64))
        lowest, highest = int(np.log2(kind.smallest_normal)), int(np.log2(kind.largest))
        exponents = [lowest + near for near in range(-kind.mantissa - 2, 3)]
        exponents += [0, *(highest + near for near in (-1, 0, 1))]
        units = np.array([2.0 ** (exponent - kind.mantissa) for exponent in exponents])
        shares = np.array([0, 0.25, 0.5, 0.75])
        around = ((heads[:, None] + shares)[:, :, None] * units).ravel()
    with np.errstate(all="ignore"):
        exact = np.concatenate([around, -around, [0.0, 1e-45, 1e-40, 3e38, 300.5, 1e9, 2.0**24 + 2]]).astype(np.float32)
        beside = [np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf)]
    ends = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    return np.concatenate([exact, *beside, ends])


@each_target
@pytest.mark.parametrize("format", FORMATS)
def test_roundings_match_the_reference_with_the_same_random_bits(target: TargetText, format: str) -> None:
    """Every way to round; where bits decide, some of all sizes and those that just do and just do not go up."""
    ways = [way for way in itertools.product(ROUNDINGS, SATURATIONS, DENORMALS) if not conversion_fault(format, *way)]
    module, lanes = ModuleText(target), target.lanes
    for number, way in enumerate(ways):
        f = module.function(f"way{number}", [("ptr", "to"), ("ptr", "source"), ("ptr", "bits"), ("i64", "n")])
        out, pointer, drawn, n = f.arguments

        def body(i: Value) -> None:
            random = f.load(f.gep(drawn, i, "i32"), vector("i32", lanes))  # noqa: B023
            value = f.load(f.gep(pointer, i, "float"), vector("float", lanes))  # noqa: B023
            rule = convert.Rounding(format, *way, random=random)  # noqa: B023
            f.store(convert.round_to(f, value, rule), f.gep(out, i, "float"))  # noqa: B023

        f.loop(0, n, lanes, body)
        f.ret()
    kernel = build(module)
    values = near_numbers(format)
    corners = np.array([0, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xBFFFFFFF, 0xC0000000, 0xFFFFFFFF])
    several = np.concatenate([corners, np.random.default_rng(3).integers(0, 1 << 32, 8)]).astype(np.uint32)
    values, bits = np.repeat(values, len(several)), np.tile(several, len(values))
    for number, way in enumerate(ways):
        rounding, saturation, denormals = way
        rule = {"rounding": rounding, "saturation": saturation, "denormals": denormals}
        expected = arrays.round_to(values, format=format, **rule, bits=bits)
        actual = np.zeros_like(expected)
        kernel(f"way{number}", actual, values, bits, len(values))
        np.testing.assert_array_equal(actual, expected, str(way))
        kept = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[kept]), np.signbit(expected[kept]), str(way))


def test_storage_and_compute_types() -> None:
    for source in dt.ALL:
        assert bytes_of(convert.storage_type(source)) == source.bytes
    assert [convert.compute_type(d) for d in (dt.bf16, dt.bool_, dt.i4, dt.f64)] == ["float", "i1", "i8", "double"]
    assert len(set(itertools.chain.from_iterable([convert.storage_type(d)] for d in dt.ALL))) == 7


@pytest.mark.parametrize("mode", ["atomic_add", "atomic_max", "atomic_min"])
@pytest.mark.parametrize("dtype", [dt.i32, dt.u32, dt.i64, dt.u64, dt.f32, dt.f64], ids=str)
def test_atomic_changes_order_numbers_as_their_dtype_does(dtype: DType, mode: str) -> None:
    """The same bits are a negative number or a large one."""
    module, stored = ModuleText(targets()[0]), convert.storage_type(dtype)
    f = module.function("change", [("ptr", "to"), ("ptr", "source")])
    out, pointer = f.arguments
    f.atomic(convert.atomic_instruction(mode, dtype), out, f.load(pointer, stored))
    f.ret()
    kernel, numpy = build(module), numpy_dtype(dtype)
    numbers = np.array([1, 5, -3 if dtype.kind != "uint" else np.iinfo(numpy).max - 7], numpy)
    change: Any = {"atomic_add": np.add, "atomic_max": np.maximum, "atomic_min": np.minimum}[mode]
    for one, other in itertools.permutations(numbers, 2):
        memory, given = np.array([one]), np.array([other])
        kernel("change", memory, given)
        assert memory[0] == change(one, other)
