"""Effects of functions: inferred from what they call, shown on signatures, carried down all four IRs."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test as foreign

import tessera as ts
from tessera import Tensor, f32, u64
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.compiler.compile import lower_tape, standard_library
from tessera.compiler.options import Options
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.effects import declared_effects, effects_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Stages
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.passes.infer_effects import infer_effects
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.target.architectures import host_machine
from tessera.types.effect import ALL, PURE, Effects

X = np.ones(4, np.float32)


def cache() -> ts.KVCache:
    return ts.KVCache.empty(1, 2, 8, 4)


def rows(count: int = 1) -> Any:
    return ts.ones((1, 2, count, 4))


def test_a_function_that_draws_says_so_in_its_signature() -> None:
    @ts.jit
    def drop(x: Tensor["N", f32], key: Tensor[2, u64]) -> Tensor["N", f32]:
        return ts.random.dropout(x, key, 0.5)

    drop(X, ts.random.key(0))
    assert drop.effects == {"random"}
    assert repr(drop).splitlines()[0].endswith('-> Tensor["N", f32] effects {random}')
    assert repr(drop).splitlines()[1].endswith(" random")


def test_a_declaration_has_effects_before_any_call() -> None:
    @ts.jit
    def drop(x: Tensor["N", f32], key: Tensor[2, u64], rate: float = 0.5):
        return ts.random.dropout(x, key, rate)

    assert drop.effects == {"random"}
    assert drop.cache_info().misses == 0
    assert "effects" not in repr(drop)  # showing a function does not run it
    assert ts.jit(lambda x: ts.random.dropout(x, ts.random.key(0), 0.5)).effects == set()
    assert str(drop.explain(X, ts.random.key(0))).splitlines()[0].endswith("-> ([N] f32) random")


def test_a_declared_cache_is_a_state_before_any_call() -> None:
    @ts.jit
    def step(cache: ts.KVCache["B", "H", "S", "D", f32], k: Tensor["B", "H", 1, "D", f32]):
        return cache.append(k, k)

    assert step.effects == {"state(cache)"}
    declared = step.trace()
    rows = ts.ones((1, 2, 1, 4))
    assert declared.tape.inputs == step.trace(ts.KVCache.empty(1, 2, 8, 4), rows).tape.inputs
    assert step(ts.KVCache.empty(1, 2, 8, 4), rows).length.item() == 1


PIECES: dict[str, tuple[Any, set[str]]] = {
    "pure": (lambda x, key: x + 1.0, set()),
    "draw": (lambda x, key: ts.random.dropout(x, key, 0.5), {"random"}),
    "say": (lambda x, key: (ts.debug_print("x"), x)[1], {"io"}),
    "fresh": (lambda x, key: x + ts.random.uniform(ts.random.key(), x.shape), {"io", "random"}),
    "sum": (lambda x, key: ts.dist.all_reduce(x, "dp"), {"collective"}),
}


@given(st.lists(st.sampled_from(sorted(PIECES)), max_size=5), st.booleans())
def test_a_composite_has_the_union_of_its_parts(names: list[str], inside: bool) -> None:
    def composite(x: Any, key: Any) -> Any:
        for name in names:
            x = PIECES[name][0](x, key)
        return x

    def looped(x: Any, key: Any) -> Any:
        return ts.fori_loop(0, 2, lambda _, v: composite(v, key), x)

    with ts.dist.mesh(dp=1):
        traced = ts.jit(looped if inside else composite).trace(X, ts.random.key(0))
    assert traced.effects == PURE.join(*(PIECES[name][1] for name in names))
    assert infer_effects(from_tape(traced.tape).ops.first) == traced.effects  # pyright: ignore[reportArgumentType]


def test_a_state_goes_by_the_name_of_its_argument() -> None:
    @ts.jit
    def block(x: Any, store: ts.KVCache) -> Any:
        return store.append(x, x).prune(4).prefetch()

    assert block.trace(rows(), cache()).effects == {"state(store)"}


def test_states_of_two_arguments_in_a_loop_and_of_nobody() -> None:
    def both(pair: dict[str, ts.KVCache], x: Any) -> Any:
        grown = ts.fori_loop(0, 2, lambda _, c: c.append(x, x), pair["a"])
        return grown.offload(), ts.cond(x.sum() > 0.0, lambda: pair["b"].append(x, x), lambda: pair["b"])

    traced = ts.jit(both).trace({"a": cache(), "b": cache()}, rows())
    assert traced.effects == {"state(pair['a'])", "state(pair['b'])"}
    grown = ts.jit(
        lambda own: ts.while_loop(lambda c: c.length < 3, lambda c: c.append(c.K[:, :, :1], c.V[:, :, :1]), own)
    )
    assert grown.trace(cache()).effects == {"state(own)"}
    made = ts.jit(lambda x: cache().append(x, x)).trace(rows())
    assert made.effects == {"state"}


def test_state_ops_are_state_effects() -> None:
    for name in ("kv_append", "kv_prune", "kv_offload", "kv_prefetch"):
        assert REGISTRY[name].effects == {"state"}
        assert not REGISTRY[name].is_mergeable


def test_moving_a_cache_changes_nothing_in_it() -> None:
    grown = cache().append(rows(3), rows(3))
    moved = ts.jit(lambda c: c.offload().prefetch(into="shared"))(grown)
    np.testing.assert_array_equal(np.asarray(moved.K), np.asarray(grown.K))
    assert moved.length.item() == 3


@ts.kernel
def dropped(x: ts.KTile["M", "N", f32]) -> Any:
    """A kernel that draws."""
    T = ts.tile.context()
    return ts.tile.dropout_in_kernel(ts.tile.load(x, rows=T.m, cols=T.n), 0.5)


def test_a_kernel_that_draws_makes_its_callers_random_and_an_unknown_one_does_anything() -> None:
    f = ts.jit(lambda x, key: dropped(x, key=key))
    x, key = np.ones((4, 8), np.float32), ts.random.key(0)
    assert f.trace(x, key).effects == {"random"}
    assert {"random"} in declared_in(f.lower(x, key).tile).values()
    assert REGISTRY["kernel_call"].effects_for({"kernel": "nobody:0"}) == ALL


def test_an_op_of_another_dialect_has_every_effect() -> None:
    assert effects_of(foreign.TestOp()) == ALL


def test_text_of_every_level_is_read_without_parsing_it() -> None:
    @ts.jit
    def f(x: Tensor["N", f32], key: Tensor[2, u64]):
        ts.debug_print("x = {}", x)
        return ts.random.dropout(x, key, 0.5)

    texts = f.lower(X, ts.random.key(0))
    found = ts.effects.infer(texts.graph)
    assert found == {"main": {"io", "random"}}
    assert ts.effects.infer(texts.schedule)["main"].covers({"io", "random"})
    assert all(effects == {"memory"} for effects in ts.effects.infer(texts.tile).values())
    assert ts.effects.infer("tgraph.func @f() {\n  foreign.op\n}") == {"f": ALL}


def declared_in(text: str) -> dict[str, Effects | None]:
    functions = symbol_table(parse_module(text))
    return {name: declared_effects(function) for name, function in functions.items()}


def test_the_attribute_is_the_same_at_all_four_levels() -> None:
    @ts.jit
    @ts.deterministic(seed=3)
    def f(x: Tensor["N", f32], key: Tensor[2, u64]):
        return ts.random.dropout(x, key, 0.5)

    texts = f.lower(X, ts.random.key(0))
    promise = 'tessera.deterministic = {seed = 3}, tessera.effects = ["random"]'
    for text in (texts.graph, texts.schedule):
        heads = re.findall(r"(?:tgraph.func|tsched.module) @main.*", text)
        assert heads
        assert all(promise in head for head in heads)
    tiles, targets = declared_in(texts.tile), declared_in(texts.target)
    assert tiles == targets
    assert {"random"} in tiles.values()


def softmaxes(x: Any, w: Any) -> Any:
    return ts.ops.softmax(x @ w, axis=-1) + ts.ops.sum(x, axis=1, keepdims=True)


@pytest.mark.parametrize(("backend", "features"), [("cpu", ()), ("cuda", ("sm_80",)), ("cuda", ("sm_90a",))])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_g3_deterministic_is_kept_at_all_four_levels(backend: str, features: tuple[str, ...], dtype: Any) -> None:
    """Every function and kernel of every level has it, fallbacks of a GPU too; without it none has."""
    x = np.ones((64, 64), dtype)
    heads_of = {"graph": "tgraph.func", "schedule": "tsched.module", "tile": "ttile.kernel", "target": "ttarget.kernel"}
    scopes = {"{seed = 3}": ts.deterministic(seed=3), "true": ts.deterministic, "": lambda function: function}
    for promise, scope in scopes.items():
        tape = ts.jit(scope(softmaxes)).trace(x, x).tape
        texts = lower_tape(tape, Options.of(backend=backend, features=features))
        for level, op in heads_of.items():
            heads = re.findall(rf"{op} @.*", texts[level])
            assert heads, level
            for head in heads:
                assert ("tessera.deterministic" in head) == bool(promise), f"{level}: {head}"
                assert f"tessera.deterministic = {promise}" in head or not promise


def test_promises_of_a_function_or_kernel_hold_for_what_it_becomes() -> None:
    traced = ts.jit(lambda x: x + 1.0).trace(X)
    traced.tape.promises["tessera.note"] = ("kept", 7)
    module = from_tape(traced.tape)
    said = dict(module.ops.first.attributes)  # pyright: ignore[reportOptionalMemberAccess]
    machine = host_machine()
    passes = schedule.pipeline(machine, StaticChooser(), standard_library())
    Stages().run("schedule", passes, module)
    program, kernel = module.ops
    assert dict(program.attributes) == said
    assert isinstance(kernel, SpecOp)
    kernel.attributes.update(said)
    assert dict(lower_kernel(kernel, machine).attributes) == said


def test_a_pure_function_declares_nothing_at_any_level() -> None:
    assert "tessera.effects" not in str(ts.jit(lambda x: x + 1.0).lower(X))


def test_promises_survive_the_round_trip_to_ir() -> None:
    traced = ts.jit(ts.deterministic(lambda x: (ts.debug_print("x"), x)[1])).trace(X)
    assert traced.tape.promises == {"tessera.deterministic": True, "tessera.effects": ("io",)}
    function: Any = from_tape(traced.tape).ops.first
    assert to_tape(function).promises == traced.tape.promises


@pytest.mark.parametrize("name", ["scatter_add", "io_callback", "fresh_key"])
def test_ops_whose_runs_may_differ_say_why_and_what_to_do(name: str) -> None:
    spec = REGISTRY[name]
    assert spec.nondeterminism is not None
    attributes = {"ordered": False, "deterministic": False, "dtypes": (f32,)}
    found = spec.nondeterminism(attributes)
    assert found is not None
    assert found.why
    assert found.fix
    if name != "fresh_key":
        assert spec.nondeterminism({**attributes, "ordered": True, "deterministic": True}) is None
