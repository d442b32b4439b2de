"""Annotations: from Python and from text and back, on functions, and matched with trees of arguments."""

from __future__ import annotations

import linecache
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import AnnotationError, RuntimeArgumentError
from tessera.frontend.annotations import leaf_annotations
from tessera.frontend.pytree import flatten
from tessera.types.annotation import TensorAnnotation, annotation_of, parse_annotation
from tessera.types.dtype import ALL
from tessera.types.policy import accum, compute, loss_scale, saturate, stochastic_round, tf32

if TYPE_CHECKING:
    from fractions import Fraction

DIMS = [
    '"B"',
    '"B", "S"',
    '"B", "S", "D"',
    "128",
    '"B", 128',
    '"B*H", "S", 64',
    '"S + 1"',
    '"2*S", "_"',
    '"max(S, T)", 0',
    '"S floordiv 2", "S mod 2"',
]
ELEMENTS = [
    "",
    "f32",
    "bf16 @ accum(f32)",
    "f8e4m3 @ accum(f32) @ stochastic_round @ saturate",
    "f32 @ compute(tf32)",
]
FIFTY = [f"Tensor[{dims}{', ' + element if element else ''}]" for dims in DIMS for element in ELEMENTS]


@pytest.mark.parametrize("text", FIFTY)
def test_parse_print_parse_is_identity(text: str) -> None:
    parsed = parse_annotation(text)
    assert parse_annotation(str(parsed)) == parsed
    assert eval(str(parsed), {**vars(ts), **{name: getattr(ts, name) for name in ts.__all__}}) == parsed


def test_there_are_fifty() -> None:
    assert len(set(FIFTY)) == 50


POLICIES = st.lists(
    st.sampled_from([stochastic_round, saturate, loss_scale(1024), loss_scale(0.5)]), max_size=2, unique=True
)


@given(
    st.lists(st.one_of(st.integers(0, 1 << 40), st.sampled_from(["B", "S", "B*H", "S + 1", "_", "B_1"])), max_size=5),
    st.sampled_from([dtype for dtype in ALL if dtype.is_float]),
    POLICIES,
)
def test_what_python_makes_reads_back_from_its_text(dims: list[int | str], dtype: ts.DType, policies: Any) -> None:
    element: Any = dtype
    for policy in policies:
        try:
            element = element @ policy
        except AnnotationError:
            continue  # two loss scales contradict each other
    made = annotation_of((*dims, element))
    assert parse_annotation(str(made)) == made


def test_policies_chain_in_any_order() -> None:
    assert ts.bf16 @ accum(ts.f32) @ saturate == ts.bf16 @ saturate @ accum(ts.f32)
    assert str(ts.bf16 @ ts.f32) == "bf16 @ accum(f32)"
    assert str(ts.f32 @ compute(tf32)) == "f32 @ compute(tf32)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Tensor", "has no dims"),
        ("List[2]", "is not an annotation"),
        ('Tensor["B", tf32]', "is a compute mode"),
        ('Tensor["B S"]', "is not a dimension"),
        ("Tensor[-1]", "cannot be negative"),
        ("Tensor[1.5]", "is not a dimension"),
        ('Tensor[f32, "B"]', "is not a dimension"),
        ('KVCache["B"]', "has 4 dims, got 1"),
        ('Tensor["B", f16 @ accum(f32) @ accum(f64)]', "is set twice"),
        ('Tensor["B", i8 @ stochastic_round]', "no rounding"),
        ('Tensor["B", bf16 @ compute(tf32)]', "is a compute mode of `f32`"),
        ('Tensor["B", nothing @ accum(f32)]', "is not a dtype"),
        ('Tensor["B", __import__("os")]', "is not part of an annotation"),
        ('Tensor["B",', "never closed"),
    ],
)
def test_a_bad_annotation_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(AnnotationError) as caught:
        parse_annotation(text)
    assert message in caught.value.message


def test_a_bad_annotation_of_a_function_is_shown_where_it_stands() -> None:
    # This file's annotations are texts, so they are read when the function is decorated.
    def wrong(x: ts.Tensor["B +", ts.f32]) -> Any:
        return x

    with pytest.raises(AnnotationError) as caught:
        ts.jit(wrong)
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == 'def wrong(x: ts.Tensor["B +", ts.f32]) -> Any:'
    assert caught.value.span.width == len('ts.Tensor["B +", ts.f32]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ts.Tensor["N", ts.f33]', "`f33`"),
        ('Tensr.Tensor["N", ts.f32]', "uses `Tensr`, which is not defined"),
        ('ts.Tensor["N", ts.f32] + 3', "is invalid: unsupported operand"),
        ('ts.Tensor["N", ts.f32', "is invalid"),
    ],
)
def test_an_annotation_that_python_cannot_read_is_an_error_of_ours(text: str, message: str) -> None:
    def f(x: Any) -> Any:
        return x

    f.__annotations__["x"] = text
    with pytest.raises(AnnotationError, match="the annotation of `x`") as caught:
        ts.jit(f)
    assert message in caught.value.message
    assert caught.value.fix


def test_what_only_type_checkers_read_is_passed_by() -> None:
    def f(x: Any) -> Any:
        return x

    f.__annotations__["x"] = "Fraction | nowhere.Thing"
    assert ts.jit(f)(2.0) == 2.0


def test_a_tensor_or_none() -> None:
    declared = ts.Tensor["N", ts.f32]
    for either in (declared | None, None | declared):
        (plain,) = leaf_annotations(either, flatten(1.0)[1])
        assert plain is declared

    @ts.jit
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32] | None = None) -> Any:
        return x if y is None else x + y

    x = np.ones(3, np.float32)
    assert np.asarray(f(x)).tolist() == [1.0] * 3
    assert np.asarray(f(x, x)).tolist() == [2.0] * 3
    with pytest.raises(ts.TesseraError, match=r"`x.shape\[0\]` is 3 and `y.shape\[0\]` is 4, but both are `N`"):
        f(x, np.ones(4, np.float32))


def test_the_signature_shows_in_repr() -> None:
    @ts.jit
    def scale(x: ts.Tensor["B", 128, ts.bf16 @ ts.accum(ts.f32)], by: ts.Tensor[ts.f32], *, times: int = 1) -> Any:
        return x * by * times

    assert repr(scale) == 'jit scale(x: Tensor["B", 128, bf16 @ accum(f32)], by: Tensor[f32], times)'


class Pair(NamedTuple):
    """A tree whose fields are annotated."""

    left: ts.Tensor["N", ts.f32]
    right: int


@dataclass
class Layer:
    """A tree whose fields are annotated."""

    w: ts.Tensor["I", "O", ts.f32]
    pairs: list[Pair]


def test_annotations_reach_the_leaves_of_containers() -> None:
    n, w = annotation_of(("N", ts.f32)), annotation_of(("I", "O", ts.f32))
    tree = flatten(Layer("w", [Pair("l", 1), Pair("l", 2)]))[1]  # pyright: ignore[reportArgumentType]
    assert leaf_annotations(Layer, tree) == [w, n, None, n, None]
    assert leaf_annotations(dict[str, list[n]], flatten({"a": [1, 2], "b": []})[1]) == [n, n]  # pyright: ignore[reportInvalidTypeForm]
    assert leaf_annotations(tuple[n, w], flatten((1, 2))[1]) == [n, w]  # pyright: ignore[reportInvalidTypeForm]
    assert leaf_annotations(None, flatten((1, 2))[1]) == [None, None]


def test_an_annotation_is_a_value() -> None:
    x = annotation_of(("B", "S", ts.f32))
    assert isinstance(x, TensorAnnotation)
    assert (x.rank, x.symbols, x.dtype) == (2, {"B", "S"}, ts.f32)
    assert x == ts.Tensor["B", "S", ts.f32]


def test_a_closure_that_refers_to_itself_has_annotations() -> None:
    def make() -> Any:
        @ts.jit(backend="reference")
        def halved(x: ts.Tensor["N", ts.f32], depth: int = 2) -> Any:
            return halved.function(x / 2.0, depth - 1) if depth else x

        return halved

    made = make()
    assert made.parameters[0].annotation == annotation_of(("N", ts.f32))
    assert made(ts.array([8.0, 8.0, 8.0])).tolist() == [2.0] * 3


@pytest.mark.parametrize("value", [[1, 2], (1.0, 2.0), {"a": 1}, [], None, [[1.0]]])
def test_a_tree_is_no_tensor(value: Any) -> None:
    def function(x: ts.Tensor["N", ts.f32]) -> Any:
        return x + 1

    with pytest.raises(RuntimeArgumentError, match=rf"`x` must be a tensor, got {type(value).__name__}") as found:
        ts.jit(function)(value)
    assert 'it is declared Tensor["N", f32]' in found.value.notes


class Weights(NamedTuple):
    """One layer."""

    w: ts.Tensor["D", ts.f32]


def test_a_record_inside_a_list_is_declared_though_its_text_names_no_tensor() -> None:
    @ts.jit
    def f(x: ts.Tensor["D", ts.f32], layers: list[Weights], other: dict[str, Fraction] | None = None) -> Any:
        return x + layers[0].w

    graph = f.trace(ts.ones(3), [Weights(ts.ones(3))]).tape
    assert [str(graph.types[value]) for value in graph.inputs] == ["[D] f32", "[D] f32"]
    with pytest.raises(RuntimeArgumentError, match=r"`layers\[0\].w` must be f32, got i32"):
        f(ts.ones(3), [Weights(ts.ones(3, ts.i32))])


@pytest.mark.parametrize("kept", ["def f(x: 3):\n    return (\n" + "y = 1\n" * 5, "f = 1\n" * 3, "    deeper\nx = {\n"])
def test_a_text_that_is_kept_under_a_shared_name_is_not_taken_for_a_function(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 keeps the text of a command as `<string>`, which is the name of whatever `exec` is given too."""
    monkeypatch.setitem(linecache.cache, "<string>", (len(kept), None, kept.splitlines(keepends=True), "<string>"))
    scope: dict[str, Any] = {"ts": ts}
    exec("def f(x, n):\n    return x * n + x\n", scope)
    exec('def wrong(x: ts.Tensor["B +", ts.f32]):\n    return x\n', scope)
    function: Any = ts.jit(scope["f"], backend="reference")
    with warnings.catch_warnings(record=True):  # of the many values that `n` has
        warnings.simplefilter("always")
        for number in range(12):
            assert function(np.ones(2, np.float32), number).tolist() == [number + 1.0] * 2
    with pytest.raises(AnnotationError, match=r"B \+"):
        ts.jit(scope["wrong"])
