"""All programs of the replay, by family and name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.gpu_cases import CASES, DTYPES
from tests.device.cases import chosen
from tests.numerics.families import forms_of
from tests.numerics.forms import case_of, joint_program
from tests.replay import contractions, gradients, programs, rows
from tests.replay.case import EVERYWHERE, MAIN, Case, Sample
from tests.target.samples import NAMES

FITTING: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("attention", "causal"), tuple(name for name in EVERYWHERE if name != "gpu-sm_80")
)
"""Samples whose tiles, fixed as they are, need more shared memory than each machine has."""
MOST_FORMS = 2
"""Of an op in its first dtype; in other dtypes one form is enough."""


def _samples() -> dict[str, Case | Sample]:
    return {name: Sample(name, FITTING.get(name, EVERYWHERE)) for name in NAMES}


def _benchmarks() -> dict[str, Case | Sample]:
    """The kernels that are measured on GPUs; those that ask for something go where it is understood."""
    return {
        name: Case(
            one.function,
            lambda one=one: [np.zeros(shape, DTYPES[one.dtype]) for shape in one.shapes],
            {"overrides": one.overrides},
            ("gpu-sm_90a",) if one.overrides else MAIN,
        )
        for name, one in CASES.items()
    }


def _ops() -> dict[str, Case | Sample]:
    """Every op of the graph in the forms that its numbers are tested in, all dims symbolic."""
    found: dict[str, Case | Sample] = {}
    seen: set[str] = set()
    for spec, dtype in chosen():
        forms = [form for form in forms_of(spec, dtype) if not form.is_fixed]
        forms = forms[: 1 if spec.short_name in seen else MOST_FORMS]
        machines = MAIN[:1] if spec.short_name in seen else MAIN
        seen.add(spec.short_name)
        if forms:
            found[f"{spec.short_name}-{dtype}"] = Case(
                joint_program(spec, dtype, forms).function,
                lambda spec=spec, dtype=dtype, forms=forms: [
                    array for form in forms for array in case_of(spec, dtype, form, len(form.sizes) // 2).given
                ],
                machines=machines,
            )
    return found


FAMILIES: dict[str, Callable[[], Mapping[str, Case | Sample]]] = {
    "samples": _samples,
    "benchmarks": _benchmarks,
    "ops": _ops,
    "matmul": contractions.matmul_cases,
    "epilogues": contractions.epilogue_cases,
    "quantized": contractions.quantized_cases,
    "convolutions": contractions.convolution_cases,
    "attention": contractions.attention_cases,
    "norms": rows.norm_cases,
    "reductions": rows.reduction_cases,
    "order": rows.order_cases,
    "movement": rows.movement_cases,
    "elementwise": rows.elementwise_cases,
    "random": rows.random_cases,
    "kernels": programs.kernel_cases,
    "models": programs.model_cases,
    "control": programs.control_cases,
    "collectives": programs.collective_cases,
    "builds": programs.build_cases,
    "gradients": gradients.gradient_cases,
}


ON_MAIN = {"reductions", "order", "movement", "elementwise", "random", "kernels", "models", "control", "builds"}
"""Families whose code depends neither on tensor cores nor on the width of vectors."""


@cache
def cases_of(family: str) -> Mapping[str, Case | Sample]:
    """The programs of a family by name."""
    found = FAMILIES[family]()
    if family not in ON_MAIN:
        return found
    return {name: replace(one, machines=MAIN) if one.machines == EVERYWHERE else one for name, one in found.items()}
