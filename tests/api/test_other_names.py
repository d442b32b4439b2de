"""Names of other libraries: every one is answered with what to write here, and what is suggested exists."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.names_of_torch import TORCH_NN
from tessera.api.other_names import FRONT, OPS, RANDOM, advice_for
from tessera.frontend.trace import TracedTensor

TABLES: dict[str, Mapping[str, str]] = {
    "tessera": FRONT,
    "tessera.ops": OPS,
    "tessera.random": RANDOM,
    "tessera.nn": TORCH_NN,
}
KNOWN = [(module, name) for module, table in TABLES.items() for name in table]
PATH = re.compile(r"tessera((?:\.\w+)+)")


@pytest.mark.parametrize(("module", "name"), KNOWN)
def test_a_known_name_is_answered_and_what_is_suggested_exists(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = importlib.import_module(module)
    assert name not in home.__all__
    # A subpackage, `tessera.distributed`, is an attribute once something has loaded it.
    monkeypatch.delattr(home, name, raising=False)
    with pytest.raises(AttributeError) as caught:
        getattr(home, name)
    assert str(caught.value) == f"module `{module}` has no attribute `{name}`: {TABLES[module][name]}"
    for path in PATH.findall(TABLES[module][name]):
        found: object = ts
        for part in path[1:].split("."):
            found = getattr(found, part)


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("tessera", "softmax", "write `tessera.ops.softmax`"),
        ("tessera", "linear", "write `tessera.ops.matmul(x, weight.T) + bias`"),
        ("tessera", "randn", "write `tessera.random.normal(key, (2, 3))`"),
        ("tessera", "uniform", "write `tessera.random.uniform`"),
        ("tessera", "no_grad", "nothing to switch off: remove it"),
        ("tessera", "Module", "write `tessera.nn.Module`"),
        ("tessera", "jitt", "did you mean `tessera.jit`?"),
        ("tessera", "fori_lop", "did you mean `tessera.fori_loop`?"),
        ("tessera", "CrossEntropyLoss", "losses are functions: write `tessera.nn.cross_entropy`"),
        ("tessera", "pmap", 'write `tessera.dist.pmap(f, "devices")`'),
        ("tessera.nn", "kl_div", "write `tessera.nn.kl_divergence(log_prediction, target)`"),
        ("tessera.nn", "relu", "write `tessera.ops.relu`"),
        ("tessera.optim", "SGD", "did you mean `tessera.optim.sgd`?"),
        ("tessera.nn", "Liner", "did you mean `tessera.nn.Linear`?"),
        ("tessera.ops", "jit", "write `tessera.jit`"),
        ("tessera.ops", "randn", "write `tessera.random.normal(key, (2, 3))`"),
        ("tessera.ops", "sofmax", "did you mean `tessera.ops.softmax`?"),
        ("tessera", "conv3d", "write `tessera.ops.conv3d`"),
        ("tessera", "iinfo", "write `tessera.xp.iinfo(dtype)`"),
        ("tessera.ops", "isdtype", "write `tessera.xp.isdtype(dtype, 'integral')`"),
        ("tessera.ops", "ctc_loss", "write `tessera.nn.ctc_loss`"),
        ("tessera.ops", "index_add", "write `x.at[indices].add(values)`"),
        ("tessera.ops", "lp_pool2d", "write `tessera.ops.lp_pool(x, order, window)`"),
        ("tessera", "complex", "write `tessera.ops.complex`"),
        ("tessera.random", "softmax", "write `tessera.ops.softmax`"),
        ("tessera.ops", "solve", "write `tessera.linalg.solve`"),
        ("tessera", "det", "write `tessera.linalg.det`"),
        ("tessera.linalg", "cho_solve", "write `tessera.linalg.cholesky_solve(factor, b)`"),
        ("tessera.linalg", "eigvals", "there are no eigenvalues of general matrices"),
        ("tessera.random", "unifrom", "did you mean `tessera.random.uniform`?"),
        ("tessera.dist", "psum", "write `tessera.dist.all_reduce(x, axis)`"),
        ("tessera.dist", "all_reduc", "did you mean `tessera.dist.all_reduce`?"),
        ("tessera.verify", "finit", "did you mean `tessera.verify.finite`?"),
    ],
)
def test_a_name_of_another_module_or_a_misspelt_one_is_answered(module: str, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute `{name}`: ") as caught:
        getattr(importlib.import_module(module), name)
    assert words in str(caught.value)


@pytest.mark.parametrize("module", ["tessera", "tessera.ops", "tessera.random", "tessera.dist", "tessera.cuda"])
def test_a_name_that_nobody_knows_is_only_reported(module: str) -> None:
    with pytest.raises(AttributeError, match=rf"`{re.escape(module)}` has no attribute `qqqq`$"):
        getattr(importlib.import_module(module), "qqqq")  # noqa: B009
    assert not hasattr(importlib.import_module(module), "_private")
    assert advice_for(module, "__wrapped__") == ""


NEAR_ENOUGH = (
    "bitwise_invert diagonal_copy dsplit hsplit vsplit expand_as fill msort reshape_as sgn shape take_along_dim"
    " transpose_copy type unflatten unsqueeze_copy real short"
)
MEMORY = (
    "address contiguous copy device empty from_buffer from_dlpack from_numpy is_contiguous is_read_only nbytes of"
    " strides tobytes"
)


def test_a_function_of_another_library_is_not_taken_for_a_misspelt_one() -> None:
    """`median` is no misspelt `mean`: to suggest it would give wrong numbers."""
    torch = pytest.importorskip("torch")
    homes: list[object] = [np, np.ndarray, np.linalg, torch, torch.Tensor, torch.nn.functional]
    names = {name for home in homes for name in dir(home) if name.islower() and not name.startswith("_")}
    known = {name for name in names if not name.endswith("_") and name not in ts.ops.__all__}
    taken = {name for name in known if "did you mean" in advice_for("tessera.ops", name)}
    assert taken <= {*NEAR_ENOUGH.split()}


FORMULAS = {
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "arcsinh": np.arcsinh, "arctanh": np.arctanh,
    "degrees": np.degrees, "radians": np.radians, "logsigmoid": lambda x: -np.log1p(np.exp(-x)),
    "hardtanh": lambda x: np.clip(x, -1, 1), "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_what_is_suggested_for_a_function_computes_it(name: str) -> None:
    x = np.linspace(0.1, 0.9, 7, dtype=np.float32)
    text = OPS[name].removeprefix("write `").removesuffix("`")
    got = eval(text, {"tessera": ts, "math": math, "x": ts.array(x)})
    np.testing.assert_allclose(np.asarray(got), FORMULAS[name](x), rtol=1e-5)


def code_of(advice: str) -> str:
    """What is to be written, in an answer."""
    return advice.split("`")[1]


def test_what_is_suggested_finds_the_same_bins_and_parts() -> None:
    boundaries, x = np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
    names = {"tessera": ts, "boundaries": ts.array(boundaries), "x": ts.array(x)}
    np.testing.assert_array_equal(eval(code_of(OPS["digitize"]), names), np.digitize(x, boundaries))
    torch = pytest.importorskip("torch")
    bins = torch.bucketize(torch.from_numpy(x), torch.from_numpy(boundaries)).numpy()
    np.testing.assert_array_equal(eval(code_of(OPS["bucketize"]), names), bins)
    parts = eval(code_of(OPS["tensor_split"]), {"tessera": ts, "x": ts.ones((7,)), "parts": 3, "axis": 0})
    assert [part.shape for part in parts] == [part.shape for part in np.array_split(np.ones(7), 3)]


def test_what_is_suggested_for_multinomial_takes_probabilities() -> None:
    names = {"tessera": ts, "key": ts.random.key(0), "p": ts.array([0.2, 0.0, 0.8]), "n": 2000}
    drawn = np.asarray(eval(code_of(RANDOM["multinomial"]), names))
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 2000, [0.2, 0.0, 0.8], atol=0.04)


METHODS = {
    "matmul": "write `tessera.ops.matmul(x, b)`",
    "where": "write `tessera.ops.where(condition, x, y)`",
    "masked_fill": "write `tessera.ops.masked_fill(x, mask, value)`",
    "clamp_": "tensors do not change: write `x = x.clamp(...)`",
    "relu_": "tensors do not change: write `tessera.ops.relu(x)`",
    "masked_fill_": "tensors do not change: write `tessera.ops.masked_fill(x, mask, value)`",
    "copy_": "tensors do not change: write `x = y`",
    "zero_": "`tessera.ops.zeros_like(x)`",
    "requires_grad_": "write `tessera.grad(f)(x)`",
    "detach": "write `tessera.stop_gradient(x)`",
    "view_as": "write `x.reshape(y.shape)`",
    "int": "write `x.cast(tessera.i32)`",
    "median": "write `tessera.ops.median(x)`",
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_another_library_is_answered_eager_and_traced(name: str) -> None:
    def ask(x: Any) -> Any:
        with pytest.raises(AttributeError, match=f"has no attribute `{name}`: ") as caught:
            getattr(x, name)
        assert METHODS[name] in str(caught.value)
        return x

    ask(ts.ones((2, 2)))
    ts.jit(ask, backend="reference")(ts.ones((2, 2)))


def test_every_method_of_a_tensor_is_one_of_a_tracer() -> None:
    """But for what is about memory, which a tracer has none of."""
    eager = {name for name in dir(ts.Tensor) if not name.startswith("_")}
    memory = {name for name in eager - set(dir(TracedTensor)) if name not in METHODS}
    assert memory <= {*MEMORY.split()}


def test_the_trace_of_a_matrix_is_a_method() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert ts.array(x).trace().item() == x.trace()
    assert ts.jit(lambda x: x.trace(1), backend="reference")(x).item() == x.trace(1)
