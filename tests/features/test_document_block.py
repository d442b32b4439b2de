"""L8, L2: the `transformer_block` of the language document, word for word, in a file, at a prompt and in a cell."""

# NumPy's results and lambdas have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import linecache
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DeviceError
from tessera.ir.graph.ops.random import keep_mask
from tessera.runtime.devices.cuda.driver import is_available

Array: TypeAlias = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[2]
HEADS, HEAD_DIM, WIDTH, HIDDEN = 2, 4, 8, 16

# As the document has it, comments and blanks included.
BLOCK = """\
@jit @autodiff
def transformer_block(x: Tensor["B","S","D", bf16 @accum(f32)],
                      cache: KVCache, *, heads: int, p: float):
    x = rmsnorm_safe(x)
    with device(gpu), prefetch(cache, into="smem", overlap="compute"):
        qkv = matmul(x, Wqkv)                 # fp8 -> fp32 accum
        q,k,v = split_qkv(qkv, heads=heads)
        cache = cache.append(k,v)
        y = flash_attention(q, cache, dropout=p, causal=True)
    y = residual(x, matmul(y, Wo), dropout=p)
    y = residual(y, gelu(matmul(rmsnorm_safe(y), Wmlp_in)) @ Wmlp_out, dropout=p)
    return cast_like(y, x), cache
"""

IMPORTS = """\
import ml_dtypes
import numpy as np
import tessera
from functools import partial
from tessera import KVCache, Tensor, accum, autodiff, bf16, cpu, f32, gpu, jit, prefetch
from tessera.ops import cast_like, flash_attention, gelu, matmul, residual, rmsnorm_safe, split_qkv
device = partial(tessera.device, otherwise=cpu)
rng = np.random.default_rng(0)
sizes = (8, 24), (8, 8), (8, 16), (16, 8)
Wqkv, Wo, Wmlp_in, Wmlp_out = ((rng.standard_normal(size) * 0.2).astype(ml_dtypes.bfloat16) for size in sizes)
"""
"""What the document leaves out: names, weights, and where to go on a machine without a GPU."""

CALL = """\
x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(ml_dtypes.bfloat16)
with tessera.random.run(5):
    out, cache = transformer_block(x, KVCache.empty(2, 2, 4, 4, bf16), heads=2, p=0.25)

print("result", np.asarray(out).tobytes().hex(), int(cache.length))
"""


def namespace(name: str = "model.py", program: str = IMPORTS + BLOCK) -> dict[str, Any]:
    linecache.cache[name] = (len(program), None, list[str](program.splitlines(keepends=True)), name)
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, name, "exec"), found)
    return found


def narrow(x: Any) -> Array:
    """A result as the block stores it."""
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float64)


def drop(x: Array, key: Any, rate: float) -> Array:
    return np.where(keep_mask(np.asarray(key), x.shape, rate), x / (1.0 - rate), 0.0) if rate else x


def rms(x: Array) -> Array:
    return narrow(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))


def expected(x: Array, weights: list[Array], past: tuple[Array, Array], keys: list[Any], rate: float) -> Array:
    """The block in NumPy, in f64, each result rounded as it is stored; `past` are keys and values of the cache."""
    wqkv, wo, wmlp_in, wmlp_out = (weight.astype(np.float64) for weight in weights)
    x = rms(x.astype(np.float64))
    batch, length, _ = x.shape
    q, k, v = narrow(x @ wqkv).reshape(batch, length, 3, HEADS, HEAD_DIM).transpose(2, 0, 3, 1, 4)
    k, v = (np.concatenate([old, new], axis=2) for old, new in zip(past, (k, v), strict=True))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(HEAD_DIM)
    total = k.shape[2]
    seen = np.arange(total) <= np.arange(length)[:, None] + total - length
    scores = np.where(seen, scores, -np.inf)
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    capacity = np.zeros((batch, HEADS, length, CAPACITY))
    capacity[..., :total] = terms / terms.sum(-1, keepdims=True)
    dropped = drop(capacity, keys[0], rate)[..., :total]
    y = narrow(dropped @ v).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH)
    y = narrow(x + drop(narrow(y @ wo), keys[1], rate))
    inner = narrow(rms(y) @ wmlp_in)
    erf = np.vectorize(math.erf)
    inner = narrow(0.5 * inner * (1.0 + erf(inner / math.sqrt(2.0))))
    return narrow(y + drop(narrow(inner @ wmlp_out), keys[2], rate))


CAPACITY = 8


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_L8_the_block_as_it_is_written_equals_numpy(rate: float) -> None:
    scope = namespace()
    block, weights = scope["transformer_block"], [scope[name] for name in ("Wqkv", "Wo", "Wmlp_in", "Wmlp_out")]
    rng = np.random.default_rng(2)
    past = [rng.standard_normal((2, HEADS, 2, HEAD_DIM)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    cache = ts.KVCache.empty(2, HEADS, CAPACITY, HEAD_DIM, ts.bf16).append(*past)
    x = rng.standard_normal((2, 3, WIDTH)).astype(ml_dtypes.bfloat16)
    with ts.random.run(11):
        y, after = block(x, cache, heads=HEADS, p=rate)
    with ts.random.run(11):
        keys = [ts.random.key() for _ in range(3)]
    wanted = expected(x, weights, (narrow(past[0]), narrow(past[1])), keys, rate)
    assert y.dtype is ts.bf16
    assert int(after.length) == 5
    # Each of about ten roundings may fall the other way, by 2**-8 of its value, and is scaled by what follows.
    np.testing.assert_allclose(narrow(y), wanted, rtol=2.0**-6, atol=2.0**-6)
    exact = (narrow(y) == wanted).mean()
    assert exact > 0.8, "most elements have no rounding that could fall the other way"


def block_in_torch(torch: Any, x: Any, past: Any, weights: list[Any], keys: list[Any], rate: float) -> Any:
    """The block in f64 as PyTorch differentiates it: the same formulas, without any rounding."""

    def norm(y: Any) -> Any:
        return y / torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-5)

    def dropped(y: Any, key: Any) -> Any:
        kept = torch.from_numpy(keep_mask(np.asarray(key), tuple(y.shape), rate).astype(np.float64))
        return y * kept / (1.0 - rate) if rate else y

    wqkv, wo, wmlp_in, wmlp_out = weights
    x = norm(x)
    batch, length, _ = x.shape
    q, k, v = (x @ wqkv).reshape(batch, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
    k, v = (torch.cat([old, new], dim=2) for old, new in zip(past, (k, v), strict=True))
    total = k.shape[2]
    seen = torch.arange(total) <= torch.arange(length)[:, None] + total - length
    scores = (q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)).masked_fill(~seen, -math.inf)
    shares = torch.nn.functional.pad(torch.softmax(scores, -1), (0, CAPACITY - total))
    y = (dropped(shares, keys[0])[..., :total] @ v).permute(0, 2, 1, 3).reshape(batch, length, WIDTH)
    y = x + dropped(y @ wo, keys[1])
    inner = torch.nn.functional.gelu(norm(y) @ wmlp_in)
    return y + dropped(inner @ wmlp_out, keys[2])


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_L8_the_gradient_of_the_block_is_that_of_pytorch(rate: float) -> None:
    torch = pytest.importorskip("torch")
    scope = namespace()
    block, rng = scope["transformer_block"], np.random.default_rng(2)
    past = [rng.standard_normal((2, HEADS, 2, HEAD_DIM)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    x = rng.standard_normal((2, 3, WIDTH)).astype(ml_dtypes.bfloat16)
    seed = rng.standard_normal((2, 3, WIDTH)).astype(np.float32)

    def loss(x: Any, k: Any, v: Any) -> Any:
        cache = ts.KVCache.empty(2, HEADS, CAPACITY, HEAD_DIM, ts.bf16).append(k, v)
        y, after = block(x, cache, heads=HEADS, p=rate)
        return (y.cast(ts.f32) * seed).sum(), after.length

    with ts.random.run(11):
        (value, length), found = ts.jit(ts.value_and_grad(loss, (0, 1, 2), has_aux=True))(x, *past)
    with ts.random.run(11):
        eager, _ = ts.value_and_grad(loss, (0, 1, 2), has_aux=True)(x, *past)
    with ts.random.run(11):
        keys = [ts.random.key() for _ in range(3)]
    given = [torch.tensor(np.asarray(one).astype(np.float64), requires_grad=True) for one in (x, *past)]
    weights = [torch.tensor(scope[name].astype(np.float64)) for name in ("Wqkv", "Wo", "Wmlp_in", "Wmlp_out")]
    wanted = (block_in_torch(torch, given[0], given[1:], weights, keys, rate) * torch.from_numpy(seed)).sum()
    wanted.backward()
    assert int(length) == 5
    assert np.asarray(eager[0]).tobytes() == np.asarray(value).tobytes()
    # Some ten results in a row are stored in bf16, each within 2**-9 of its value.
    assert abs(float(value) - float(wanted.detach())) <= 10 * 2.0**-9 * np.abs(seed).sum()
    for own, exact in zip(found, given, strict=True):
        assert own.dtype is ts.bf16
        expected_gradient = exact.grad.numpy()
        error = np.linalg.norm(narrow(own) - expected_gradient) / np.linalg.norm(expected_gradient)
        assert error <= 10 * 2.0**-8


def test_L8_dropout_repeats_by_its_run_and_changes_without_one() -> None:
    block, x = namespace()["transformer_block"], np.ones((1, 4, WIDTH), ml_dtypes.bfloat16)
    cache = ts.KVCache.empty(1, HEADS, CAPACITY, HEAD_DIM, ts.bf16)

    def once(seed: int | None) -> bytes:
        with ts.random.run(seed):
            return np.asarray(block(x, cache, heads=HEADS, p=0.5)[0]).tobytes()

    assert once(3) == once(3)
    assert len({once(None) for _ in range(4)}) > 1
    assert "random" in block.effects


@pytest.mark.skipif(is_available(), reason="this machine has a GPU")
def test_L9_the_block_is_refused_where_nothing_says_what_to_do_without_a_gpu() -> None:
    strict = IMPORTS.replace("partial(tessera.device, otherwise=cpu)", "tessera.device")
    block = namespace(program=strict + BLOCK)["transformer_block"]
    cache = ts.KVCache.empty(1, HEADS, CAPACITY, HEAD_DIM, ts.bf16)
    with pytest.raises(DeviceError):
        block(np.ones((1, 4, WIDTH), ml_dtypes.bfloat16), cache, heads=HEADS, p=0.0)


def test_L8_the_block_compiles_for_a_gpu() -> None:
    strict = IMPORTS.replace("partial(tessera.device, otherwise=cpu)", "tessera.device")
    block = namespace(program=strict + BLOCK)["transformer_block"]
    cache = ts.KVCache.empty(1, HEADS, CAPACITY, HEAD_DIM, ts.bf16)
    lowered = block.lower(np.ones((1, 4, WIDTH), ml_dtypes.bfloat16), cache, heads=HEADS, p=0.25)
    assert "ptx_kernel" in lowered.llvm
    assert 'tessera.device = "gpu:0"' in lowered.graph


@pytest.mark.slow
def test_L2_the_block_runs_in_a_file_at_a_prompt_and_in_a_cell(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHON_HISTORY"] = os.devnull
    (tmp_path / "model.py").write_text(IMPORTS + BLOCK + "\n" + CALL, encoding="utf-8")

    def result(*command: str, typed: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *command], input=typed, capture_output=True, text=True, env=environment, check=False
        )
        found = [line for line in done.stdout.splitlines() if "result " in line]
        assert found, done.stderr
        return found[-1].rpartition("result ")[2]

    from_file = result(str(tmp_path / "model.py"))
    from_prompt = result("-i", "-q", typed=IMPORTS + BLOCK + "\n" + CALL)
    cell = namespace("<ipython-input-1-block>", IMPORTS + BLOCK)
    with ts.random.run(5):
        x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(ml_dtypes.bfloat16)
        out, cache = cell["transformer_block"](x, ts.KVCache.empty(2, 2, 4, 4, ts.bf16), heads=2, p=0.25)
    assert from_file == from_prompt == f"{np.asarray(out).tobytes().hex()} {int(cache.length)}"


def attend(q: Array, k: Array, v: Array, weights: Any, *, causal: bool, mask: Array | float = 0.0) -> Array:
    """Attention in f64 with a function of its weights."""
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(part.astype(np.float64), groups, axis=1) for part in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / math.sqrt(q.shape[3]) + mask
    if causal:
        seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    terms = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = terms.sum(-1, keepdims=True)
    return weights(terms / np.where(total == 0, 1.0, total)) @ v


SHAPES = {
    "plain": ((2, 3, 5, 8), (2, 3, 5, 8)),
    "grouped": ((1, 4, 3, 8), (1, 2, 9, 8)),
    "one query": ((2, 2, 1, 4), (2, 2, 7, 4)),
    "more queries than keys": ((1, 2, 6, 4), (1, 1, 4, 4)),
    "no keys": ((1, 2, 3, 4), (1, 2, 0, 4)),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_L8_weights_are_dropped_by_the_key_alone(name: str, causal: bool, backend: str) -> None:
    rng = np.random.default_rng(0)
    own, other = SHAPES[name]
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in (own, other, other))
    key = ts.random.key(9)
    rate = 0.375

    def program(q: Any, k: Any, v: Any, key: ts.Tensor[2, ts.u64]) -> Any:
        return ops.flash_attention(q, k, v, causal=causal, dropout=rate, key=key)

    given = [np.asarray(ts.jit(program, backend=backend, dynamic=dynamic)(q, k, v, key)) for dynamic in (False, True)]
    wanted = attend(q, k, v, lambda weights: drop(weights, key, rate), causal=causal)
    for one in (*given, np.asarray(program(q, k, v, key))):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)
    assert given[0].tobytes() == given[1].tobytes()


def test_L8_a_mask_is_added_before_weights_are_dropped() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    key = ts.random.key(4)
    given = ops.flash_attention(q, k, v, mask, dropout=0.5, key=key)
    added = np.where(mask, 0.0, -np.inf)
    wanted = attend(q, k, v, lambda weights: drop(weights, key, 0.5), causal=False, mask=added)
    np.testing.assert_allclose(np.asarray(given), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ((2, 3, 5, 4), (12, 7), (2, 5, 7)),
        ((2, 3, 5, 4), (4, 7), (2, 3, 5, 7)),
        ((2, 1, 5, 4), (4, 7), (2, 1, 5, 7)),
        ((3, 5, 12), (12, 7), (3, 5, 7)),
    ],
)
def test_heads_are_merged_where_the_head_dim_alone_does_not_fit(a: Any, b: Any, result: Any) -> None:
    rng = np.random.default_rng(0)
    x: Array = rng.standard_normal(a).astype(np.float32)
    w: Array = rng.standard_normal(b).astype(np.float32)
    merged = x.transpose(0, 2, 1, 3).reshape(2, 5, 12) if len(result) == 3 and len(a) == 4 else x
    for given in (ops.matmul(x, w), ts.jit(ops.matmul)(x, w)):
        assert given.shape == result
        np.testing.assert_allclose(np.asarray(given), merged @ w, rtol=1e-5, atol=1e-5)


def test_heads_that_fit_in_no_way_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot multiply"):
        ops.matmul(np.ones((2, 3, 5, 4), np.float32), np.ones((11, 7), np.float32))
