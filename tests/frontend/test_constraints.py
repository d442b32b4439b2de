"""Constraints on functions and in bodies: what they admit, what they prove, and what is left to check."""

# Traced functions have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportMissingParameterType=false
from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ConstraintError, GuardError, RuntimeArgumentError, ShapeError, SpecializationError
from tessera.diagnostics.error import Span, TesseraError
from tessera.frontend.constraints import (
    _next_size,  # pyright: ignore[reportPrivateUsage]
    parse_constraints,
)
from tessera.ir.base.infer import Guards, needed_checks
from tessera.types.constraint_text import Constraint
from tessera.types.dim import Dim

F32 = np.float32


def zeros(*shape: int) -> Any:
    return np.zeros(shape, F32)


def guards(function: Any, *args: Any, **kwargs: Any) -> list[str]:
    """What is left to check of a call."""
    return [f"{guard.left} == {guard.right}" for guard in function.trace(*args, **kwargs).tape.guards]


def reference(*constraints: str, **options: Any) -> Any:
    return ts.jit(constraints=constraints, backend="reference", **options)


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        ("N % 8 == 0", (0, 8, 96), (1, 7, 100)),
        ("N <= 64", (0, 63, 64), (65, 100)),
        ("N < 64", (0, 63), (64,)),
        ("N >= 2", (2, 3), (0, 1)),
        ("N > 2", (3,), (0, 2)),
        ("N in 1..=5", (1, 5), (0, 6)),
        ("N in 1..5", (1, 4), (0, 5)),
        ("N != 3", (0, 2, 4), (3,)),
        ("N == 4", (4,), (0, 3, 5)),
        ("N = 4*Q", (0, 4, 8), (1, 3, 5)),
        ("N = Q + 3", (3, 7), ()),
        ("N % 4 == N % 6", (0, 3, 12), (4, 5)),
        ("max(N, 3) == 3", (0, 3), (4,)),
    ],
)
def test_sizes_are_held_against_a_constraint(constraint: str, good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    def double(x: ts.Tensor["N", ts.f32]) -> Any:
        return x + x

    for first in good[:2]:
        function = ts.jit(double, constraints=constraint, backend="reference")
        function(zeros(first))
        for size in good:
            assert function(zeros(size)).shape == (size,)
        for size in bad:
            with pytest.raises(GuardError, match=r"x\.shape\[0\]"):
                function(zeros(size))
        assert function.cache_info().compiles == 1
    for size in bad:
        function = ts.jit(double, constraints=constraint, backend="reference")
        with pytest.raises(GuardError, match="must hold"):
            function(zeros(size))
        assert function.cache_info().misses == 0, "nothing is traced for sizes that are refused"


def test_compiled_code_checks_what_is_left_and_no_more() -> None:
    @ts.jit(constraints=["D % 8 == 0", "B in 1..=4096", "B <= 9999"])
    def rows(x: ts.Tensor["B", "D", ts.f32]) -> Any:
        ts.require(x.shape[1] % 4 == 0)
        return x.reshape(x.shape[0], x.shape[1] // 8, 8).sum(2)

    assert rows(zeros(2, 16)).shape == (2, 2)
    assert rows(zeros(1, 0)).shape == (1, 0)
    loaded: Any = rows.specializations[0].loaded
    checked = [guard.what for guard in loaded.executable.guards]
    assert checked == ["`D % 8 == 0`", "`B in 1..=4096`", "`B in 1..=4096`"]
    for shape, path in (((2, 20), "x.shape[1]"), ((0, 16), "x.shape[0]"), ((4097, 8), "x.shape[0]")):
        with pytest.raises(GuardError, match="must hold") as caught:
            rows(zeros(*shape))
        assert path in str(caught.value)
        assert f"{__file__}:" in str(caught.value) or "test_constraints.py:" in str(caught.value)
    assert rows.cache_info().compiles <= 1
    shown = str(rows.explain(zeros(2, 16)))
    assert "guard: D % 8 == 0 (at " in shown
    assert "proved: B <= 9999 (by B in 1..=4096)" in shown
    assert "proved: D % 4 == 0 (by D % 8 == 0)" in shown
    assert "proved: B*D == 8*(D // 8)*B (by D % 8 == 0)" in shown


# What is proved.


def test_a_derived_dim_makes_a_reshape_free() -> None:
    @reference("D = H*Dh")
    def heads(x: ts.Tensor["B", "S", "D", ts.f32], w: ts.Tensor["H", "Dh", ts.f32]) -> Any:
        return x.reshape(x.shape[0], x.shape[1], *w.shape) * w

    assert heads(zeros(2, 3, 8), zeros(2, 4)).shape == (2, 3, 2, 4)
    assert guards(heads, zeros(2, 3, 8), zeros(2, 4))[0] == "D == Dh*H"


def test_a_name_that_no_input_has_is_worked_out() -> None:
    @reference("D = heads*Dh", "Dh <= 64", "Dh >= 1")
    def split(x: ts.Tensor["B", "D", ts.f32], *, heads: int) -> Any:
        return x.reshape(x.shape[0], heads, x.shape[1] // heads)

    assert split(zeros(2, 32), heads=4).shape == (2, 4, 8)
    assert guards(split, zeros(2, 32), heads=4)[0] == "D == 4*(D floordiv 4)"
    with pytest.raises(GuardError, match=r"`D = heads\*Dh` must hold"):
        split(zeros(2, 30), heads=4)
    with pytest.raises(GuardError, match="`Dh <= 64` must hold"):
        split(zeros(2, 65), heads=1)


def test_requirements_in_a_body_may_use_what_the_declared_ones_work_out() -> None:
    @reference("D = heads*Dh")
    def split(x: ts.Tensor["B", "D", ts.f32], *, heads: int) -> Any:
        ts.require("Dh % 2 == 0")
        ts.require("B >= heads")
        return x.reshape(x.shape[0], heads, x.shape[1] // heads)

    assert split(zeros(4, 32), heads=4).shape == (4, 4, 8)
    with pytest.raises(TesseraError, match="`Dh % 2 == 0`"):
        split(zeros(4, 12), heads=4)
    with pytest.raises(TesseraError, match="`B >= heads`"):
        split(zeros(3, 32), heads=4)


@pytest.mark.parametrize("names", [("B", "D"), ("M", "N"), ("D", "heads")])
def test_requirements_in_a_nested_function_may_use_them_too(names: tuple[str, str]) -> None:
    @reference("D = heads*Dh")
    def split(x: ts.Tensor["B", "D", ts.f32], *, heads: int) -> Any:
        ts.require("Dh % 2 == 0")
        ts.require("B >= heads")
        return x.reshape(x.shape[0], heads, x.shape[1] // heads)

    def outer(y: Any) -> Any:
        return split(y, heads=4)

    static = reference()(outer)
    outer.__annotations__ = {"y": ts.Tensor[(*names, ts.f32)]}
    for function in (static, reference()(outer), reference()(lambda y: ts.checkpoint(outer)(y))):
        assert function(zeros(4, 32)).shape == (4, 4, 8)
        with pytest.raises(TesseraError, match="`Dh % 2 == 0`"):
            function(zeros(4, 12))
        with pytest.raises(TesseraError, match="`B >= heads`"):
            function(zeros(3, 32))


@pytest.mark.parametrize("rule", ["D = 2*Q + 6", "2*Q + 6 = D", "D - 2*Q = 6", "2*Q - D = -6"])
def test_a_name_is_worked_out_on_either_side(rule: str) -> None:
    @reference(rule, "Q in 1..=5")
    def f(x: ts.Tensor["D", ts.f32]) -> Any:
        return x

    assert [f(zeros(size)).shape for size in (8, 16)] == [(8,), (16,)]
    for size in (6, 9, 18):
        with pytest.raises(GuardError, match="must hold"):
            f(zeros(size))


def test_python_code_may_branch_on_what_constraints_decide() -> None:
    @reference("S <= 64", "S % 2 == 0")
    def f(x: ts.Tensor["S", ts.f32]) -> Any:
        assert x.shape[0] <= 100
        assert x.shape[0] != 3
        if x.shape[0] > 64:
            raise AssertionError
        if x.shape[0] == 8:
            return x
        return x

    with pytest.raises(SpecializationError, match="the branch `S == 8` depends"):
        f(zeros(8))


def test_equal_names_become_one() -> None:
    @reference("S == T")
    def f(x: ts.Tensor["S", ts.f32], y: ts.Tensor["T", ts.f32]) -> Any:
        return x + y

    assert guards(f, zeros(3), zeros(3)) == []
    assert f(zeros(3), zeros(3)).shape == (3,)
    with pytest.raises(GuardError, match="`S == T` must hold, but lhs is 3 and rhs is 4"):
        f(zeros(3), zeros(4))


def test_a_dim_that_a_constraint_fixes_is_a_number() -> None:
    @reference("B == 4")
    def f(x: ts.Tensor["B", ts.f32]) -> Any:
        assert x.shape == (4,)
        return x

    assert f(zeros(4)).shape == (4,)
    with pytest.raises(GuardError, match=r"`x.shape\[0\]` is 3, but `B == 4` must hold"):
        f(zeros(3))


def test_sizes_of_zero_and_one_are_sizes_like_others() -> None:
    @reference("N <= 8")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x + x

    for size in (1, 0, 8, 2):
        assert f(zeros(size)).shape == (size,)
    assert f.cache_info().compiles == 1


# Where they are written.


def test_constrain_stands_above_or_below_jit_and_more_than_once() -> None:
    @ts.constrain("N <= 64")
    @ts.jit(backend="reference", constraints="N >= 2")
    @ts.constrain("N % 2 == 0")
    @ts.constrain("N != 6")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x

    assert sorted(item.text for item in f.constraints) == ["N != 6", "N % 2 == 0", "N <= 64", "N >= 2"]
    assert "where " in repr(f)
    assert f(zeros(4)).shape == (4,)
    for size in (0, 3, 6, 66):
        with pytest.raises(GuardError):
            f(zeros(size))


def test_a_requirement_inside_a_loop_is_checked_before_it() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", "D", ts.f32]) -> Any:
        def step(total: Any, row: Any) -> Any:
            ts.require(row.shape[0] % 2 == 0)
            return total + row.reshape(2, row.shape[0] // 2).sum(), row

        return ts.scan(step, ts.ops.zeros(()), x)[0]

    assert f(zeros(3, 4)).shape == ()
    assert guards(f, zeros(3, 4))[0] == "(D mod 2) == 0"
    with pytest.raises(GuardError, match=r"`x.shape\[1\]` is 5, but `D % 2 == 0` must hold"):
        f(zeros(3, 5))


def test_the_constraints_of_a_function_that_is_called_by_another_are_its_own() -> None:
    @ts.jit(constraints=["D % 8 == 0", "D = H*Dh"])
    def inner(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["H", "Dh", ts.f32]) -> Any:
        return x.reshape(x.shape[0], *w.shape) + w

    @ts.jit(backend="reference")
    def outer(x: ts.Tensor["N", "E", ts.f32], w: ts.Tensor["G", "F", ts.f32]) -> Any:
        return inner(x, w)

    assert outer(zeros(2, 16), zeros(4, 4)).shape == (2, 4, 4)
    assert guards(outer, zeros(2, 16), zeros(4, 4))[:2] == ["(E mod 8) == 0", "E == F*G"]
    with pytest.raises(GuardError, match=r"`x.shape\[1\]` is 12, but `D % 8 == 0` must hold"):
        outer(zeros(2, 12), zeros(4, 3))


def test_a_constraint_of_a_call_names_its_own_sizes_alone() -> None:
    @reference("D = heads*Dh")
    def inner(x: ts.Tensor["B", "D", ts.f32], heads: int) -> Any:
        return x.reshape(x.shape[0], heads, x.shape[1] // heads)

    def outer(x: Any) -> Any:
        return inner(x, 4)

    assert ts.jit(outer, backend="reference")(zeros(3, 8)).shape == (3, 4, 2)
    with pytest.raises(ConstraintError) as caught:
        ts.jit(outer, backend="reference")(zeros(3, 10))
    assert "`D` is 10 from `x.shape[1]`" in str(caught.value)
    assert "`B` is" not in str(caught.value)


def test_a_name_that_nothing_gives_is_refused_in_a_call_too() -> None:
    @reference("D % 2 == 0")
    def inner(x: ts.Tensor["B", 4, "D // 2", ts.f32]) -> Any:
        return x

    with pytest.raises(ConstraintError, match="uses `D`, which is not a size here") as caught:
        ts.jit(lambda x: inner(x), backend="reference")(zeros(2, 4, 6))
    assert "the sizes are `B`\n" in str(caught.value)


def test_a_name_is_what_an_expression_of_it_makes_it() -> None:
    """`D` is half of a size that is declared as `2*D`, in constraints, in the body, and where functions are called."""

    @reference("D % 4 == 0")
    def halved(x: ts.Tensor["B", "2*D", ts.f32]) -> Any:
        return x.reshape(x.shape[0], 2, x.shape[1] // 2)

    assert halved(zeros(3, 8)).shape == (3, 2, 4)
    assert halved(zeros(3, 24)).shape == (3, 2, 12)
    for size in (4, 12, 9):
        with pytest.raises(GuardError, match=r"`x.shape\[1\]` is " + str(size)):
            halved(zeros(3, size))
    outer = ts.jit(lambda x: halved(x), backend="reference")
    assert outer(zeros(3, 16)).shape == (3, 2, 8)
    for size in (12, 9):
        with pytest.raises(ConstraintError, match="D % 4 == 0" if size == 12 else r"= 2\*D"):
            outer(zeros(3, size))

    @reference()
    def checked(x: ts.Tensor["2*D", ts.f32]) -> Any:
        ts.require("D >= 4")
        return x

    assert checked(zeros(8)).shape == (8,)
    with pytest.raises(GuardError, match=r"D >= 4"):
        checked(zeros(6))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_sizes_declared_by_one_name_alone_agree(backend: str) -> None:
    @ts.jit(backend=backend)
    def f(x: ts.Tensor["2*D", ts.f32], y: ts.Tensor["3*D + 1", ts.f32]) -> Any:
        return x.sum() + y.sum()

    for size in (1, 4):
        assert f(zeros(2 * size), zeros(3 * size + 1)).shape == ()
    for sizes in ((3, 4), (4, 8), (4, 4)):
        with pytest.raises((GuardError, RuntimeArgumentError)):
            f(zeros(sizes[0]), zeros(sizes[1]))


def test_dims_without_annotations_are_named_by_their_place() -> None:
    @reference("x_0 % 2 == 0", dynamic=True)
    def f(x: Any) -> Any:
        return x

    assert f(zeros(4)).shape == (4,)
    with pytest.raises(GuardError, match=r"`x.shape\[0\]` is 5"):
        f(zeros(5))


def test_names_that_index_maps_use_are_names_like_others() -> None:
    @reference("d0 % 2 == 0")
    def f(x: ts.Tensor["d0", ts.f32]) -> Any:
        return x

    assert f(zeros(4)).shape == (4,)
    with pytest.raises(GuardError, match="`d0 % 2 == 0` must hold"):
        f(zeros(5))


def test_require_outside_jit_checks_at_once() -> None:
    x = zeros(4, 6)
    ts.require(x.shape[0] == 4)
    ts.require("D % 2 == 0", D=x.shape[1])
    with pytest.raises(ConstraintError, match="`D % 4 == 0` does not hold: `D` is 6"):
        ts.require("D % 4 == 0", D=x.shape[1])
    with pytest.raises(ConstraintError, match="names `D`, which has no size outside `jit`"):
        ts.require("D % 4 == 0")
    with pytest.raises(ConstraintError, match=r"`x.shape\[0\] == 5` does not hold"):
        ts.require(x.shape[0] == 5)


def test_a_size_that_an_op_needs_may_contradict_a_constraint() -> None:
    w = ts.array(zeros(100, 4))

    @reference("D % 8 == 0")
    def f(x: ts.Tensor["B", "D", ts.f32]) -> Any:
        return x @ w

    with pytest.raises(ShapeError, match="D and 100 differ because of `D % 8 == 0`"):
        f(zeros(2, 96))


# Further down.


def test_guards_of_ir_prove_what_constraints_prove() -> None:
    known = Guards([(Dim.of("D % 8"), Dim.of(0), ""), (Dim.of("min(S, 64)"), Dim.of("S"), "")])
    assert known.are_equal(Dim.of("8*(D // 8)"), Dim.of("D"))
    assert known.are_equal(Dim.of("max(S, 64)"), Dim.of(64))
    assert not known.are_equal(Dim.of("16*(D // 16)"), Dim.of("D"))
    known.add(Dim.of("D % 16"), Dim.of(0), "")
    assert known.are_equal(Dim.of("16*(D // 16)"), Dim.of("D"))


def test_a_check_that_others_prove_is_dropped() -> None:
    pairs = [(Dim.of(left), Dim.of(right), what) for left, right, what in (("D % 8", 0, "a"), ("D % 4", 0, "b"))]
    assert [what for _, _, what in needed_checks(pairs)] == ["a"]
    assert [what for _, _, what in needed_checks(pairs[::-1])] == ["b", "a"]


def test_a_misspelt_size_is_corrected_and_a_broken_rule_says_where_its_sizes_are() -> None:
    def f(x: ts.Tensor["Batch", "Heads", ts.f32]) -> Any:
        return x * 2.0

    with pytest.raises(ConstraintError) as caught:
        ts.jit(f, constraints=["Bach % 2 == 0"])(np.ones((2, 4), np.float32))
    assert "there is a size named `Batch`" in str(caught.value)
    assert "Batch % 2 == 0" in str(caught.value)
    with pytest.raises((ConstraintError, GuardError)) as caught:
        ts.jit(f, constraints=["Batch % 2 == 0"])(np.ones((3, 4), np.float32))
    assert "x.shape[0]" in str(caught.value)


def test_a_clash_names_where_each_size_comes_from() -> None:
    @reference("D % 8 == 0", "S <= 4")
    def f(x: ts.Tensor["S", "D", ts.f32], y: ts.Tensor["D", ts.f32]) -> Any:
        ts.require(x.shape[1] == 12)
        return x + y

    with pytest.raises((ConstraintError, GuardError)) as caught:
        f(zeros(2, 12), zeros(12))
    assert "x.shape[1]" in str(caught.value)


def test_the_next_size_that_satisfies_all_constraints() -> None:
    def nearest(size: int, *rules: str) -> int | None:
        return _next_size([Constraint.parse(rule) for rule in rules], "S", size)

    assert nearest(9, "S % 8 == 0") == 16
    assert nearest(9, "S % 8 == 0", "S <= 8") == 8
    assert nearest(9, "S % 8 == 0", "S in 8..=15") == 8
    assert nearest(9, "S % 8 == 0", "S in 1..=7") is None
    assert nearest(2, "S % 8 == 0", "S <= 7") is None
    assert nearest(2, "S <= 1") == 1
    assert nearest(1, "S < 1") is None
    assert nearest(2, "S in 5..=6") == 5
    assert nearest(9, "S in 5..=6") == 6
    assert nearest(5, "S != 5") == 6
    assert nearest(0, "S % 8 == 0") is None
    assert nearest(1, "S % 4097 == 0") == 4097
    assert nearest(1, "S % 4098 == 0") is None or nearest(1, "S % 4098 == 0") == 4098
    rules = ("S % 3 == 1", "S in 2..=9", "S <= 1", "S != 4", "S >= 7", "S % 2 == 0", "2*S < 9")
    for pair, size in product(combinations(rules, 2), range(1, 13)):
        fitting = [one for one in range(1, 40) if all(Constraint.parse(rule).holds({"S": one}) for rule in pair)]
        larger, smaller = [one for one in fitting if one > size], [one for one in fitting if one < size]
        assert nearest(size, *pair) == next(iter([*larger[:1], *smaller[-1:]]), None), (pair, size)


def test_a_constraint_is_marked_at_its_literal_inside_of_the_call(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("f(\n    'D % 8 == 0',\n    rule,\n)\nrule = 'S <= 4'\n", encoding="utf-8")
    call = Span(str(file), 1, 1, 4, 2)
    spans = [one.span for one in parse_constraints(["D % 8 == 0", "S <= 4"], call)]
    assert spans == [Span(str(file), 2, 5, 2, 17), call], "a text that is no literal of the call is marked by the call"
    (alone,) = parse_constraints("S <= 4", Span(str(file), 5, 8))
    assert alone.span == Span(str(file), 5, 8, 5, 16)
    assert parse_constraints("S <= 4")[0].span is None


def test_a_size_of_several_inputs_is_shown_at_the_first() -> None:
    @reference("D % 8 == 0")
    def f(x: ts.Tensor["B", "D", ts.f32], y: ts.Tensor["D", ts.f32]) -> Any:
        ts.require(y.shape[0] % 8 == 3)
        return x + y

    with pytest.raises(ConstraintError) as caught:
        f(zeros(2, 16), zeros(16))
    shown = [note for note in caught.value.notes if "`D` is" in note]
    assert shown == ["`D` is `x.shape[1]`"]


def test_a_constraint_of_two_sizes_has_no_padding_to_offer() -> None:
    def inner(x: ts.Tensor["A", "B", ts.f32]) -> Any:
        return x * 2.0

    def call(rule: str) -> ConstraintError:
        checked = ts.jit(constraints=[rule], backend="reference")(inner)
        with pytest.raises(ConstraintError) as caught:
            ts.jit(lambda x: checked(x), backend="reference")(zeros(3, 12))
        return caught.value

    assert call("A % 4 == 0").fix is not None
    assert call("A*B % 5 == 0").fix is None
    assert call("A == B").fix is None


def test_an_argument_of_another_rank_is_named_inside_of_a_function() -> None:
    @reference("B % 4 == 0")
    def inner(x: ts.Tensor["A", "B", ts.f32]) -> Any:
        return x * 2.0

    with pytest.raises(TesseraError):
        ts.jit(lambda x: inner(x), backend="reference")(zeros(12))
