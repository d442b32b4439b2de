"""Debug builds look at indices before they are used: what is outside is named, what is inside changes nothing."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.api.compilation import cache_key
from tessera.compiler.options import Options
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes.decompose import Decompose
from tests.graph.outside import X, check_inside, named_outside

USES: dict[str, Callable[[Any, Any], Any]] = {
    "x[i]": lambda x, i: x[i],
    "x[i, i]": lambda x, i: x[i, i % 3],
    "take": lambda x, i: ops.take(x, i, axis=0),
    "embedding": lambda x, i: ops.embedding(x, i),
    "gather": lambda x, i: ops.gather(x, ops.stack([i, i % 3], axis=-1)),
    "take_along_axis": lambda x, i: ops.take_along_axis(x, ops.broadcast_to(i[:, None], (i.shape[0], 3)), axis=0),
    "scatter": lambda x, i: ops.scatter(x, i, ops.ones((i.shape[0], 3)), axis=0),
    "scatter_add": lambda x, i: ops.scatter_add(x, i, ops.ones((i.shape[0], 3)), axis=0),
}


@pytest.mark.parametrize("use", USES)
def test_an_index_outside_is_named_and_others_change_nothing(use: str) -> None:
    plain, checked = ts.jit(USES[use], dynamic=True), ts.jit(USES[use], dynamic=True, debug=True)
    check_inside(checked, plain)
    assert {span.file for span in named_outside(checked)} == {__file__}
    assert checked.cache_info().misses == 1
    assert checked.effects == plain.effects


def test_no_indices_and_programs_without_any() -> None:
    checked = ts.jit(USES["x[i]"], dynamic=True, debug=True)
    assert checked(X, np.zeros(0, np.int64)).shape == (0, 3)
    assert "callback" not in ts.jit(lambda x: x[1:] * 2.0, debug=True).lower(X).schedule


def test_a_debug_build_of_the_same_program_on_another_line_is_another_one() -> None:
    first = ts.jit(lambda x, i: x[i])
    second = ts.jit(lambda x, i: x[i])
    tapes = [one.trace(X, np.array([0])).tape for one in (first, second)]
    assert cache_key(tapes[0], Options()) == cache_key(tapes[1], Options())
    assert cache_key(tapes[0], Options(debug=True)) != cache_key(tapes[1], Options(debug=True))


@given(st.lists(st.integers(-4, 3), max_size=6), st.sampled_from(sorted(USES)))
def test_checks_keep_the_meaning(indices: list[int], use: str) -> None:
    arrays = X, np.array(indices, np.int64)
    tape = ts.jit(USES[use]).trace(*arrays).tape
    results: list[Any] = []
    for checks in (False, True):
        module = from_tape(tape)
        Decompose(checks=checks).run(module)
        verify(module)
        function = symbol_table(module)["main"]
        results.append(interpret(function, *arrays))
        found = [op for op in module.walk() if isinstance(op, SpecOp) and op.values().get("checked") is not None]
        assert bool(found) == checks
    for left, right in zip(*results, strict=True):
        np.testing.assert_array_equal(left, right)


def test_draws_stay_draws_beside_checks() -> None:
    @ts.jit(debug=True)
    def noisy(x: Any, i: Any, key: Any) -> Any:
        return x[i] + ts.random.uniform(key, (i.shape[0], 3))

    plain = ts.jit(noisy.function)
    given = X, np.array([0, 3]), ts.random.key(1)
    np.testing.assert_array_equal(np.asarray(noisy(*given)), np.asarray(plain(*given)))
    assert noisy.effects == {"random"}
    assert ts.jit(lambda key: ts.random.bits(key, (3,)), debug=True)(ts.random.key(1)).shape == (3,)
