"""Every graph op: compiled results equal its reference, in each dtype, on twenty shapes that one compilation serves."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.diagnostics.error import TesseraError
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dtype import DType
from tests.numerics.bounds import assert_close
from tests.numerics.families import COLLECTIVE, CONTROL, forms_of, tried
from tests.numerics.forms import Form, case_of, program, results

NOT_YET: dict[str, str] = {}
"""Ops that no kernel computes yet, and the error each raises; a test fails when one starts to work."""

CASES = [pytest.param(spec, dtype, id=f"{spec.short_name}-{dtype}") for spec, dtype in tried()]
WORKING = [case for case, (spec, _) in zip(CASES, tried(), strict=True) if spec.short_name not in NOT_YET]


def run_sizes(spec: OpSpec, dtype: DType, form: Form, *, static: tuple[int, ...] | None = None) -> None:
    """All sizes of a form through one program, or some through a program each, against the reference."""
    free = program(spec, dtype, form) if static is None else None
    for number in range(len(form.sizes)) if static is None else static:
        case = case_of(spec, dtype, form, number)
        function = free or program(spec, dtype, form, form.sizes[number])
        where = f"{spec.short_name} {dtype} {form.name!r} {dict(form.sizes[number])} {'free' if free else 'static'}"
        try:
            given = results(function(*case.given))
        except TesseraError as error:
            raise AssertionError(f"{where}: {error}") from error
        assert_close(spec, case.arrays, case.attributes, given, where)
    if free is not None:
        assert free.cache_info().misses == 1, f"{spec.short_name} {form.name!r} was not served by one compilation"


@pytest.mark.parametrize(("spec", "dtype"), WORKING)
def test_compiled_results_equal_the_reference(spec: OpSpec, dtype: DType) -> None:
    forms = forms_of(spec, dtype)
    for form in forms:
        if form.is_fixed:
            run_sizes(spec, dtype, form, static=tuple(range(len(form.sizes))))
        else:
            run_sizes(spec, dtype, form)
    main = forms[0]
    if not main.is_fixed:
        run_sizes(spec, dtype, main, static=(len(main.sizes) // 2, len(main.sizes) - 1))


@pytest.mark.parametrize("name", NOT_YET)
def test_ops_without_a_kernel_say_so(name: str) -> None:
    spec = REGISTRY[name]
    dtype = next(dtype for own, dtype in tried() if own is spec)
    form = forms_of(spec, dtype)[0]
    case = case_of(spec, dtype, form, len(form.sizes) // 2)
    with pytest.raises(TesseraError) as caught:
        program(spec, dtype, form)(*case.given)
    assert caught.value.code == NOT_YET[name], f"`{name}` fails otherwise now: {caught.value}"


@pytest.mark.parametrize(("spec", "dtype"), CASES)
def test_shapes_are_twenty_and_difficult(spec: OpSpec, dtype: DType) -> None:
    forms = forms_of(spec, dtype)
    sizes = [
        size
        for form in forms
        for one in form.sizes
        for shape in form.shapes(one) or [tuple(one.values())]
        for size in shape
    ]
    assert sum(len(form.sizes) for form in forms) >= 20
    assert {0, 1} <= set(sizes)
    assert any(size > 2 and all(size % divisor for divisor in range(2, size)) for size in sizes)
    most = max(form.elements(one) for form in forms for one in form.sizes)
    assert most > 2**16 or spec.short_name in ("constant", "linspace")


def test_every_op_is_tried() -> None:
    known = {spec.short_name for spec, _ in tried()} | COLLECTIVE | CONTROL
    assert known == {spec.short_name for spec in REGISTRY}
    assert set(NOT_YET) <= known


def test_layouts_keep_the_values() -> None:
    spec, dtype = next((spec, dtype) for spec, dtype in tried() if spec.short_name == "add")
    form = forms_of(spec, dtype)[0]
    strides: set[str] = set()
    for number in range(len(form.sizes)):
        case = case_of(spec, dtype, form, number)
        for array, given in zip(case.arrays, case.given, strict=True):
            np.testing.assert_array_equal(array, given)
            strides.add("back" if min(given.strides, default=1) < 0 else "gaps" if not given.flags.contiguous else "")
    assert strides >= {"back", "gaps", ""}
