"""Every graph op: compiled results equal its reference, by dtype, on twenty shapes that one compilation serves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tessera.diagnostics.error import TesseraError
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.samples import sample_dtype
from tessera.ir.tile.facets import Reduction
from tessera.types.dtype import BY_NAME, DType
from tests.numerics.bounds import assert_close
from tests.numerics.families import BY_BYTES, CONTROL, chosen, forms_of, is_sampled
from tests.numerics.forms import Form, case_of, free_program, joint_program, results, static_program, turn_of

NOT_YET: dict[str, str] = {}
"""Ops that no kernel computes yet, and the error each raises; a test fails when one starts to work."""

CASES = [pytest.param(spec, dtype, id=f"{spec.short_name}-{dtype}") for spec, dtype in chosen()]
WORKING = [case for case, (spec, _) in zip(CASES, chosen(), strict=True) if spec.short_name not in NOT_YET]


def run_free(spec: OpSpec, dtype: DType, forms: Sequence[Form]) -> None:
    """All sizes of all forms through one program, against the reference."""
    function = joint_program(spec, dtype, forms)
    for number in range(max(len(form.sizes) for form in forms)):
        # A form that has shown all its sizes takes its first again, and is not looked at.
        cases = [case_of(spec, dtype, form, number if number < len(form.sizes) else 0) for form in forms]
        outcome = function(*(array for case in cases for array in case.given))
        for form, case, given in zip(forms, cases, outcome, strict=True):
            if number < len(form.sizes):
                where = f"{spec.short_name} {dtype} {form.name!r} {dict(form.sizes[number])}, free"
                assert_close(spec, case.arrays, case.attributes, results(given), where)
    assert function.cache_info().misses == 1, f"{spec.short_name} {dtype} was not served by one compilation"


def run_static(spec: OpSpec, dtype: DType, form: Form, numbers: Sequence[int]) -> None:
    """Some sizes of a form where the compiler knows them."""
    function = static_program(spec, dtype, form, [form.sizes[number] for number in numbers])
    cases = [case_of(spec, dtype, form, number) for number in numbers]
    outcome = function(*(array for case in cases for array in case.given))
    for number, case, given in zip(numbers, cases, outcome, strict=True):
        where = f"{spec.short_name} {dtype} {form.name!r} {dict(form.sizes[number])}, static"
        assert_close(spec, case.arrays, case.attributes, results(given), where)


@pytest.mark.parametrize(("spec", "dtype"), WORKING)
def test_compiled_results_equal_the_reference(spec: OpSpec, dtype: DType) -> None:
    forms = forms_of(spec, dtype)
    for form in forms:
        if form.is_fixed:
            run_static(spec, dtype, form, range(len(form.sizes)))
    free = [form for form in forms if not form.is_fixed]
    if free:
        run_free(spec, dtype, free)
    known = () if forms[0].is_fixed else known_sizes(spec, dtype, forms[0])
    if known:
        run_static(spec, dtype, forms[0], known)


def known_sizes(spec: OpSpec, dtype: DType, form: Form) -> Sequence[int]:
    """Which sizes of a form are compiled as known: of an op's first dtype a middle and the last one, else one or none.

    Dtypes and ops take turns, so that each meets both. An op that only moves elements knows sizes in one dtype.
    """
    both = len(form.sizes) // 2, len(form.sizes) - 1
    if dtype.name == sample_dtype(spec):
        return both
    if spec.short_name in BY_BYTES:
        return ()
    return {0: both[:1], 3: both[1:]}.get(turn_of(spec, dtype) % 6, ())


@pytest.mark.parametrize("name", NOT_YET)
def test_ops_without_a_kernel_say_so(name: str) -> None:
    spec = REGISTRY[name]
    dtype = next(dtype for own, dtype in chosen() if own is spec)
    form = forms_of(spec, dtype)[0]
    case = case_of(spec, dtype, form, len(form.sizes) // 2)
    with pytest.raises(TesseraError) as caught:
        free_program(spec, dtype, form)(*case.given)
    assert caught.value.code == NOT_YET[name], f"`{name}` fails otherwise now: {caught.value}"


def test_shapes_are_twenty_and_difficult() -> None:
    for spec, dtype in chosen():
        if is_sampled(spec):
            continue
        forms = forms_of(spec, dtype)
        where = f"{spec.short_name} {dtype}"
        sizes = [size for form in forms for one in form.sizes for size in one.values()]
        assert sum(len(form.sizes) for form in forms) >= 20, where
        assert {0, 1} <= set(sizes), where
        assert any(size > 2 and all(size % divisor for divisor in range(2, size)) for size in sizes), where
        most = max(form.elements(one) for form in forms for one in form.sizes)
        assert most > 2**16 or spec.short_name in ("constant", "linspace"), where


def test_contractions_have_one_segment_and_several() -> None:
    """The reference is asked for the segments that sizes decide, and every op that has some is tried with several."""
    cut = [(spec, dtype) for spec, dtype in chosen() if spec.attribute_rule is not None]
    assert {"matmul", "dot_general", "conv_weights"} <= {spec.short_name for spec, _ in cut}
    for spec, dtype in cut:
        form = forms_of(spec, dtype)[0]
        lengths = [case_of(spec, dtype, form, number).attributes["segment"] for number in range(len(form.sizes))]
        assert None in lengths, spec.name
        assert any(length is not None for length in lengths), spec.name


def test_every_op_is_chosen() -> None:
    known = {spec.short_name for spec, _ in chosen()} | CONTROL
    assert known == {spec.short_name for spec in REGISTRY}
    assert set(NOT_YET) <= known


def test_every_op_and_every_dtype_is_compiled_for_sizes_of_both_kinds() -> None:
    """Middle and last sizes are shared out over dtypes; neither an op nor a dtype goes without one of them."""
    last: dict[str, set[bool]] = {}
    for spec, dtype in chosen():
        if is_sampled(spec):
            continue
        form = forms_of(spec, dtype)[0]
        for number in known_sizes(spec, dtype, form):
            for who in (spec.short_name, dtype.name):
                last.setdefault(who, set()).add(number == len(form.sizes) - 1)
    assert {who for who, kinds in last.items() if kinds != {False, True}} == set()


def test_every_reduction_and_every_dtype_goes_over_columns() -> None:
    """Columns are shared out over dtypes; every other dtype of a reduction has them, and the first has them always."""
    reductions = [(spec, dtype) for spec, dtype in chosen() if isinstance(spec.lower, Reduction)]
    over: dict[str, list[bool]] = {}
    for spec, dtype in reductions:
        has = any(form.name == "columns" for form in forms_of(spec, dtype))
        assert has or dtype.name != sample_dtype(spec)
        for who in (spec.short_name, dtype.name):
            over.setdefault(who, []).append(has)
    assert {who: found for who, found in over.items() if sum(found) < max(1, len(found) // 2 - 1)} == {}


def test_layouts_keep_the_values() -> None:
    spec, dtype = next((spec, dtype) for spec, dtype in chosen() if spec.short_name == "add")
    form = forms_of(spec, dtype)[0]
    strides: set[str] = set()
    for number in range(len(form.sizes)):
        case = case_of(spec, dtype, form, number)
        for array, given in zip(case.arrays, case.given, strict=True):
            np.testing.assert_array_equal(array, given)
            strides.add("back" if min(given.strides, default=1) < 0 else "gaps" if not given.flags.contiguous else "")
    assert strides >= {"back", "gaps", ""}


@pytest.mark.parametrize("name", ["add", "sum", "exp", "softmax", "matmul", "layernorm_safe", "attention"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
def test_a_wrong_result_is_noticed(name: str, kind: str) -> None:
    """Bounds that let anything through would prove nothing: moved by a few thousandths, every op's result fails."""
    spec, dtype = REGISTRY[name], BY_NAME[kind]
    form = forms_of(spec, dtype)[0]
    case = case_of(spec, dtype, form, 6)
    assert spec.reference is not None
    right = np.asarray(spec.reference(*case.arrays, **case.attributes))
    assert_close(spec, case.arrays, case.attributes, [right], "right")
    wrong = (right.astype(np.float64) * (1 + 2.0**-6) + 2.0**-8).astype(right.dtype)
    with pytest.raises(AssertionError, match="are wrong"):
        assert_close(spec, case.arrays, case.attributes, [wrong], "wrong")
