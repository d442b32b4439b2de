"""Contractions beside collectives in chunks: the bits of the whole on ranks, and exchanges between their matmuls."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import dist, ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.graph.collective_chunks import CHUNKS, OverlapFacts, choose_chunks, time_in_chunks
from tessera.ir.graph.sharding.insertion import Costs
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.planning.overlap import predict, tasks_of
from tessera.types.topology import topology_of
from tests.runtime.ranks.threads import on_ranks

RANKS = 4
RNG = np.random.default_rng(3)


def values(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X, WIDE, W, V = values(RANKS, 8, 12), values(RANKS, 32, 12), values(12, 20), values(20, 6)


def gather_multiply(x: Any, _: Any, w: Any, v: Any) -> Any:
    return dist.all_gather(x, "tp") @ w


def multiply_scatter(_: Any, x: Any, w: Any, v: Any) -> Any:
    return dist.reduce_scatter(x @ w, "tp")


def scatter_multiply_gather(_: Any, x: Any, w: Any, v: Any) -> Any:
    """RS_MM_AG."""
    return dist.all_gather(dist.reduce_scatter(x, "tp") @ w, "tp")


def multiply_reduce(x: Any, _: Any, w: Any, v: Any) -> Any:
    return dist.all_reduce(x @ w, "tp")


def both_ends(x: Any, _: Any, w: Any, v: Any) -> Any:
    return dist.reduce_scatter(dist.all_gather(x, "tp") @ w, "tp")


def two_readers(x: Any, _: Any, w: Any, v: Any) -> Any:
    """The gathered rows are read by two matmuls, and as they are."""
    whole = dist.all_gather(x, "tp")
    return whole @ w, ops.matmul(whole, w * 2.0), whole.sum(axis=0)


def one_behind_the_other(_: Any, x: Any, w: Any, v: Any) -> Any:
    """What one gives in chunks is what the other reads in chunks."""
    return dist.reduce_scatter(dist.all_gather(dist.reduce_scatter(x, "tp") @ w, "tp") @ v, "tp")


def columns(x: Any, _: Any, w: Any, v: Any) -> Any:
    """Along the columns of the second operand."""
    return ops.matmul(w.T, dist.all_gather(x.T, "tp", 1))


def layer(x: Any, _: Any, w: Any, v: Any) -> Any:
    """A sequence-parallel layer, with what stands between its matmuls."""
    return dist.reduce_scatter(ops.gelu(dist.all_gather(x, "tp") @ w) @ v, "tp")


def batched(x: Any, _: Any, w: Any, v: Any) -> Any:
    heads = ops.reshape(x, (4, 2, 12))
    return dist.all_gather(heads, "tp", 1) @ ops.broadcast_to(w, (4, 12, 20))


PROGRAMS: tuple[Callable[..., Any], ...] = (
    gather_multiply,
    multiply_scatter,
    scatter_multiply_gather,
    multiply_reduce,
    both_ends,
    two_readers,
    one_behind_the_other,
    columns,
    layer,
    batched,
)


def run(program: Any, chunks: int) -> tuple[list[Any], str]:
    """The results of each rank as bytes, and the plan of the program."""
    made: Any = ts.jit(program, overrides={"collectives.chunks": chunks})

    def one(rank: int) -> Any:
        found: Any = made(X[rank], WIDE[rank], W, V)
        return [np.asarray(part) for part in (found if isinstance(found, tuple) else (found,))]

    found = on_ranks(one, tp=RANKS)
    for one_rank in found:
        if isinstance(one_rank, Exception):
            raise one_rank
    with dist.mesh(tp=RANKS):
        return found, made.lower(X[0], WIDE[0], W, V).schedule


def contractions_beside(schedule: str) -> int:
    """How many contractions stand between the start of some collective and its wait."""
    under_way, found = 0, 0
    for line in schedule.splitlines():
        under_way += line.count("tsched.collective_start") - line.count("tsched.collective_wait")
        found += under_way > 0 and "tsched.call @" in line and "matmul" in line
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_f6_a_collective_matmul_in_chunks_has_the_bits_of_the_whole(program: Any) -> None:
    plain, whole = run(program, 1)
    found, chunked = run(program, 2)
    for left, right in zip(plain, found, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)
    assert chunked.count("collective_start %") == 2 * whole.count("collective_start %")


MESHES: list[dict[str, int]] = [{"dp": 2}, {"dp": 4}, {"dp": 2, "tp": 2}]
STEPS: tuple[Callable[[Any, Any, str, int], Any], ...] = (
    lambda x, w, axis, dim: dist.all_gather(dist.reduce_scatter(x, axis, 0) @ w, axis, 0),
    lambda x, w, axis, dim: dist.reduce_scatter(dist.all_gather(x, axis, 0) @ w, axis, 0),
    lambda x, w, axis, dim: dist.all_gather(dist.reduce_scatter(x @ w, axis, dim), axis, dim),
    lambda x, w, axis, dim: dist.all_gather(x, axis, dim)[:16, :16] @ w,
    lambda x, w, axis, dim: dist.all_reduce(x @ w, axis, "max" if dim else "sum"),
    lambda x, w, axis, dim: ops.tanh(x) + x.sum(axis=0, keepdims=True) * 0.125,
)


def draw_program(seed: int, axes: list[str]) -> Callable[..., Any]:
    """Collectives and matmuls of one another; the first is RS_MM_AG."""

    def run(x: Any, w: Any) -> Any:
        draw, values = random.Random(seed), [STEPS[0](x, w, axes[0], 0)]
        for _ in range(4):
            step, value = draw.choice(STEPS), draw.choice([x, *values])
            values.append(step(value, w, draw.choice(axes), draw.randrange(2)) * 0.25)
        return tuple(values)

    return run


@pytest.mark.parametrize("seed", range(6))
def test_f6_drawn_programs_in_chunks_have_the_bits_of_the_whole(seed: int) -> None:
    mesh = MESHES[seed % len(MESHES)]
    data, w = np.random.default_rng(seed).standard_normal((4, 16, 16)).astype(np.float32), values(16, 16)

    def found(chunks: int) -> list[Any]:
        made: Any = ts.jit(draw_program(seed, list(mesh)), overrides={"collectives.chunks": chunks})
        return on_ranks(lambda rank: [np.asarray(one).tobytes() for one in made(data[rank], w)], **mesh)

    plain = found(1)
    assert not any(isinstance(one, Exception) for one in plain), plain
    assert found(2) == plain


def test_f6_matmuls_run_while_other_chunks_are_under_way() -> None:
    for program in (scatter_multiply_gather, gather_multiply, multiply_scatter):
        assert contractions_beside(run(program, 1)[1]) == 0, program.__name__
        assert contractions_beside(run(program, 4)[1]) >= 3, program.__name__


def test_f6_both_streams_of_a_timeline_are_busy_together() -> None:
    """The schedule, predicted from the costs that are written on it: kernels run while chunks are exchanged."""
    topology = topology_of({"devices": RANKS})

    def hidden(chunks: int) -> float:
        made = ts.jit(scatter_multiply_gather, overrides={"collectives.chunks": chunks})
        with dist.mesh(tp=RANKS):
            tape = made.trace(WIDE[0], values(1024, 256), values(256, 512), V).tape
        module = lower(tape, Options.of(overrides={"collectives.chunks": chunks})).module
        (program,) = list(programs_in(module))
        return predict(tasks_of(program, {}, topology)).hidden

    assert hidden(1) == 0
    assert hidden(4) > 0


# The model, and who decides.


@given(st.floats(0, 1e8), st.floats(0, 1e8), st.floats(0, 1e10), st.sampled_from(CHUNKS))
def test_a_model_in_chunks_loses_nothing_and_hides_no_more_than_there_is(
    received: float, sent: float, operations: float, count: int
) -> None:
    costs, facts = Costs(latency=0.0), OverlapFacts(received, sent, operations, 0.0)
    whole, chunked = (time_in_chunks(facts, one, costs) for one in (1, count))
    link, unit = (received + sent) / costs.bandwidth, operations / costs.flops
    assert whole == pytest.approx(link + unit)
    assert max(link, unit) * (1 - 1e-9) <= chunked <= whole * (1 + 1e-9)
    assert choose_chunks(CHUNKS, {"overlap": facts}, costs) in CHUNKS


def test_f6_it_is_automatic_where_it_pays_and_a_choice() -> None:
    large, small, weight = (np.ones(shape, np.float32) for shape in ((2048, 512), (8, 12), (512, 64)))

    def starts(x: Any, w: Any, **overrides: Any) -> int:
        with dist.mesh(tp=RANKS):
            text = ts.jit(lambda x, w: dist.all_gather(x, "tp") @ w, overrides=overrides).lower(x, w).schedule
        return text.count("collective_start %")

    assert starts(large, weight) > 2
    assert starts(small, W) == 2  # a plan shows it as a group and as a call
    assert starts(large, weight, **{"collectives.chunks": 1}) == 2
    assert starts(small, W, **{"collectives.chunks": 16}) == 16  # of 8 rows, as many chunks as divide them


def test_what_is_left_alone() -> None:
    programs: list[Any] = [
        lambda x, y, w, v: dist.all_gather(w, "tp", 1) @ dist.all_gather(v, "tp"),  # contracted: another order of sums
        lambda x, y, w, v: (x @ w, dist.all_reduce(x @ w, "tp") + (x @ w)),  # others read what is summed
        lambda x, y, w, v: dist.all_gather(x[:1], "tp") @ w,  # one row
        lambda x, y, w, v: dist.reduce_scatter(dist.reduce_scatter(y, "tp") @ w, "tp"),  # rows of ranks of ranks
    ]
    for number, program in enumerate(programs):
        with dist.mesh(tp=RANKS):
            makes: list[Any] = [
                ts.jit(program, overrides=given)
                for given in ({"collectives.overlap": True}, {"collectives.overlap": False})
            ]
            texts = [made.lower(X[0], WIDE[0], W, values(12 if number else 20, 6)).graph for made in makes]
        assert texts[0] == texts[1]
        assert "concat" not in texts[0], number
