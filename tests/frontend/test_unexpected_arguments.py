"""Missing and unexpected arguments of functions on tensors, and functions that return nothing."""

# pyright: reportCallIssue=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
from __future__ import annotations

import inspect
import pickle
import re
import traceback
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import (
    ArgumentError,
    DTypeError,
    OperatorError,
    RuntimeArgumentError,
    ShapeError,
    TracingError,
)

X = ts.ones((3, 4))

WRONG: dict[str, tuple[Any, str, str | None]] = {
    "dim of a function": (lambda x: ops.softmax(x, dim=0), "unexpected argument `dim` of `softmax`", "write `axis=0`"),
    "dim of a method": (lambda x: x.sum(dim=1), "unexpected argument `dim` of `sum`", "write `axis=1`"),
    "keepdim": (
        lambda x: ops.max(x, axis=0, keepdim=True),
        "unexpected argument `keepdim` of `max`",
        "`keepdims=True`",
    ),
    "out": (lambda x: ops.exp(x, out=x), "unexpected argument `out` of `exp`", "without `out`"),
    "a misspelling": (lambda x: ops.mean(x, axes=0), "unexpected argument `axes` of `mean`", "write `axis=0`"),
    "a tensor": (lambda x: ops.matmul(x, other=x), "unexpected argument `other` of `matmul`", "write `b=...`"),
    "no such thing": (lambda x: ops.exp(x, base=2), "unexpected argument `base` of `exp`", "remove it"),
    "too many": (lambda x: ops.softmax(x, 0, 1), "too many positional arguments", None),
    "too few": (lambda x: ops.matmul(x), "missing a required argument: `b`", None),
}


@pytest.mark.parametrize("is_jitted", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_a_parameter_that_there_is_not_is_told_by_its_name_here(name: str, is_jitted: bool) -> None:
    function, message, fix = WRONG[name]
    with pytest.raises(ArgumentError) as caught:
        (ts.jit(function) if is_jitted else function)(X)
    assert message in caught.value.message
    assert caught.value.code == "T0202"
    assert caught.value.span is not None
    assert caught.value.span.file == __file__
    assert "it is `" in caught.value.notes[0]
    assert (caught.value.fix is None) == (fix is None)
    assert fix is None or fix in str(caught.value)


def test_a_type_error_inside_of_a_function_stays_what_it_is() -> None:
    class Odd:
        def __array__(self) -> Any:
            raise TypeError("not today")

    with pytest.raises(Exception, match=r"not today|Odd") as caught:
        ops.exp(Odd())
    assert "unexpected argument" not in str(caught.value)
    assert "missing argument" not in str(caught.value)


def test_functions_keep_their_names_and_signatures() -> None:
    assert str(inspect.signature(ops.softmax)) == "(x: Any, axis: int = -1) -> Any"
    assert ops.softmax.__name__ == "softmax"
    assert pickle.loads(pickle.dumps(ops.softmax)) is ops.softmax
    assert (ops.softmax.__doc__ or "").startswith("Normalised exponential")


def test_a_function_that_returns_nothing_computes_for_nothing() -> None:
    @ts.jit
    def forgotten(x: Any) -> None:
        ops.exp(x) + 1.0  # pyright: ignore[reportUnusedExpression]

    with pytest.raises(TracingError, match="`forgotten` returns nothing: its results are unused") as caught:
        forgotten(X)
    assert "return" in str(caught.value.fix)


def test_a_function_that_does_something_else_may_return_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def report(x: Any) -> None:
        ts.debug_print("sum {s}", s=ops.sum(x))

    @ts.jit
    def nothing(x: Any) -> None:
        return None

    assert report(X) is None
    assert "sum 12" in "".join(capfd.readouterr())
    assert nothing(X) is None


def test_roots_of_sizes_are_of_the_usual_float() -> None:
    @ts.jit
    def root(x: ts.Tensor["B", 4, ts.f32]) -> Any:
        return ops.sqrt(x.shape[0]), x * ops.sqrt(x.shape[0]), ops.log(7)

    one, scaled, logarithm = root(X)
    assert [part.dtype for part in (one, scaled, logarithm)] == [ts.f32] * 3
    assert ops.sqrt(4).dtype is ts.f32
    assert ops.sqrt(ts.array(np.array([4]))).dtype is ts.f64
    np.testing.assert_allclose(np.asarray(one), np.sqrt(np.float32(3)), rtol=1e-6)


def test_functions_of_any_number_of_tensors_are_explained() -> None:
    @ts.jit
    def total(*tensors: Any) -> Any:
        return tensors[0] + tensors[1]

    with pytest.raises(RuntimeArgumentError, match="nothing says what `total` takes") as caught:
        total.explain()
    assert "*tensors" in str(caught.value)
    total(X, X)
    assert "tensors[1]: [3, 4] f32" in str(total.explain())
    assert str(total.explain(X, X)) in str(total.explain())
    assert "tgraph.add" in total.lower().graph


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (X, "view", "`x.reshape(...)`"),
        (X, "numel", "`x.size`"),
        (X, "relu", "`tessera.ops.relu(x)`"),
        (ts, "tensor", "`tessera.array(values)`"),
        (ts, "float32", "`tessera.f32`"),
        (ts, "softmax", "`tessera.ops.softmax`"),
    ],
)
def test_names_of_other_libraries_are_told_by_ours(owner: Any, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute") as caught:
        getattr(owner, name)
    assert f"write {instead}" in str(caught.value)
    assert not hasattr(owner, "no_such_name")


@pytest.mark.parametrize(
    ("owner", "name", "reason"),
    [
        (ts, "no_grad", "there is nothing to switch off: remove it"),
        (ts, "pmap", 'write `tessera.dist.pmap(f, "devices")`'),
        (X, "backward", "derivatives are of functions"),
        (
            ts.random,
            "randn",
            "write `tessera.random.normal(key, (2, 3))`, where `key = tessera.random.key(0)`: "
            "numbers are drawn with a key, and equal keys draw equal numbers",
        ),
        (ts.random, "manual_seed", "write `tessera.random.key(0)`"),
        (X, "cuda", "write `tessera.cuda.array(x)`"),
        (X, "to", "`tessera.cuda.array(x)` for a GPU, and `x.cpu()` for host memory"),
        (X, "cpu", "it is in host memory already"),
    ],
)
def test_what_other_libraries_have_and_tensors_do_not_is_reported(owner: Any, name: str, reason: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute `{name}`: .*{re.escape(reason)}$"):
        getattr(owner, name)


def test_python_guesses_at_no_name_where_it_is_known_what_to_say() -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ts, "no_grad")  # noqa: B009
    text = "".join(traceback.format_exception(caught.value))
    assert text.endswith("nothing to switch off: remove it\n")
    with pytest.raises(AttributeError, match=r"`tessera\.random` has no attribute `no_such_name`$"):
        getattr(ts.random, "no_such_name")  # noqa: B009


def test_sizes_that_are_given_one_by_one_are_told_to_be_one_shape() -> None:
    with pytest.raises(DTypeError, match="`4` is not a dtype") as caught:
        ts.zeros(3, 4)  # pyright: ignore[reportArgumentType]
    assert "one shape, as in `(2, 3)`" in str(caught.value)


def test_tensors_that_are_joined_are_given_as_a_list() -> None:
    with pytest.raises(ShapeError, match="got one value of type Tensor") as caught:
        ops.concat(X, X)  # pyright: ignore[reportArgumentType]
    assert "write `concat([a, b])`" in str(caught.value)


def test_writing_into_a_tensor_says_what_to_write_instead() -> None:
    with pytest.raises(OperatorError, match="tensors do not change") as caught:
        X[0] = 1.0
    assert "`new = X.at[0].set(1.0)`" in str(caught.value)


def mean_in_f32(x: Any) -> Any:
    return np.mean(x, dtype=np.float32)


def mean_of_columns(x: Any) -> Any:
    return np.mean(x, axis=0, keepdims=True)


@pytest.mark.parametrize(("function", "has_edit"), [(mean_of_columns, True), (mean_in_f32, False)])
def test_a_function_of_numpy_is_replaced_where_ours_takes_its_arguments(function: Any, has_edit: bool) -> None:
    with pytest.raises(TracingError) as caught:
        ts.jit(function)(X)
    assert caught.value.fix is not None
    assert (caught.value.fix.span is not None) == has_edit
    assert "ops.mean" in caught.value.fix.message
