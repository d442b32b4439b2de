"""Language and types: annotations, dtypes, casting rules, the modelling ops, one source for everything."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import linecache
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DTypeError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dtype import BY_NAME, DType
from tessera.types.promotion import integer_range
from tests.api import test_model as model

ROOT = Path(__file__).parents[2]


def test_L1_examples_are_python_alone() -> None:
    files = [file for file in (ROOT / "examples").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert {file.suffix for file in files} == {".py"}
    assert {"transformer.py", "matmul.py", "softmax.py", "flash_attention.py"} <= {file.name for file in files}


BLOCK = """\
import numpy as np
import tessera as ts
from tessera import KVCache, Tensor, accum, f32, jit
from tessera.ops import cast_like, flash_attention, gelu, matmul, residual, rmsnorm_safe, split_qkv

rng = np.random.default_rng(0)
Wqkv, Wo, Wmlp_in, Wmlp_out = (
    rng.standard_normal(s).astype(np.float32) * 0.2 for s in ((8, 24), (8, 8), (8, 16), (16, 8))
)

@jit
def transformer_block(x: Tensor["B","S","D", f32 @accum(f32)],
                      cache: KVCache, *, heads: int):
    x = rmsnorm_safe(x)
    qkv = matmul(x, Wqkv)
    q,k,v = split_qkv(qkv, heads=heads)
    cache = cache.append(k,v)
    y = flash_attention(q, cache, causal=True)
    y = y.swapaxes(1, 2).reshape(x.shape)
    y = residual(x, matmul(y, Wo))
    y = residual(y, gelu(matmul(rmsnorm_safe(y), Wmlp_in)) @ Wmlp_out)
    return cast_like(y, x), cache

out, cache = transformer_block(
    rng.standard_normal((2, 3, 8)).astype(np.float32), KVCache.empty(2, 2, 4, 4), heads=2
)
"""


def test_L2_a_block_runs_in_a_file_and_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(BLOCK)
    from_file: dict[str, Any] = {"__name__": "model"}
    exec(compile(BLOCK, str(file), "exec"), from_file)
    # A cell has source that only `linecache` knows, a prompt has none at all.
    name = "<cell 1>"
    linecache.cache[name] = (len(BLOCK), None, list[str](BLOCK.splitlines(keepends=True)), name)
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(BLOCK, name, "exec"), cell)
    prompt: dict[str, Any] = {"__name__": "__main__"}
    for statement in BLOCK.split("\n\n"):
        exec(compile(statement + "\n", "<stdin>", "exec"), prompt)
    assert from_file["out"].shape == (2, 3, 8)
    for scope in (cell, prompt):
        np.testing.assert_array_equal(np.asarray(scope["out"]), np.asarray(from_file["out"]))


def ask(*command: str, typed: str, cache: Path) -> str:
    """What a process prints that is typed to."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_CACHE_DIR": str(cache), "PYTHON_HISTORY": os.devnull}
    done = subprocess.run(
        [sys.executable, *command], input=typed, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_L2_a_prompt_and_a_debugger_run_it(tmp_path: Path) -> None:
    shown = "\nprint('shape', out.shape, int(cache.length))\n"
    typed = ask("-i", "-q", typed=BLOCK + shown, cache=tmp_path / "cache")
    assert "shape (2, 3, 8) 3" in typed
    file = tmp_path / "model.py"
    file.write_text(BLOCK + shown)
    line = 1 + BLOCK.splitlines().index("    cache = cache.append(k,v)")
    commands = f"b {line}\nc\np q.shape, k.dtype\np x.shape[0]\nn\np cache.length\nwhere\nc\nq\n"
    debugged = ask("-m", "pdb", str(file), typed=commands, cache=tmp_path / "cache")
    assert "(B, 2, S, 4), f32" in debugged
    assert f"model.py({line + 1})transformer_block()" in debugged
    assert "shape (2, 3, 8) 3" in debugged


def test_L10_solver_and_lattice_stand_alone() -> None:
    program = """
import sys
from tessera.types.constraint import solve
from tessera.types.effect import report
print(solve("D = H*Dh; Dh % 8 == 0; ? D % 8 == 0"))
print(*report("f: random; g: f, io; ? f <= g"), sep=", ")
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("tessera.")}))
print([name for name in ("numpy", "xdsl", "llvmlite") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-4:] == [
        "`D % 8 == 0` is proved by `D = H*Dh`, `Dh % 8 == 0`",
        "f: random, g: random, io, f <= g: yes",
        "['diagnostics', 'types']",
        "[]",
    ]
    assert "**The core is Python.**" in (ROOT / "ARCHITECTURE.md").read_text()


def test_L3_1_texts_show_dims_dtype_policy_and_effects() -> None:
    @ts.jit
    def drop(x: ts.Tensor["B", 4, ts.bf16 @ ts.accum(ts.f32)], key: ts.Tensor[2, ts.u64]) -> ts.Tensor["B", 4]:
        return ts.random.dropout(x, key, 0.5)

    drop(np.ones((1, 4), ml_dtypes.bfloat16), ts.random.key(0))
    assert repr(drop).splitlines() == [
        'jit drop(x: Tensor["B", 4, bf16 @ accum(f32)], key: Tensor[2, u64]) -> Tensor["B", 4] effects {random}',
        "  (x: [B, 4] bf16, key: [2] u64) -> ([B, 4] bf16) random",
    ]
    assert repr(ts.array([[1.5, 2.0]], ts.bf16)) == "Tensor([1, 2] bf16, [[1.5, 2]])"


# By the definitions of the formats: bits, exponent and mantissa bits, the largest number, the smallest normal one.
FLOATS = {
    "f64": (64, 11, 52, 1.7976931348623157e308, 2.0**-1022),
    "f32": (32, 8, 23, 3.4028234663852886e38, 2.0**-126),
    "bf16": (16, 8, 7, 3.3895313892515355e38, 2.0**-126),
    "f16": (16, 5, 10, 65504.0, 2.0**-14),
    "f8e4m3": (8, 4, 3, 448.0, 2.0**-6),
    "f8e5m2": (8, 5, 2, 57344.0, 2.0**-14),
}
INTEGERS = {
    "i64": (-(2**63), 2**63 - 1, 8),
    "i32": (-(2**31), 2**31 - 1, 4),
    "i16": (-(2**15), 2**15 - 1, 2),
    "i8": (-128, 127, 1),
    "i4": (-8, 7, 1),
    "u64": (0, 2**64 - 1, 8),
    "u32": (0, 2**32 - 1, 4),
    "u16": (0, 65535, 2),
    "u8": (0, 255, 1),
    "bool": (0, 1, 1),
}


def decoded(bits: int, exponent_bits: int, mantissa_bits: int, *, has_infinity: bool) -> float:
    """The number that eight bits stand for, by the definition of the format."""
    sign = -1.0 if bits >> 7 else 1.0
    exponent, mantissa = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1), bits & ((1 << mantissa_bits) - 1)
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    if exponent == top and has_infinity:
        return sign * np.inf if mantissa == 0 else np.nan
    if exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return np.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa * 2.0**-mantissa_bits) * 2.0 ** (exponent - bias)


def test_L4_dtypes_have_their_ranges_and_every_pattern_of_eight_bits() -> None:
    assert {*FLOATS, *INTEGERS} == BY_NAME.keys()
    for name, (bits, exponent, mantissa, largest, smallest) in FLOATS.items():
        dtype = BY_NAME[name]
        assert (dtype.bits, dtype.bytes, dtype.exponent, dtype.mantissa) == (bits, bits // 8, exponent, mantissa)
        assert dtype.epsilon == 2.0**-mantissa
        ends = ts.array([largest, smallest, largest * 2 if bits < 64 else np.inf], dtype)
        assert ends.tolist()[:2] == [largest, smallest]
        assert not np.isfinite(ends.tolist()[2])
    for name, (low, high, size) in INTEGERS.items():
        assert (integer_range(BY_NAME[name]), BY_NAME[name].bytes) == ((low, high), size)
    for name, has_infinity in (("f8e4m3", False), ("f8e5m2", True)):
        dtype = BY_NAME[name]
        patterns = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype))
        wanted = [decoded(bits, dtype.exponent, dtype.mantissa, has_infinity=has_infinity) for bits in range(256)]
        np.testing.assert_array_equal(ts.array(patterns, dtype).tolist(), wanted)
        # Compiled code reads every pattern and writes it back.
        wide = np.asarray(ts.jit(lambda x: x.cast(ts.f32))(patterns))
        np.testing.assert_array_equal(wide, np.array(wanted, np.float32))
        back = np.asarray(ts.jit(lambda x, dtype=dtype: x.cast(dtype))(wide)).view(np.uint8)
        numbers = ~np.isnan(wide)
        np.testing.assert_array_equal(back[numbers], np.arange(256, dtype=np.uint8)[numbers])


def test_L4_1_one_function_has_a_specialization_for_each_dtype() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", "D"]) -> Any:
        return ops.rmsnorm_safe(x) * ts.random.normal(ts.random.key(0), x.shape, dtype=x.dtype)

    for dtype in ("f32", "bf16", "f16", "f32", "bf16"):
        assert f(np.ones((2, 4), numpy_dtype(BY_NAME[dtype]))).dtype is BY_NAME[dtype]
    assert (f.cache_info().misses, f.cache_info().size) == (3, 3)
    with pytest.raises(DTypeError, match="`normal` gives floats, not i8"):
        f(np.ones((2, 4), np.int8))
    assert f.cache_info().size == 3


# Left, right, policy of the left operand, and the dtype of the product or the rule that refuses it.
PRODUCTS = """
f64 f64 - f64        f32 f64 - f64         f32 f32 - f32         bf16 f64 - f64        f16 f64 - f64
f32 bf16 - f32       bf16 f32 - f32        f16 f32 - f32         bf16 bf16 - bf16      f16 f16 - f16
bf16 f16 - f32       f16 bf16 - f32        f8e4m3 f8e4m3 - f8e4m3  f8e5m2 f8e5m2 - f8e5m2  i8 f32 - f32
i8 bf16 - bf16       i8 f16 - f16          i16 bf16 - f32        i32 f64 - f64         u8 bf16 - bf16
i8 i8 - i8           i8 i16 - i16          i8 u8 - i16           i32 i64 - i64         u8 u16 - u16
u32 u64 - u64        i4 i8 - i8            i4 bf16 - bf16        f32 f32 f64 f32       bf16 bf16 f32 bf16
f16 f16 f32 f16      f8e4m3 f8e4m3 f32 f8e4m3  f8e5m2 f8e5m2 f32 f8e5m2  bf16 bf16 f64 bf16  f16 f16 f64 f16
f8e4m3 f8e5m2 - !    f8e4m3 f32 - !        f8e5m2 bf16 - !       i64 f32 - !           u64 i64 - !
i32 f32 - !          bool bool - bool
"""


def test_L6_products_have_one_dtype_and_nothing_narrows_by_itself() -> None:
    words = PRODUCTS.split()
    triples = [words[at : at + 4] for at in range(0, len(words), 4)]
    assert len(triples) >= 40
    for left, right, policy, wanted in triples:
        f: Any = ts.jit(lambda x, y: x @ y)
        if policy != "-":
            f = ts.jit(_accumulating(BY_NAME[left], BY_NAME[policy]))
        arguments = [ts.Tensor.of([[1, 1], [1, 1]], BY_NAME[name]) for name in (left, right)]
        if wanted == "!":
            with pytest.raises(DTypeError, match=r"`matmul` (cannot mix|needs numbers)"):
                f.trace(*arguments)
            continue
        tape = f.trace(*arguments).tape
        assert str(tape.types[tape.outputs[0]].dtype) == wanted, (left, right, policy)
        product = next(record for record in tape.records if record.op == "tgraph.matmul")
        assert policy == "-" or str(product.attributes["accumulate"]) == policy


def _accumulating(dtype: DType, accumulator: DType) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x @ y

    f.__annotations__ = {"x": ts.Tensor["M", "K", dtype @ ts.accum(accumulator)]}
    return f


def test_L6_f32_never_becomes_a_float8_without_a_cast() -> None:
    f = ts.jit(lambda x, y: x + y)
    with pytest.raises(
        DTypeError, match="`add` cannot mix f8e4m3 and f32: no dtype holds every value of both"
    ) as raised:
        f(np.ones(2, ml_dtypes.float8_e4m3fn), np.ones(2, np.float32))
    assert raised.value.fix is not None

    @ts.jit
    def g(x: ts.Tensor["N", ts.f8e4m3]) -> Any:
        return x

    with pytest.raises(ts.TesseraError, match="`x` must be f8e4m3, got f32"):
        g(np.ones(2, np.float32))


def test_L8_the_block_of_the_document_equals_numpy() -> None:
    block = ts.jit(model.transformer_block)
    for batch, length in ((1, 1), (2, 5)):
        x: Array = model.weight(batch, length, model.WIDTH)
        stored = np.zeros((batch, model.HEADS, 8, model.HEAD_DIM), np.float32)
        y, cache = block(x, ts.KVCache(stored, stored, ts.array(0)))
        np.testing.assert_allclose(np.asarray(y), model.compute_expected(x), rtol=3e-5, atol=3e-5)
        assert int(cache.length) == length
    assert block.cache_info().misses == 1
