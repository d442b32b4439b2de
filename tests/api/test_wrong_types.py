"""Public functions called with what they do not take: an error with a code and a way out, none from inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.error import TesseraError
from tessera.types.schedule import Space

X = np.ones((4, 4), np.float32)


@ts.jit
def double(a: ts.Tensor["N", "M", ts.f32]) -> Any:
    return a + a


@kernel
def halve(a: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(a, rows=T.m, cols=T.n) * 0.5


@kernel
def take_unannotated(a) -> Any:  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return tile.load(a, tile.context().m)


def enter(scope: Any) -> None:
    with scope:
        pass


CACHE: Any = ts.KVCache.empty(1, 2, 8, 4)
# Without types, as a program is written that nobody has checked.
T: Any = ts
D: Any = double
H: Any = halve
S: Any = Space
WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    # Effects
    "suspend(3)": ("T0108", lambda: enter(T.effects.suspend(3))),
    "suspend(['io'])": ("T0108", lambda: enter(T.effects.suspend(["io"]))),
    "suspend()": ("T0108", lambda: enter(T.effects.suspend())),
    "suspend('io', defer=1)": ("T0202", lambda: enter(T.effects.suspend("io", defer=1))),
    "seeded('a')": ("T0208", lambda: T.effects.seeded("a")),
    "deterministic(3)": ("T0202", lambda: T.deterministic(3)),
    "deterministic(seed=1.5)": ("T0208", lambda: T.deterministic(seed=1.5)),
    "infer(3)": ("T0202", lambda: T.effects.infer(3)),
    "Effects(3)": ("T0108", lambda: T.effects.Effects(3)),
    "Effects('io')": ("T0108", lambda: T.effects.Effects("io")),
    "Effects([1])": ("T0108", lambda: T.effects.Effects([1])),
    "may_swap(3, 4)": ("T0108", lambda: T.effects.may_swap(3, 4)),
    # jit and its options
    "jit(3)": ("T0202", lambda: T.jit(3)),
    "jit(np.exp)": ("T0202", lambda: T.jit(np.exp)),
    "jit(dict)": ("T0202", lambda: T.jit(dict)),
    "jit(static_argnames=3)": ("T0202", lambda: T.jit(static_argnames=3)),
    "jit(dynamic='yes')": ("T0202", lambda: T.jit(dynamic="yes")(len)),
    "jit(constraints=3)": ("T0105", lambda: T.jit(constraints=3)),
    "jit(constraints=array)": ("T0105", lambda: T.jit(constraints=X)),
    "jit(policy=3)": ("T0107", lambda: T.jit(policy=3)),
    "jit(backend=3)": ("T0402", lambda: T.jit(backend=3)),
    "jit(backend='tpu')": ("T0402", lambda: T.jit(D.function, backend="tpu")(X)),
    "jit(fusion='no')": ("T0402", lambda: T.jit(fusion="no")),
    "jit(features='avx2')": ("T0402", lambda: T.jit(features="avx2")),
    "jit(overrides=3)": ("T0402", lambda: T.jit(overrides=3)),
    "jit(nonsense=3)": ("T0402", lambda: T.jit(nonsense=3)),
    "Options(debug=1)": ("T0402", lambda: T.Options(debug=1)),
    "Options.parse('x')": ("T0402", lambda: T.Options.parse("x")),
    "f(3)": ("T0701", lambda: D(3)),
    "f.lower('x')": ("T0701", lambda: D.lower("x")),
    "f.explain(None)": ("T0701", lambda: D.explain(None)),
    # Kernels and schedules
    "kernel(3)": ("T0401", lambda: T.kernel(3)),
    "Kernel('x')": ("T0202", lambda: T.Kernel("x")),
    "k(3)": ("T0701", lambda: H(3)),
    "k(x) without annotation": ("T0701", lambda: take_unannotated(X)),
    "k.interpret(3)": ("T0701", lambda: H.interpret(3)),
    "k.run_tiles(3)": ("T0701", lambda: H.run_tiles(3)),
    "k.check(3)": ("T0701", lambda: H.check(3)),
    "k.check(machine='sm_1')": ("T0202", lambda: H.check(X, machine="sm_1")),
    "k.with_schedule(3)": ("T0401", lambda: H.with_schedule(3)),
    "k.register(3)": ("T0202", lambda: H.register(3)),
    "k.defvjp(3)": ("T0202", lambda: H.defvjp(3)),
    "autotune(space=3)": ("T0401", lambda: T.kernel.autotune(space=3)),
    "autotune(metric=3)": ("T0401", lambda: T.kernel.autotune(space={"BM": [64]}, metric=3)),
    "autotune(budget_ms='x')": ("T0401", lambda: T.kernel.autotune(space={"BM": [64]}, budget_ms="x")),
    "Schedule(block=2.5)": ("T0401", lambda: T.Schedule(block=2.5)),
    "Schedule(block=(1,) * 4)": ("T0401", lambda: T.Schedule(block=(1, 1, 1, 1))),
    "Schedule(warps='x')": ("T0401", lambda: T.Schedule(warps="x")),
    "Schedule(warps=0)": ("T0401", lambda: T.Schedule(warps=0)),
    "Schedule(swizzle=array)": ("T0401", lambda: T.Schedule(swizzle=X)),
    "Schedule(max_registers='x')": ("T0401", lambda: T.Schedule(max_registers="x")),
    "Schedule.from_json('x')": ("T0401", lambda: T.Schedule.from_json("x")),
    "Schedule.from_json('[]')": ("T0401", lambda: T.Schedule.from_json("[]")),
    "Space.of(3)": ("T0401", lambda: S.of(3)),
    # Policies and formats
    "policy(3)": ("T0107", lambda: enter(T.policy(3))),
    "Policy(rounding=array)": ("T0107", lambda: T.Policy(rounding=X)),
    "Policy(storage=3)": ("T0107", lambda: T.Policy(storage=3)),
    "Policy.joined(3)": ("T0107", lambda: T.Training().joined(3)),
    "accum('f33')": ("T0107", lambda: T.accum("f33")),
    "loss_scale(None)": ("T0107", lambda: T.loss_scale(None)),
    "loss_scale(-1)": ("T0107", lambda: T.loss_scale(-1)),
    "scaled('x')": ("T0107", lambda: T.scaled("x")),
    "NVFP4(3)": ("T0107", lambda: T.NVFP4(3)),
    "LossScaler(3)": ("T0107", lambda: T.LossScaler(3)),
    "LossScaler(largest='x')": ("T0107", lambda: T.LossScaler(largest="x")),
    "LossScaler.update('x')": ("T0202", lambda: T.LossScaler().update("x")),
    "LossScaler.step(x, 3)": ("T0202", lambda: T.LossScaler().step(X, 3)),
    "Quantized(block=3)": ("T0202", lambda: T.Quantized(X, X, block=3)),
    # Tensors, states and trees
    "Tensor[..., f32]": ("T0104", lambda: T.Tensor[..., T.f32]),
    "Tensor['B', np.complex64]": ("T0104", lambda: T.Tensor["B", np.complex64]),
    "array([[1], [2, 3]])": ("T0701", lambda: T.array([[1], [2, 3]])),
    "astype(np.datetime64)": ("T0102", lambda: T.ones(3).astype(np.datetime64)),
    "array(object())": ("T0701", lambda: T.array(object())),
    "zeros('x')": ("T0101", lambda: T.zeros("x")),
    "Tensor.of(x, 'nonsense')": ("T0102", lambda: T.Tensor.of(X, "nonsense")),
    "Tensor.of(x, 3)": ("T0102", lambda: T.Tensor.of(X, 3)),
    "Tensor.empty(3, f32)": ("T0701", lambda: T.Tensor.empty(3, T.f32)),
    "Tensor.from_numpy(3)": ("T0701", lambda: T.Tensor.from_numpy(3)),
    "Tensor.from_buffer(3)": ("T0701", lambda: T.Tensor.from_buffer(3)),
    "KVCache.append(3, 3)": ("T0201", lambda: CACHE.append(3, 3)),
    "KVCache.prune('x')": ("T0202", lambda: CACHE.prune("x")),
    "KVCache(length=array)": ("T0101", lambda: T.KVCache(CACHE.K, CACHE.V, np.ones(2, np.int64))),
    "register_tree(3)": ("T0204", lambda: T.register_tree(3, len, len)),
    "register_tree(split=3)": ("T0204", lambda: T.register_tree(type("New", (), {}), 3, len)),
    # Places, other ranks, checks, epilogues
    "device(3)": ("T0202", lambda: enter(T.device(3))),
    "gpu['x']": ("T0202", lambda: T.gpu["x"]),
    "prefetch(x, into=array)": ("T0202", lambda: enter(T.prefetch(X, into=X))),
    "mesh(tp='x')": ("T0202", lambda: enter(T.dist.mesh(tp="x"))),
    "mesh(tp=0)": ("T0202", lambda: enter(T.dist.mesh(tp=0))),
    "all_reduce(x, 3)": ("T0201", lambda: T.dist.all_reduce(X, 3)),
    "all_reduce(op=array)": ("T0201", lambda: T.dist.all_reduce(X, "tp", X)),
    "all_gather(3, 'tp')": ("T0201", lambda: T.dist.all_gather(3, "tp")),
    "verify.numerics(3)": ("T0305", lambda: T.verify.numerics(3)),
    "verify.numerics(inputs=3)": ("T0305", lambda: T.verify.numerics(inputs=3)),
    "epilogue.chain(3)": ("T0202", lambda: T.ops.epilogue.chain(3)),
    "epilogue.chain([3])": ("T0403", lambda: T.ops.epilogue.chain([3])),
    "epilogue.act(array)": ("T0403", lambda: T.ops.epilogue.act(X)),
    "io_callback(3)": ("T0201", lambda: T.io_callback(3)),
    "debug_print(3)": ("T0201", lambda: T.debug_print(3)),
    "shape_trace(3)": ("T0202", lambda: T.shape_trace(3)),
    "fori_loop(0, 3, 4, x)": ("T0202", lambda: T.fori_loop(0, 3, 4, X)),
    "cond(x, 3, 4)": ("T0202", lambda: T.cond(True, 3, 4)),
    "cuda.array(x, 'x')": ("T0102", lambda: T.cuda.array(X, "x")),
    "cuda.empty(3, f32)": ("T0701", lambda: T.cuda.empty(3, T.f32)),
    "cuda.write(3, x)": ("T0701", lambda: T.cuda.write(3, X)),
    "cuda.stream('x')": ("T0701", lambda: enter(T.cuda.stream("x"))),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_argument_is_reported_with_its_code_and_a_fix(call: str) -> None:
    code, wrong = WRONG[call]
    with pytest.raises(TesseraError) as caught:
        wrong()
    assert caught.value.code == code
    assert caught.value.fix is not None, f"{caught.value}\nsays nothing of a way out"
    assert "object has no attribute" not in caught.value.message, "a message of Python's own"


JUNK: tuple[Any, ...] = (
    3, 2.5, "nonsense", None, object(), [1, "a"], {"a": 1}, (), -1, True, X, b"x", float("nan"), 1 << 70, type, ts.f32,
)  # fmt: skip
MODULES = {"ts": ts, "effects": ts.effects, "dist": ts.dist, "verify": ts.verify}
# Loops that never end, prints, and the errors themselves, whose arguments are ours.
LEFT_OUT = {"while_loop", "fori_loop", "debug_print", "io_callback", "TesseraError", "InternalError"}
PUBLIC = {
    f"{place}.{name}": getattr(module, name)
    for place, module in MODULES.items()
    for name in module.__all__
    if name not in LEFT_OUT and callable(getattr(module, name)) and not inspect.ismodule(getattr(module, name))
}


def with_signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", [name for name, function in PUBLIC.items() if with_signature(function)])
def test_no_junk_brings_out_an_error_from_inside(name: str) -> None:
    function = PUBLIC[name]
    parameters = list(inspect.signature(function).parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [item for item in parameters if item.default is item.empty and item.kind in kinds]
    named = [item.name for item in parameters if item.default is not item.empty and item.kind is not kinds[0]]
    has_more = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    for junk in JUNK:
        calls: list[tuple[list[Any], dict[str, Any]]] = [([junk] * (len(needed) + has_more), {})]
        calls += [([X, *[junk] * (len(needed) - 1)], {})] if len(needed) > 1 else []
        calls += [([X] * len(needed), {option: junk}) for option in named]
        for given, keywords in calls:
            try:
                made = function(*given, **keywords)
                if hasattr(made, "__enter__"):
                    enter(made)
            except TesseraError:
                continue


def test_a_container_whose_split_gives_no_pair_is_named() -> None:
    class Box:
        """A container that is declared wrongly."""

    ts.register_tree(Box, lambda value: 3, lambda data, children: Box())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TesseraError, match=r"`split` of `Box` must return \(children, data\), got 3"):
        D(Box())
