"""`explain()`, `lower()` and `trace()` without arguments: what was compiled, or what the annotations say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.tuner.machine_rates import file_of, host_name, write_rates
from tessera.types.rates import rates_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))


class Pair(NamedTuple):
    """Two vectors."""

    scale: ts.Tensor["N", ts.f32]
    shift: ts.Tensor["N", ts.f32]


@dataclass
class Nested:
    """A record in a record, and a tuple."""

    pair: Pair
    both: tuple[ts.Tensor["N", ts.f32], ts.Tensor[ts.f32]]


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def project(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]) -> Any:
    return ts.ops.softmax(x @ w)


def rescale(x: Any, times: int = 2) -> Any:
    return x * times


def make_ones(n: int = 3) -> Any:
    return ts.ops.ones((n,))


def test_before_the_first_call_the_annotations_are_explained() -> None:
    f = ts.jit(project)
    (page,) = f.explain().specializations
    assert page.signature == "(x: [B, K] f32, w: [K, N] f32) -> ([B, N] f32)"
    assert page.source == "not made yet"
    f(ones(2, 3), ones(3, 4))
    again = ts.jit(project)
    (page,) = again.explain().specializations
    assert page.source == "not made yet, but in the disk cache"
    # A product of one segment of K, or one of several and what joins them; and the softmax.
    stems = [group.partition("_")[0] for group in page.report["groups"]]
    assert stems == ["matmul", "matmul", "join", "max"]
    assert again.cache_info().misses == 0


def test_after_calls_everything_that_was_compiled_is_explained() -> None:
    f = ts.jit(rescale)
    for shape, times in (((3,), 2), ((2, 2), 2), ((3,), 5), ((3,), 5)):
        f(ones(*shape), times)
    account = f.explain()
    assert [page.signature for page in account.specializations] == [
        "(x: [3] f32) -> ([3] f32)",
        "(x: [2, 2] f32) -> ([2, 2] f32)",
        "(x: [3] f32) -> ([3] f32)",
    ]
    assert [page.static for page in account.specializations] == [("times = 2",), ("times = 2",), ("times = 5",)]
    assert all(page.report["groups"] and page.report["choices"] for page in account.specializations)
    assert "calls: hits 1, misses 3, of which compiled" in str(account)
    assert repr(account) == str(account)


def test_what_was_compiled_in_a_scope_is_explained_too() -> None:
    f = ts.jit(project)
    f(ones(2, 3), ones(3, 4))
    with ts.policy(ts.Training()):
        f(ones(2, 3), ones(3, 4))
    plain, training = f.explain().specializations
    assert plain.signature.endswith("f32)")
    assert "under storage(bf16)" in training.signature
    assert f.explain().cache.misses == 2


def test_lower_needs_no_arguments_where_the_annotations_say_all() -> None:
    f = ts.jit(project)
    assert f.lower().graph == f.lower(ones(2, 3), ones(3, 4)).graph
    assert "!tgraph.tensor<[B, K], f32>" in f.lower().graph


def test_records_of_tensors_say_all_too_and_give_the_signature_of_a_call() -> None:
    def f(x: ts.Tensor["B", "N", ts.f32], p: Nested, mode: str = "fast", mask: Any = None) -> Any:
        return x * p.pair.scale + p.pair.shift + p.both[0] * p.both[1]

    jitted = ts.jit(f)
    graph = jitted.lower().graph
    assert "%p.pair.scale: !tgraph.tensor<[N], f32>" in graph
    jitted(ones(2, 3), Nested(Pair(ones(3), ones(3)), (ones(3), ones())))
    assert jitted.lower().graph == graph
    assert jitted._binder.declared_signature() == jitted.specializations[0].signature  # pyright: ignore[reportPrivateUsage]


def test_without_annotations_lower_shows_what_was_compiled_last() -> None:
    f = ts.jit(rescale)
    f(ones(3))
    f(ones(2, 2))
    assert "!tgraph.tensor<[2, 2], f32>" in f.lower().graph


def test_a_function_without_parameters_is_explained_as_it_is_called() -> None:
    f = ts.jit(make_ones)
    assert f.explain().signature == "() -> ([3] f32)"


def add_untyped(x: Any, w: ts.Tensor["N", ts.f32]) -> Any:
    return x + w


@pytest.mark.parametrize("method", ["lower", "explain", "trace"])
def test_where_nothing_says_what_is_taken_it_is_asked_for(method: str) -> None:
    f = ts.jit(add_untyped)
    with pytest.raises(RuntimeArgumentError, match="nothing says what `add_untyped` takes") as caught:
        getattr(f, method)()
    assert "`add_untyped.lower(x, w)`" in str(caught.value)


@kernel
def double(x: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


def test_a_kernel_is_explained_after_its_calls() -> None:
    double(ones(3, 5))
    (page,) = double.explain().specializations
    assert page.signature == "(x: [M, N] f32) -> ([M, N] f32)"
    assert page.report["kernels"][0].endswith("grid [((M + 15) floordiv 16), ((N + 255) floordiv 256)]")
    assert str(double.explain()).startswith('kernel double(x: KTile["M", "N"]) Schedule(')
    assert double.lower().graph == double.lower(ones(2, 2)).graph


def test_a_prompt_shows_ir_as_text() -> None:
    lowered: Any = ts.jit(lambda x: x * 2)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    graph = lowered.lower(np.ones(3, np.float32)).graph
    assert repr(graph) == str(graph)
    assert "\\n" not in repr(graph)


def test_whose_rates_a_roofline_is_at_is_said() -> None:
    jitted = ts.jit(project)
    given = ones(64, 64), ones(64, 64)
    jitted(*given)
    assert jitted.explain(*given).report["rates"].endswith("; this one was not measured")
    shipped = rates_of("cpu")
    assert shipped is not None
    write_rates(file_of("cpu"), replace(shipped, machine=f"{host_name()} (2 threads)"))
    assert jitted.explain(*given).report["rates"] == "as measured on this machine"
    write_rates(file_of("cpu"), replace(shipped, machine="another CPU (2 threads)"))
    assert "this one was not measured" in str(jitted.explain(*given)), "a folder that several machines share"
