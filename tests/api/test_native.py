"""`jit` on this machine: native code for all sizes, found again by the next process without any compiler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.cache import Store

PROGRAM = """
import sys
import numpy as np
import tessera as ts

@ts.jit
def f(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32], b: ts.Tensor["N", ts.f32]):
    return ts.ops.softmax(ts.ops.gelu(x @ w + b) * {factor})

rng = np.random.default_rng(0)
out = f(*(rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5), (5,))))
print(f.specializations[0].origin.source, np.asarray(out).tobytes().hex())
print([name for name in ("xdsl", "llvmlite", "islpy") if name in sys.modules])
"""


def run(program: str) -> list[str]:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def add_and_relu(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.softmax(ts.ops.gelu(x @ w + b))


def inputs(m: int, k: int, n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(m + k + n)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (n,)))


def test_one_compilation_serves_all_sizes() -> None:
    f = ts.jit(add_and_relu, dynamic=True)
    for m, k, n in ((1, 4, 5), (7, 3, 33), (64, 65, 1), (5, 0, 3), (0, 2, 2)):
        given = inputs(m, k, n)
        expected = ts.jit(add_and_relu, backend="reference")(*given)
        np.testing.assert_allclose(np.asarray(f(*given)), np.asarray(expected), rtol=1e-5, atol=1e-6)
    info = f.cache_info()
    assert (info.misses, info.size, info.hits) == (1, 1, 4)


def test_static_and_free_dims_give_the_same_bits() -> None:
    given = inputs(6, 10, 17)
    static, free = (np.asarray(ts.jit(add_and_relu, dynamic=dynamic)(*given)) for dynamic in (False, True))
    assert static.tobytes() == free.tobytes()


def test_the_next_process_needs_no_compiler() -> None:
    program = PROGRAM.format(factor=0.75)
    first, second = run(program), run(program)
    assert first[0].startswith("compiled ")
    assert second[0] == first[0].replace("compiled", "disk cache")
    assert second[1] == "[]"


def test_every_level_has_a_text() -> None:
    lowered = ts.jit(add_and_relu).lower(*inputs(3, 4, 5))
    assert "tgraph.matmul" in lowered.graph
    assert "tsched." in lowered.schedule
    assert "ttile.kernel" in lowered.tile
    assert "ttarget." in lowered.target
    assert "define " in lowered.llvm
    assert [line for line in str(lowered).splitlines() if line.startswith("// ----")] == [
        f"// ---- {level} ----" for level in ("tape", "graph", "schedule", "tile", "target", "llvm")
    ]


def test_explain_names_groups_kernels_and_choices() -> None:
    f = ts.jit(add_and_relu, dynamic=True)
    given = inputs(3, 4, 5)
    f(*given)
    report = f.explain(*given).report
    assert {"groups", "kernels", "choices", "flops", "bytes", "workspace"} <= set(report)
    # Where K has one segment, a product with its epilogue; where it has more, a product of each, and what joins them.
    made = [re.sub("_[0-9a-f]{10}:.*", "", line) for line in report["kernels"]]
    assert made == ["matmul_add_gelu", "matmul", "join_segments", "add_gelu", "max_maximum_sub_exp_sum_reciprocal_mul"]
    assert [re.sub("_[0-9a-f]{10}:.*", "", line) for line in report["groups"]] == made
    assert [line.partition(":")[0] for line in report["steps"]] == ["branch"]
    # Of a K that is known to have one segment, there is nothing to decide.
    known = ts.jit(add_and_relu, dynamic=False)
    known(*given)
    report = known.explain(*given).report
    assert (len(report["groups"]), len(report["kernels"]), "steps" in report) == (2, 2, False)


def test_explain_of_cached_code_names_the_lines_of_this_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code was made for a program that stands elsewhere, and is the same."""
    monkeypatch.setattr("tessera.runtime.cache.default_store", lambda: Store(tmp_path / "cache"))
    given = inputs(3, 4, 5)
    for name, line in (("first", 1), ("second", 8)):
        source = "\n" * (line - 1) + "def f(x, w, b): return ts.ops.softmax(ts.ops.gelu(x @ w + b) * 0.375)\n"
        scope: dict[str, Any] = {"ts": ts, "__name__": name}
        (tmp_path / f"{name}.py").write_text(source)
        exec(compile(source, str(tmp_path / f"{name}.py"), "exec"), scope)
        f: Any = ts.jit(scope["f"], dynamic=True)
        f(*given)
        assert f.specializations[0].origin.source == ("compiled" if name == "first" else "disk cache")
        report = f.explain(*given).report
        assert list(report)[:4] == ["groups", "steps", "kernels", "choices"]
        assert (len(report["groups"]), len(report["steps"])) == (5, 1)
        assert all(f"{name}.py:{line}:" in part for part in (*report["groups"], *report["steps"]))


def test_options_reach_the_compiler() -> None:
    given = inputs(3, 4, 5)
    fused_report, unfused_report = (
        ts.jit(add_and_relu, fusion=fusion).lower(*given).schedule.count("tsched.call") for fusion in (True, False)
    )
    assert fused_report < unfused_report


def test_an_override_that_names_no_choice_is_refused() -> None:
    f = ts.jit(add_and_relu, overrides={"no.such.knob": 3})
    with pytest.raises(ts.TesseraError, match=r"no\.such\.knob"):
        f(*inputs(3, 4, 5))


def test_operators_of_tensors_run_natively() -> None:
    x = ts.array([[1.0, 2.0], [3.0, 4.0]])
    assert np.asarray((x @ x + 1).sum(axis=0)).tolist() == [24.0, 34.0]
    assert np.asarray(x[:, ::-1].T).tolist() == [[2.0, 4.0], [1.0, 3.0]]


def test_a_captured_weight_is_read_at_each_call() -> None:
    held = {"w": np.full((3,), 2.0, np.float32)}

    def scale(x: Any) -> Any:
        return x * held["w"]

    f = ts.jit(scale)
    x = np.ones(3, np.float32)
    assert np.asarray(f(x)).tolist() == [2.0] * 3
    held["w"] = np.full((3,), 5.0, np.float32)
    assert np.asarray(f(x)).tolist() == [5.0] * 3
    assert f.cache_info().misses == 1


def test_a_jitted_function_inside_a_trace_is_part_of_it_even_when_it_was_called_before() -> None:
    ones = np.ones(4, np.float32)
    held = {"w": ts.array(ones)}

    @ts.jit
    def inner(w: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
        return w * 2

    inner(held["w"])

    @ts.jit
    def outer(x: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
        return x + inner(held["w"])

    np.testing.assert_array_equal(np.asarray(outer(ones)), 3 * ones)
    held["w"] = ts.array(10 * ones)
    np.testing.assert_array_equal(np.asarray(outer(ones)), 21 * ones)
