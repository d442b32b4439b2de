"""`tessera lint`: resources and bank conflicts of a function's kernels, for a GPU that need not be here."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tessera.cli.main import app

RUNNER = CliRunner()
MODULE = """
import tessera as ts

def rows(x):
    return ts.ops.softmax(x, axis=-1)

def matmul(x: ts.Tensor["M", "K", ts.bf16], y: ts.Tensor["K", "N", ts.bf16]):
    return x @ y
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "linted.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return "linted:rows"


def test_it_says_what_a_kernel_takes(module: str) -> None:
    done = RUNNER.invoke(app, ["lint", module, "--shape", "x=64x1024"])
    assert done.exit_code == 0, done.output
    assert "threads a block" in done.output
    assert "of 64 warps" in done.output


def test_it_says_it_in_json_too(module: str) -> None:
    done = RUNNER.invoke(app, ["lint", module, "--shape", "x=64x1024", "--json"])
    (kernel,) = json.loads(done.output)
    assert kernel["complaints"] == []
    assert kernel["blocks"] >= 1
    assert kernel["registers"] > 16


def test_it_says_the_share_of_the_roofline_of_a_gpu_that_was_measured(module: str) -> None:
    done = RUNNER.invoke(app, ["lint", module, "--shape", "x=64x1024"])
    assert re.search(r"  roofline: .* at most \d+ % of the roofline: launch \(rates of NVIDIA H200\)\n", done.stdout)
    other = RUNNER.invoke(app, ["lint", module, "--shape", "x=64x1024", "--architecture", "sm_80", "--json"])
    assert [one["roofline"] for one in json.loads(other.stdout)] == [""]


def test_sizes_that_are_asked_for_give_the_share_of_a_kernel_with_variants(module: str) -> None:
    target = module.replace("rows", "matmul")
    sizes = [part for name in "MNK" for part in ("--size", f"{name}=4096")]
    found = json.loads(RUNNER.invoke(app, ["lint", target, *sizes, "--json"]).stdout)
    assert any("__" in one["symbol"] for one in found)
    # K of a symbolic size may be cut into segments, which another kernel joins; few rows have kernels of their own.
    products = [
        one["roofline"]
        for one in found
        if not one["symbol"].startswith("join_segments") and "_rows" not in one["symbol"]
    ]
    assert len(products) >= 2
    assert all("compute bounds it by 148 us (1.37e+05 Mflop" in one for one in products)
    without = json.loads(RUNNER.invoke(app, ["lint", target, "--json"]).stdout)
    assert {one["roofline"] for one in without} == {""}


def test_what_cannot_be_looked_at_is_told(module: str) -> None:
    done = RUNNER.invoke(app, ["lint", module])
    assert done.exit_code == 2
    assert "nothing says what `x` is" in done.output
    wrong = RUNNER.invoke(app, ["lint", module, "--shape", "x=8x8", "--architecture", "sm_12"])
    assert wrong.exit_code == 2
    assert "there is no GPU `sm_12` to compile for" in wrong.output
