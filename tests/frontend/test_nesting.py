"""What nests very deep: it compiles, or an error says how deep it may be and what to write instead."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import AnnotationError, ConstraintError, KernelError, PytreeError
from tessera.frontend.pytree import MOST_NESTED, flatten
from tessera.types.dim import Dim

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

X = np.ones(4, np.float32)

KERNEL = """
import tessera as ts
from tessera import KTile, kernel, tile

@kernel
def deep(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    T = tile.context()
    t = tile.load(x, rows=T.m, cols=T.n)
{body}
    return t
"""


@pytest.mark.parametrize("text", ["B//0", "B % 0", "B//(C-C)", "7//0", "B + 2*(C % 0)", "max(B, C//0)", "B ceildiv 0"])
def test_a_dim_that_divides_by_zero_is_refused_where_it_is_written(text: str) -> None:
    with pytest.raises(AnnotationError, match="divides by 0"):
        ts.Tensor[text, ts.f32]


@pytest.mark.parametrize(
    "text", ["B % 0 == 0", "B // 0 == 0", "0 == B % (C - C)", "B in 1..8//0", "B <= max(C, B % 0)", "B = C ceildiv 0"]
)
def test_a_constraint_that_divides_by_zero_is_refused_where_it_is_written(text: str) -> None:
    with pytest.raises(ConstraintError, match="divides by 0"):
        ts.jit(constraints=[text])
    with pytest.raises(ConstraintError, match="divides by 0"):
        ts.constrain(text)


def test_a_dim_divided_by_a_size_of_zero_is_zero() -> None:
    assert Dim.of("A // B").evaluate({"A": 6, "B": 0}) == 0
    assert Dim.of("B // 0").evaluate({"B": 6}) == 0  # as text of IR may have it


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + "B" + ")" * 500,
        "(" * 50_000,
        "10**400",
        "9" * 5000,
        "B**-1",
        "B*" * 900 + "B",
        "-",
        "B;C",
        "\0",
        "λ",
    ],
)
def test_text_that_is_no_dim_is_refused_whatever_it_is(text: str) -> None:
    with pytest.raises(AnnotationError, match="T0104"):
        ts.Tensor[text, ts.f32]


def nested(levels: int, kind: Any) -> Any:
    value: Any = X
    for _ in range(levels):
        value = kind({"a": value} if kind is dict else [value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_trees_nest_a_hundred_levels_and_no_more(kind: Any) -> None:
    assert flatten(nested(MOST_NESTED, kind))[0] == [X]
    same = ts.jit(lambda tree: tree)
    found = same(nested(MOST_NESTED - 1, kind))
    assert flatten(found)[0][0].tolist() == X.tolist()
    for levels in (MOST_NESTED + 1, 900, 50_000):
        with pytest.raises(PytreeError, match="nest 100 deep at most"):
            same(nested(levels, kind))


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = [X]
    value.append(value)
    with pytest.raises(PytreeError, match="or holds itself"):
        ts.jit(lambda tree: tree[0])(value)


def load(folder: Path, body: str) -> ModuleType:
    file = folder / "deep_kernel.py"
    file.write_text(KERNEL.format(body=body))
    spec = importlib.util.spec_from_file_location("deep_kernel", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("expression", ["t" + " + t" * 900, "-" * 500 + "t", "t" + ".T" * 300])
def test_an_expression_of_a_kernel_that_is_too_deep_is_shown(tmp_path: Path, expression: str) -> None:
    with pytest.raises(KernelError, match="an expression of `deep` nests more than 200 deep") as caught:
        load(tmp_path, f"    t = {expression}")
    assert caught.value.span is not None
    assert caught.value.span.line == 9


@pytest.mark.parametrize("body", ["    t = t" + " + 1.0" * 150, "    t = t + 1.0\n" * 900])
def test_long_kernels_compile(tmp_path: Path, body: str) -> None:
    found = np.asarray(load(tmp_path, body).deep(np.ones((8, 16), np.float32)))
    assert (found == 1 + body.count("1.0")).all()


def test_a_chain_of_900_ops_compiles() -> None:
    def chain(x: Any) -> Any:
        for _ in range(900):
            x = x + 1.0
        return x

    assert ts.jit(chain)(X).tolist() == [901.0] * 4
