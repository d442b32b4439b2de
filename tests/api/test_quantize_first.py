"""`ts.quantize` as the first thing that a process does."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy as np
import tessera as ts
print(ts.quantize(np.ones((2, 2), np.float32), ts.i8).dequantize().shape)
"""


def test_nothing_has_to_be_imported_before_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "(2, 2)", done.stderr
