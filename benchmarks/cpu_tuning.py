"""Hybrid search against exhaustive search on a CPU, over programs that a seed draws.

    python -m benchmarks.cpu_tuning [--only FAMILIES] [--seed N] [--most N] [--seconds S] [--html FOLDER] [--out FILE]

As `benchmarks.gpu_tuning`, which says how: all plans of a program are measured against the safe plan in a child
process, and hybrid search is played over what was measured; `hybrid_loss_most` is how far it is from the best at most.
Cases run one at a time: what compiles beside a measurement slows it.
"""

from __future__ import annotations

from benchmarks.gpu_tuning import Bench, parse, run
from benchmarks.tuning_cases import draw_all

COUNTS = {"gemm": 4, "layer": 3, "mlp": 4, "attention": 2, "row": 2, "norm": 2, "conv": 2, "map": 1}
"""Cases of each family: twenty."""


def main() -> None:
    """The command line."""
    asked, counts = parse(COUNTS, "cpu_tuning", __doc__)
    whole = draw_all(COUNTS, "cpu", asked.seed)
    cases = [case for family in counts for case in [c for c in whole if c.family == family][: counts[family]]]
    run(cases, Bench(asked.most, asked.workers, asked.html, asked.rounds), 1, asked.seconds, asked.out, asked.live)


if __name__ == "__main__":
    main()
