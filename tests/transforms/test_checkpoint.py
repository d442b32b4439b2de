"""`checkpoint`: the same values and gradients bit for bit, less kept, under every other transform."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, GraphVerifyError
from tessera.frontend.pytree import flatten
from tessera.ir.base.tape import Tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder

RNG = np.random.default_rng(3)
X = RNG.standard_normal((6, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32) / 3
POLICIES = ts.checkpoint_policies


def layer(x: Any, w: Any) -> Any:
    hidden = ts.checkpoint_name(ops.tanh(x @ w), "hidden")
    return ops.gelu(hidden @ w) + x


def saving(policy: Any) -> Callable[..., Any]:
    return ts.checkpoint(layer, policy=policy)


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in flatten(tree)[0]]


def workspace(gradient: Any, *args: Any) -> int:
    (line,) = [one for one in str(gradient.explain(*args)).splitlines() if one.strip().startswith("workspace")]
    return int(line.split()[1])


CHOICES: dict[str, Any] = {
    "default": None,
    "everything": POLICIES.everything_saveable,
    "dots": POLICIES.dots_saveable,
    "dots without batch": POLICIES.dots_with_no_batch_dims_saveable,
    "names": POLICIES.save_only_these_names("hidden"),
    "other names": POLICIES.save_any_names_but_these("hidden"),
    "a function": lambda op, *types, **attributes: op == "tanh",
}

USES: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad": lambda f: ts.grad(lambda x, w: f(f(x, w), w).sum(), (0, 1)),
    "jit of grad": lambda f: ts.jit(ts.grad(lambda x, w: (f(x, w) ** 2.0).sum(), (0, 1))),
    "grad of jit": lambda f: ts.grad(ts.jit(lambda x, w: f(x, w).sum()), (0, 1)),
    "jvp": lambda f: lambda x, w: ts.jvp(lambda x, w: f(x, w), (x, w), (x, w)),
    "vjp": lambda f: lambda x, w: ts.vjp(f, x, w)[1](x),
    "vmap": lambda f: ts.vmap(ts.grad(lambda x, w: f(x, w).sum(), (0, 1)), in_axes=(0, None)),
    "grad of vmap": lambda f: ts.grad(lambda x, w: ts.vmap(f, in_axes=(0, None))(x, w).sum(), (0, 1)),
    "scan": lambda f: ts.grad(lambda x, w: ts.scan(lambda h, r: (f(h, w) * r, ()), x, x)[0].sum(), (0, 1)),
    "cond": lambda f: ts.grad(lambda x, w: ts.cond(x.sum() > 9, lambda: f(x, w), lambda: f(x, w) * x).sum(), (0, 1)),
    "in itself": lambda f: ts.grad(lambda x, w: ts.checkpoint(lambda x, w: f(f(x, w), w))(x, w).sum(), (0, 1)),
    "hvp": lambda f: lambda x, w: ts.hvp(lambda x: f(x, w).sum(), (x,), (x,)),
}


@pytest.mark.parametrize("use", USES)
def test_values_and_gradients_have_the_bits_that_they_have_without(use: str) -> None:
    expected = bits(USES[use](layer)(X, W))
    for name in CHOICES if use == "grad" else ("default", "names"):
        assert bits(USES[use](saving(CHOICES[name]))(X, W)) == expected, name


def test_second_derivatives_agree() -> None:
    """Their bits may differ: what is rematerialized has cotangents of its own, which are added later."""

    def twice(f: Any) -> Any:
        inner = ts.grad(lambda x, w: (f(x, w) ** 2.0).sum())
        return ts.grad(lambda x, w: (inner(x, w) ** 2.0).sum(), (0, 1))(X.astype(np.float64), W.astype(np.float64))

    for mine, expected in zip(twice(ts.checkpoint(layer)), twice(layer), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(expected), rtol=1e-11, atol=1e-11)


def forward_kept(policy: Any) -> list[str]:
    """What the forward part of a gradient keeps: the types of the further results of its body."""
    traced: Tape = ts.grad(lambda x, w: saving(policy)(x, w).sum()).trace(X, W).tape  # pyright: ignore[reportFunctionMemberAccess]
    (first, *_) = [record for record in traced.records if record.op == "tgraph.checkpoint"]
    body: Tape = first.attributes["body"]
    makers = {result: record.op for record in body.records for result in record.results}
    return [makers[value] for value in body.outputs[1:]]


def test_a_policy_changes_what_is_kept() -> None:
    assert forward_kept(None) == []
    assert forward_kept(POLICIES.dots_saveable) == ["tgraph.matmul"] * 2
    assert forward_kept(POLICIES.save_only_these_names("hidden")) == ["tgraph.tanh"]
    assert forward_kept(POLICIES.save_any_names_but_these("hidden")) == []
    assert forward_kept(CHOICES["a function"]) == ["tgraph.tanh"]
    assert len(forward_kept(POLICIES.everything_saveable)) > 1


def test_a_gradient_needs_less_memory() -> None:
    def deep(f: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            for _ in range(8):
                x = f(x, w)
            return x.sum()

        return ts.grad(loss)

    plain, keeping, least = (deep(f) for f in (layer, saving(POLICIES.dots_saveable), ts.remat(layer)))
    assert bits(plain(W, X)) == bits(keeping(W, X)) == bits(least(W, X))
    assert workspace(least, W, X) < min(workspace(keeping, W, X), workspace(plain, W, X))


def test_arguments_may_be_trees_keywords_and_no_tensors() -> None:
    @ts.checkpoint
    def scaled(params: Any, x: Any, *, by: float, rows: Any) -> Any:
        return {"y": x @ params["w"] * by, "rows": rows, "count": 3}

    def loss(w: Any) -> Any:
        made = scaled({"w": w}, X, by=2.0, rows=np.arange(6))
        return made["y"][made["rows"]].sum()

    expected = ts.grad(lambda w: (X @ w * 2.0)[np.arange(6)].sum())(W)
    assert bits(ts.grad(loss)(W)) == bits(expected)
    assert scaled({"w": W}, X, by=2.0, rows=np.arange(6))["count"] == 3


def test_one_program_serves_all_sizes_of_a_symbolic_dim() -> None:
    @ts.jit
    def loss(w: ts.Tensor["D", "D", ts.f32], x: ts.Tensor["B", "D", ts.f32]):
        return ts.checkpoint(layer)(x, w).sum()

    gradient: Any = ts.grad(loss)
    plain = ts.grad(lambda w, x: layer(x, w).sum())
    for rows in (1, 3, 0):
        assert bits(gradient(W, X[:rows])) == bits(plain(W, X[:rows]))
    assert gradient.cache_info().compiles <= 1


def test_what_a_body_captures_is_differentiated_too() -> None:
    def loss(w: Any) -> Any:
        return ts.checkpoint(lambda x: ops.sin(x @ w))(X).sum()

    assert bits(ts.grad(loss)(W)) == bits(ts.grad(lambda w: ops.sin(X @ w).sum())(W))


def test_an_effect_happens_once() -> None:
    seen: list[float] = []

    @ts.checkpoint
    def noting(x: Any) -> Any:
        ts.io_callback(lambda v: seen.append(float(v)), ts.stop_gradient(x).sum())
        return ops.sin(ops.sin(x))

    ts.grad(lambda x: noting(x).sum())(X)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: POLICIES.dot_saveable, AttributeError, "no policy `dot_saveable`; did you mean `dots_saveable`"),  # pyright: ignore[reportAttributeAccessIssue]
        (lambda: POLICIES.offload_dot_with_no_batch_dims, AttributeError, "memory=bytes, offload=True"),  # pyright: ignore[reportAttributeAccessIssue]
        (lambda: ts.checkpoint(layer, policy="dots"), ArgumentError, "one of `checkpoint_policies` or a function"),
        (lambda: ts.checkpoint(layer, policy=POLICIES.save_only_these_names), ArgumentError, "without names"),
        (lambda: ts.checkpoint(layer, memory=3), ArgumentError, r"write `jit\(checkpoint\(f\), memory=3\)`"),  # pyright: ignore[reportCallIssue]
        (lambda: ts.checkpoint(memory=3), ArgumentError, "unexpected argument `memory` of `checkpoint`"),  # pyright: ignore[reportCallIssue]
        (lambda: ts.checkpoint(layer, policy=POLICIES.save_any_names_but_these), ArgumentError, "these` without names"),
        (lambda: saving(lambda op: True)(X, W), ArgumentError, "policy `<lambda>` of `checkpoint` raises TypeError"),
        (
            lambda: saving(lambda op, *types, **rest: 1 // 0)(X, W),
            ArgumentError,
            "ZeroDivisionError for the op `matmul`",
        ),
        (lambda: POLICIES.save_only_these_names(3), ArgumentError, "names of values as strings"),  # pyright: ignore[reportArgumentType]
        (lambda: ts.checkpoint_name(X, ""), ArgumentError, "takes a name"),
        (lambda: ts.checkpoint(3), Exception, "callable|function"),  # pyright: ignore[reportArgumentType, reportCallIssue]
    ],
)
def test_wrong_calls_say_what_is_wrong(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_a_policy_that_nobody_knows_is_refused_by_the_op() -> None:
    with pytest.raises(GraphVerifyError, match="no policy `dots_savable`; did you mean `dots_saveable`"):
        TapeBuilder().emit("checkpoint", body=Tape(), policy=("dots_savable",))


def test_policies_are_asked_of_collectives() -> None:
    asked: list[Any] = []

    def policy(op: str, *types: Any, **attributes: Any) -> bool:
        asked.append((op, attributes.get("reduction")))
        return True

    block = ts.checkpoint(lambda x: ops.sin(ts.dist.all_reduce(x, "rows")), policy=policy)
    plain = ts.vmap(lambda x: ops.sin(ts.dist.all_reduce(x, "rows")), axis_name="rows")
    assert bits(ts.vmap(block, axis_name="rows")(X)) == bits(plain(X))
    assert ("all_reduce", "sum") in asked
