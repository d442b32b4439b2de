"""Gradients of random programs with values offloaded, against those that keep all on the device: bit for bit.

    python -m tests.trials.offload --count 200 --first 5000

Each is compiled for a little less memory than its plan takes, and for much less; what does not fit is refused.
"""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import tessera as ts
from tessera.diagnostics.codes import MemoryBudgetError
from tessera.frontend.pytree import flatten
from tests.fuzz.bindings import loss_of, tessera_names
from tests.fuzz.differentiable import differentiable_program
from tests.trials.gradients import draw_arrays, floats_of

SHARES = (0.99, 0.7)
"""Of the workspace that a program has by itself."""


def bits_of(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in flatten(result)[0]]


def shown_bytes(function: Any, name: str, arrays: Sequence[Any]) -> int:
    """The bytes of a memory that an explanation shows."""
    lines = (line.strip().partition(": ") for line in str(function.explain(*arrays)).splitlines())
    return next((int(text.split()[0]) for key, _, text in lines if key == name), 0)


def run(seeds: Sequence[int]) -> dict[str, Any]:
    """The figures of a trial, and the seeds of programs whose bits differ or that fit into less than they take."""
    results: Counter[str] = Counter()
    failures: list[int] = []
    for seed in seeds:
        program = differentiable_program(seed)
        arrays = draw_arrays(program, program.sizes[0], coarse=False)
        step: Any = ts.value_and_grad(loss_of(program, tessera_names()), tuple(floats_of(arrays)))
        plain: Any = ts.jit(lambda *given, step=step: step(*given))
        with np.errstate(all="ignore"):
            expected, size = bits_of(plain(*arrays)), shown_bytes(plain, "workspace", arrays)
            for share in SHARES:
                memory = int(size * share)
                less: Any = ts.jit(lambda *given, step=step: step(*given), memory=memory, offload=True)
                try:
                    is_same = bits_of(less(*arrays)) == expected
                except MemoryBudgetError:
                    results["refused"] += 1
                    continue
                has_moved = shown_bytes(less, "host memory", arrays) > 0
                results["offloaded" if has_moved else "fits otherwise"] += 1
                if not is_same or shown_bytes(less, "workspace", arrays) > memory:
                    failures.append(seed)
    return {"programs": len(seeds), "results": dict(results), "failures": failures}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a trial and print its figures; 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    given = parser.parse_args(arguments)
    record = run(range(given.first, given.first + given.count))
    print(json.dumps(record, indent=2))
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
