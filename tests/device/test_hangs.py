"""A kernel that waits for ever: made with `debug=True` it says who waits for what, and the process lives to read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

# A context that a kernel has stopped is of no use any more, so each case is a process of its own.
PROGRAM = """
import ml_dtypes, numpy as np
import tessera as ts
from tessera.backends.nvptx.passes import lower_kernels
from tessera.compiler import compile as pipeline
from tessera.ir.target.passes import check_kernels

lower = lower_kernels.LOWERINGS["wgmma"]

def without(kernel):
    made = lower(kernel)
    for op in [op for op in made.walk() if {left_out}]:
        op.detach()
        op.erase()
    return made

lower_kernels.LOWERINGS["wgmma"] = without
check_kernels.check_kernel = lambda *_: None
pipeline.target.check_module = lambda module, machine, **_: None

def nt(x, w):
    return ts.ops.matmul(x, ts.ops.transpose(w))

def causal(q, k, v):
    return ts.ops.attention(q, k, v, causal=True)

x, heads = np.ones((512, 2048), ml_dtypes.bfloat16), np.ones((1, 2, 512, 128), ml_dtypes.bfloat16)
given = {{nt: (x, x), causal: (heads, heads, heads)}}
overrides = {{nt: {{"contraction.block": (128, 256, 64)}}, causal: {{}}}}
try:
    np.asarray(ts.jit({function}, backend="cuda", debug=True, overrides=overrides[{function}])(*given[{function}]))
except ts.TesseraError as error:
    print(error.render())
else:
    print("it ended")
"""


def said(program: str, folder: Path) -> str:
    """What a program prints, with a cache of its own: nobody else is to get its code."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TESSERA_CACHE_DIR": str(folder)},
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(("op", "who"), [("release", "the producer in `ttarget.acquire`"), ("copy", "")])
def test_a_wait_that_never_ends_says_where_it_is(op: str, who: str, tmp_path: Path) -> None:
    """Where stages are never left the producer is stuck first; where nothing comes, whoever donates first says so."""
    text = said(PROGRAM.format(left_out=f"op.name == 'ttarget.{op}'", function="nt"), tmp_path)
    assert f"{who} of ring 0 (4 stages)" in text, text
    assert "__matrix` waits for a barrier that never opens" in text
    assert "of CTA" in text
    assert "stages acquired against stages released" in text


def test_a_turn_that_nobody_passes_ends_too(tmp_path: Path) -> None:
    """Threads meet at barriers that are watched; the producer, which waits for consumers, may donate before them."""
    left_out = "op.name == 'ttarget.pingpong' and op.value('mode') == 'pass'"
    text = said(PROGRAM.format(left_out=left_out, function="causal"), tmp_path)
    assert "a consumer in `ttarget.pingpong`" in text or "the producer in `ttarget.acquire`" in text, text
    assert "__matrix` waits for a barrier that never opens" in text


@pytest.mark.parametrize("function", ["nt", "causal"])
def test_a_kernel_that_does_not_hang_is_the_same_with_bounded_waits(function: str, tmp_path: Path) -> None:
    assert said(PROGRAM.format(left_out="False", function=function), tmp_path).strip() == "it ended"
