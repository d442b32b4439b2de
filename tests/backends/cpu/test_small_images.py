"""Convolutions of small images: the same bits by any number of threads, and in place of a tensor that is donated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import hashlib, numpy as np, tessera as ts
from tessera import ops

rng = np.random.default_rng(0)
digest = hashlib.sha256()
cases = ((4, 16, 32, 14, 3, 1), (4, 16, 32, 14, 1, 1), (3, 8, 40, 7, 3, 1), (5, 8, 24, 9, 3, 2))
for n, c, o, size, taps, stride in cases:
    x = rng.standard_normal((n, c, size, size)).astype(np.float32)
    w = rng.standard_normal((o, c, taps, taps)).astype(np.float32)

    def convolve(x, w, stride=stride, taps=taps):
        return ops.conv2d(x, w, padding=taps // 2, stride=stride)

    made = np.asarray(ts.jit(convolve)(x, w))
    residual = rng.standard_normal(made.shape).astype(np.float32)
    added = ts.jit(lambda x, w, r: convolve(x, w) + r, donate="r")(x, w, ts.array(residual))
    assert np.array_equal(np.asarray(added), made + residual)
    alone = np.concatenate([np.asarray(ts.jit(convolve)(x[at : at + 1], w)) for at in range(n)])
    assert np.array_equal(alone, made)
    digest.update(made.tobytes())
print(digest.hexdigest())
"""


def digest_with(threads: int) -> str:
    environment = {**os.environ, "TESSERA_NUM_THREADS": str(threads)}
    made = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_do_not_share_columns(threads: int) -> None:
    assert digest_with(threads) == digest_with(1)
