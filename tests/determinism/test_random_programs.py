"""Random programs give the same bits fused or op by op, by wide vectors or narrow ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.ir.target.architectures import host_machine
from tests.fuzz.bindings import loss_of, tessera_names
from tests.fuzz.differentiable import differentiable_program
from tests.fuzz.generate import random_program

PROGRAMS, BATCH = 8, 4
"""Those that are held against the interpreter too: what they compile to by themselves is in the cache of a run then."""


def ways() -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways to compile a program that must not show in its bits."""
    yield "op by op", {"fusion": False}
    features = host_machine().features
    if "avx512f" in features:
        yield "by narrow vectors", {"features": tuple(name for name in features if not name.startswith("avx512"))}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_bits_do_not_depend_on_how_a_program_is_compiled(first: int) -> None:
    for seed in range(first, first + BATCH):
        program = random_program(seed)
        arrays = program.arrays(program.sizes[0])
        with np.errstate(all="ignore"):
            expected = [np.asarray(item) for item in program.jitted()(*arrays)]
            for name, options in ways():
                for ours, theirs in zip(program.jitted(**options)(*arrays), expected, strict=True):
                    message = f"program {seed} {name}:\n\n{program.script}"
                    np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=message)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [200, 202])
def test_nor_do_the_bits_of_a_gradient(seed: int) -> None:
    """Nor those of the value beside it, which are those of the function alone; the interpreter gives the same."""
    program = differentiable_program(seed)
    arrays = program.arrays(program.sizes[0])
    about = tuple(at for at, array in enumerate(arrays) if array.dtype.kind == "f")
    loss = loss_of(program, tessera_names())

    def run(about: tuple[int, ...] = about, loss: Any = loss, arrays: Any = arrays, **options: Any) -> list[Any]:
        value, found = ts.value_and_grad(ts.jit(loss, **options), about)(*arrays)
        return [np.asarray(value), *map(np.asarray, found)]

    expected = run()
    assert expected[0].tobytes() == np.asarray(ts.jit(loss)(*arrays)).tobytes(), program.text
    for name, options in ways():
        for ours, theirs in zip(run(**options), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=f"program {seed} {name}:\n\n{program.text}")
    for ours, theirs in zip(run(backend="reference"), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=program.text)
