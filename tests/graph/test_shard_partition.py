"""Partitioned programs: those of all ranks, in lockstep, give what the whole program gives."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.arrays import Array
from tessera.ir.base.tape import Tape
from tessera.ir.graph.sharding.partition import PartitionReport, lower_composites, partition_tape
from tessera.runtime.ranks.world import mesh_of
from tessera.types.sharding import Sharding
from tests.graph.lockstep import cut, join, run_ranks, run_whole, shape_of, simulate

of = Sharding.of
MESHES: list[dict[str, int]] = [{"dp": 2}, {"dp": 4}, {"dp": 2, "tp": 2}]


def trace(function: Callable[..., Any], *arrays: Any) -> Tape:
    return lower_composites(ts.jit(function).trace(*arrays).tape)


def normal(rng: np.random.Generator, *shapes: Sequence[int]) -> list[Array]:
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def compare(
    tape: Tape,
    arrays: Sequence[Array],
    mesh: dict[str, int],
    inputs: Sequence[Sharding | None],
    outputs: Sequence[Sharding | None] = (),
) -> PartitionReport:
    """Partition, run all ranks, and compare with the whole; sums are of parts, in another order."""
    local, report = partition_tape(tape, mesh, inputs, outputs)
    shapes = [shape_of(tape, value) for value in tape.outputs]
    found = simulate(local, mesh, arrays, [one for _, one in report.inputs], report.outputs, shapes)
    for ours, theirs in zip(found, run_whole(tape, arrays), strict=True):
        assert ours.dtype == theirs.dtype
        if not np.issubdtype(theirs.dtype, np.floating):
            np.testing.assert_array_equal(ours, theirs)
            continue
        longest = max(array.size for array in arrays)
        bound = float(np.finfo(np.float32).eps) * (longest + 16)
        scale = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0))
        np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * scale)
    return report


def random_sharding(rng: np.random.Generator, shape: Sequence[int], mesh: dict[str, int]) -> Sharding:
    """Each axis along some dim that it divides, or none."""
    dims: list[list[str]] = [[] for _ in shape]
    left = list(shape)
    for axis, ranks in mesh.items():
        places = [at for at, size in enumerate(left) if size and size % ranks == 0]
        if places and rng.random() < 0.8:
            at = int(rng.choice(places))
            dims[at].append(axis)
            left[at] //= ranks
    return Sharding.of(*dims)


def layer(x: Any, w: Any, b: Any) -> Any:
    return ops.softmax(ops.gelu(x @ w + b), axis=-1)


def normed(x: Any, g: Any, b: Any) -> Any:
    return ops.layer_norm(x, g, b) if hasattr(ops, "layer_norm") else ops.layernorm_safe(x, g, b)


def loss(x: Any, w: Any, y: Any) -> Any:
    return ((ops.tanh(x @ w) - y) ** 2).mean()


PROGRAMS: list[tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = [
    ("layer", layer, [(8, 4), (4, 8), (8,)]),
    ("statistics", lambda x: (x.mean(0), ops.var(x, axis=1), x.max(), ops.logsumexp(x, axis=0)), [(8, 12)]),
    ("moves", lambda x: ops.transpose(x.reshape((4, 2, 8)), (2, 0, 1))[:, 1:3], [(8, 8)]),
    ("joined", lambda x, y: ops.concat([x, y * 2.0], axis=1) + 1.0, [(8, 4), (8, 4)]),
    ("scans", lambda x: (ops.cumsum(x, axis=0), ops.sort(x, axis=1), ops.argmax(x, axis=1)), [(8, 4)]),
    ("gradient", ts.grad(loss, argnums=(0, 1)), [(8, 4), (4, 8), (8, 8)]),
    ("triangle", lambda x: ops.tril(x @ ops.transpose(x)), [(8, 4)]),
    ("products", lambda x, y: ops.einsum("bij,bjk->bik", x, y), [(4, 8, 4), (4, 4, 8)]),
    ("attention", lambda q, k, v: ops.attention(q, k, v, causal=True), [(4, 4, 8, 4), (4, 2, 8, 4), (4, 2, 8, 4)]),
    ("picked", lambda x: x[::2, 1] + ops.flip(x, axis=0)[:4, 2], [(8, 4)]),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "function", "shapes"), PROGRAMS, ids=[name for name, *_ in PROGRAMS])
def test_a_partitioned_program_gives_the_whole(name: str, function: Any, shapes: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = normal(rng, *shapes)
    tape = trace(function, *arrays)
    for mesh in MESHES:
        inputs = [random_sharding(rng, array.shape, mesh) for array in arrays]
        outputs = [random_sharding(rng, shape_of(tape, value), mesh) for value in tape.outputs]
        compare(tape, arrays, mesh, inputs)
        compare(tape, arrays, mesh, inputs, outputs)


UNARY = (ops.exp, ops.tanh, ops.relu, lambda x: ops.softmax(x, axis=0), lambda x: x - x.mean(1, keepdims=True))


def random_program(seed: int) -> Callable[..., Any]:
    """Some matrices of sizes 4 and 8, combined by random ops; the same for the same seed."""

    def program(*given: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = list(given)
        for _ in range(int(rng.integers(3, 9))):
            x = values[int(rng.integers(len(values)))]
            kind = int(rng.integers(6))
            same = [one for one in values if tuple(one.shape) == tuple(x.shape)]
            fits = [one for one in values if one.shape[0] == x.shape[1]]
            if kind == 0 and fits:
                values.append(x @ fits[int(rng.integers(len(fits)))] * 0.25)
            elif kind == 1:
                values.append(ops.transpose(x))
            elif kind == 2:
                values.append(x + same[int(rng.integers(len(same)))])
            elif kind == 3:
                values.append(x * x.max(int(rng.integers(2)), keepdims=True))
            elif kind == 4:
                values.append(ops.concat([x, same[0]], axis=int(rng.integers(2)))[: x.shape[0], : x.shape[1]])
            else:
                values.append(UNARY[int(rng.integers(len(UNARY)))](x))
        return values[-1], values[-2].sum(0)

    return program


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_agree_with_one_rank(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    arrays = [one * np.float32(0.5) for one in normal(rng, *[tuple(rng.choice([4, 8], 2)) for _ in range(3)])]
    tape = trace(random_program(seed), *arrays)
    mesh = MESHES[seed % len(MESHES)]
    inputs = [random_sharding(rng, array.shape, mesh) for array in arrays]
    outputs = [random_sharding(rng, shape_of(tape, v), mesh) if rng.random() < 0.5 else None for v in tape.outputs]
    compare(tape, arrays, mesh, inputs, outputs)


DTYPES = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64)
NARROW, WIDE = (ts.i8, ts.u8, ts.i16), (ts.i32, ts.u32, ts.i64)


def random_integer_program(seed: int) -> Callable[..., Any]:
    """Matrices of integers that wrap, and are widened, narrowed, divided and shifted between sums."""

    def program(*given: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = list(given)
        for _ in range(int(rng.integers(4, 9))):
            x = values[int(rng.integers(len(values)))]
            kind = int(rng.integers(9))
            alike = [one for one in values if one.shape == x.shape and one.dtype is x.dtype]
            fits = [one for one in values if one.shape[0] == x.shape[1] and one.dtype is x.dtype]
            y = alike[int(rng.integers(len(alike)))]
            if kind <= 1 and fits:
                values.append(x @ fits[int(rng.integers(len(fits)))])
            elif kind == 2:
                values.append(x - y)
            elif kind == 3:
                values.append(x * y + x)
            elif kind == 4:
                values.append(x.astype(WIDE[int(rng.integers(3))]))
            elif kind == 5:
                values.append(x.astype(NARROW[int(rng.integers(3))]))
            elif kind == 6:
                values.append((x.sum(int(rng.integers(2)), keepdims=True) - y).astype(x.dtype))
            elif kind == 7:
                values.append(x // 3 if rng.random() < 0.5 else ops.transpose(x))
            else:
                values.append(ops.where(x > y, x, y * 2))
        return values[-1], values[-2].sum(0), (values[-1].astype(ts.i64) - values[0].astype(ts.i64).sum()).sum()

    return program


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_of_integers_agree_with_one_rank_exactly(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    dtype = DTYPES[seed % len(DTYPES)]
    arrays = [rng.integers(0, 100, tuple(rng.choice([4, 8], 2))).astype(dtype) for _ in range(3)]
    tape = trace(random_integer_program(seed), *arrays)
    mesh = MESHES[seed % len(MESHES)]
    inputs = [random_sharding(rng, array.shape, mesh) for array in arrays]
    outputs = [random_sharding(rng, shape_of(tape, v), mesh) if rng.random() < 0.5 else None for v in tape.outputs]
    compare(tape, arrays, mesh, inputs, outputs)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int32])
def test_terms_of_integers_that_have_wrapped_are_summed_before_they_are_widened(dtype: Any) -> None:
    x, y = (np.array([row] * 64, dtype) for row in ([9, 0], [1, 2]))
    w = np.ones((2, 64), dtype)
    big = np.iinfo(dtype).max // 2 + 1
    tape = trace(lambda x, w, y: ((x @ w) * int(big) - (y @ w)).astype(ts.i64).sum(), x, w, y)
    compare(tape, [x, w, y], {"a": 2}, [of(None, "a"), of("a", None), of(None, "a")])


def test_scalars_are_taken_and_given() -> None:
    x, scale = np.arange(8, dtype=np.float32), np.array(3.0, np.float32)
    tape = trace(lambda x, scale: (x * scale, x.sum() * scale), x, scale)
    for sharding in (of(), Sharding((), ("dp",))):
        compare(tape, [x, scale], {"dp": 2}, [of("dp"), sharding], [None, of()])


def test_terms_are_taken_as_an_argument() -> None:
    rng = np.random.default_rng(0)
    arrays = normal(rng, (8, 4), (4, 8))
    tape = trace(lambda x, w: ops.relu(x @ w), *arrays)
    report = compare(tape, arrays, {"dp": 2}, [of(None, None, partial=["dp"]), None])
    assert [one.call for one in report.collectives] == ["all_reduce"]


def test_a_constraint_in_a_program_holds() -> None:
    def function(x: Any, w: Any) -> Any:
        y = ts.dist.shard(x @ w, "[{}, {dp}]")
        return ops.exp(y)

    arrays = normal(np.random.default_rng(0), (8, 4), (4, 8))
    report = compare(trace(function, *arrays), arrays, {"dp": 2}, [of("dp", None), None])
    assert str(report.outputs[0]) == "[{}, {dp}]"
    assert next(one for name, one in report.values if name.startswith("shard")) == of(None, "dp")


def test_what_ran_whole_and_every_collective_is_in_the_report() -> None:
    arrays = normal(np.random.default_rng(0), (8, 4), (4, 8), (8, 4))
    tape = trace(lambda x, a, b: ops.relu(x @ a) @ b, *arrays)
    report = compare(tape, arrays, {"tp": 2}, [None, of(None, "tp"), None])
    assert report.bytes == 8 * 4 * 4
    text = str(report)
    assert "argument b: [{tp}, {}]" in text
    assert "all_reduce over tp of `matmul" in text
    assert "partitioned over mesh(tp=2): 1 collective, a rank sends 128 bytes" in text


def test_collectives_in_a_program_for_whole_tensors_are_refused() -> None:
    with ts.dist.mesh(dp=2):
        tape = ts.jit(lambda x: ts.dist.all_reduce(x, "dp")).trace(np.ones(4, np.float32)).tape
    with pytest.raises(ShardingError, match="`all_reduce` over mesh axis `dp` is in a program for whole tensors"):
        partition_tape(tape, {"dp": 2}, [None])


def test_collectives_in_a_loop_of_such_a_program_are_refused() -> None:
    def function(x: Any) -> Any:
        return ts.scan(lambda c, row: (c + ts.dist.all_reduce(row, "dp"), c), x[0] * 0.0, x)[0]

    def nested(x: Any) -> Any:
        return ts.scan(lambda c, _: (c + function(x), c), x[0] * 0.0, x)[0]

    x = np.ones((4, 2), np.float32)
    with ts.dist.mesh(dp=2):
        tapes = [ts.jit(one).trace(x).tape for one in (function, nested)]
    for tape in tapes:
        with pytest.raises(ShardingError, match="`all_reduce` over mesh axis `dp` is in a program for whole tensors"):
            partition_tape(tape, {"dp": 2}, [of("dp", None)])


TWICE = [of(None, None, partial=["a"]), of(None, None), of("a", None), of(None, "a")]


@pytest.mark.parametrize("first", TWICE, ids=str)
@pytest.mark.parametrize("second", TWICE, ids=str)
def test_a_value_may_be_two_outputs_in_different_states(first: Sharding, second: Sharding) -> None:
    arrays = normal(np.random.default_rng(0), (4, 8), (8, 4))
    inputs = [of(None, "a"), of("a", None)]

    def twice(x: Any, w: Any) -> Any:
        y = x @ w
        return y, y

    tape = trace(twice, *arrays)
    local, report = partition_tape(tape, {"a": 2}, inputs, [first, second])
    ranks = mesh_of((("a", 2),))
    given = [cut(array, one, ranks) for array, one in zip(arrays, inputs, strict=True)]
    for parts, one in zip(run_ranks(local, ranks, given), report.outputs, strict=True):
        whole = sum(parts) if one.partial else join(parts, one, ranks, (4, 4))
        np.testing.assert_allclose(np.asarray(whole), arrays[0] @ arrays[1], rtol=1e-5, atol=1e-5)
    assert report.outputs == (first, second)


def test_what_is_no_sum_cannot_be_terms() -> None:
    x = np.ones(8, np.float32)
    terms = of(None, partial=["a"])
    constrained = trace(lambda x: ts.dist.shard(ops.exp(x), "[{}] partial {a}") * 2.0, x)
    with pytest.raises(ShardingError, match=r"`exp.*` cannot be terms of a sum over 2 ranks"):
        partition_tape(constrained, {"a": 2}, [of("a")])

    def twice(x: Any) -> Any:
        y = ops.exp(x)
        return y, y

    with pytest.raises(ShardingError, match="cannot be terms of a sum over 2 ranks"):
        partition_tape(trace(twice, x), {"a": 2}, [of("a")], [of("a"), terms])


def test_loops_run_on_whole_operands() -> None:
    def function(x: Any, w: Any) -> Any:
        total, _ = ts.scan(lambda carry, row: (carry + row @ w, carry), ops.zeros((8,)), x)
        return total

    arrays = normal(np.random.default_rng(0), (8, 4), (4, 8))
    report = compare(trace(function, *arrays), arrays, {"dp": 2}, [of("dp", None), None])
    assert report.whole == ("scan",)


def block_loss(p: Any, x: Any, y: Any) -> Any:
    """A transformer of one block on tokens."""
    h = ops.take(p["table"], x, axis=0)
    z = ops.layernorm(h) @ p["qkv"]
    q, k, v = (z.reshape((4, 8, 3, 2, 8))[:, :, at].transpose((0, 2, 1, 3)) for at in range(3))
    h = h + ops.attention(q, k, v, causal=True).transpose((0, 2, 1, 3)).reshape((4, 8, 16)) @ p["o"]
    h = h + ops.gelu(ops.layernorm(h) @ p["up"]) @ p["down"]
    return ops.cross_entropy((ops.layernorm(h) @ p["head"]).reshape((32, 32)), y.reshape((32,))).mean()


def block_step(p: Any, x: Any, y: Any) -> Any:
    value, gradient = ts.value_and_grad(block_loss)(p, x, y)
    return value, {name: p[name] - 0.1 * gradient[name] for name in p}


def test_a_step_of_a_transformer_has_the_collectives_of_the_field() -> None:
    rng = np.random.default_rng(0)
    shapes = {"table": (32, 16), "qkv": (16, 48), "o": (16, 16), "up": (16, 64), "down": (64, 16), "head": (16, 32)}
    weights = {name: normal(rng, shape)[0] * np.float32(0.2) for name, shape in shapes.items()}
    tokens = [rng.integers(0, 32, (4, 8)) for _ in range(2)]
    tape = trace(block_step, weights, *tokens)
    arrays = [*(weights[name] for name in shapes), *tokens]
    cut = {"up": of(None, "tp"), "down": of("tp", None)}
    rows = [of("dp", None)] * 2
    inputs = [*(cut.get(name, of(None, None)) for name in shapes), *rows]
    assert [shape_of(tape, value) for value in tape.inputs] == [array.shape for array in arrays]
    # Gradients are reduced over the data once each; the two products that are cut over `tp` are reduced forwards and
    # backwards.
    report = compare(tape, arrays, {"dp": 2, "tp": 2}, inputs)
    over = [one.axis for one in report.collectives if one.call == "all_reduce"]
    assert over.count("dp") >= len(shapes) - 1
    assert over.count("tp") == 2
    assert len(report.collectives) <= 16
    assert not report.whole
    assert not report.conflicts
