"""What TMA does and how long it is waited for: descriptors, pipeline stages filled, waits that stalled.

    python -m benchmarks.gpu maps [--only NAMES] [--calls N] [--out FILE]

Cases run as debug builds, whose warps count what they met at each wait; the rate is of stages that producers filled,
by the time that the device took for the calls. Kernels that are not debugged have none of this, and are faster.
"""

from __future__ import annotations

from typing import Any

import tessera as ts
from benchmarks.gpu_cases import ATTENTION, PRODUCTS, Case
from benchmarks.gpu_record import chosen, need_gpu, options, write

CASES: dict[str, Case] = {"nt": PRODUCTS["nt"], "layer": PRODUCTS["layer"], "causal": ATTENTION["causal"]}
_FILLING, _READING = "the producer in `ttarget.acquire`", "a consumer in `ttarget.await`"


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What happened between two looks at the metrics."""
    known = {(one["kernel"], one["wait"]): one for one in before["waits"]}
    waits: list[dict[str, Any]] = []
    for one in after["waits"]:
        was = known.get((one["kernel"], one["wait"]), {})
        numbers = {name: one[name] - was.get(name, 0) for name in ("times", "stalls", "cycles")}
        if numbers["times"]:
            waits.append({**one, **numbers})
    return {"maps": {name: value - before["maps"][name] for name, value in after["maps"].items()}, "waits": waits}


def row_of(name: str, seen: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a case says: stages filled in a second, and how many waits of producer and consumers stalled."""
    sides: dict[str, dict[str, int]] = {}
    for side, words in (("producers", _FILLING), ("consumers", _READING)):
        ours = [one for one in seen["waits"] if one["wait"].startswith(words)]
        sides[side] = {part: sum(one[part] for one in ours) for part in ("times", "stalls", "cycles")}
    return {
        "case": name,
        "seconds": seconds,
        "stages_per_second": sides["producers"]["times"] / seconds,
        **sides,
        **seen,
    }


def measured(name: str, case: Case, calls: int) -> dict[str, Any]:
    """Run a case some times, debugged."""
    function = ts.jit(case.function, backend="cuda", debug=True, overrides=case.overrides)
    given = [ts.cuda.array(array) for array in case.arrays()]
    function(*given)
    before = ts.cuda.metrics()
    start, end = ts.cuda.Event(), ts.cuda.Event()
    start.record()
    for _ in range(calls):
        function(*given)
    end.record()
    seconds = end.milliseconds_since(start) / 1e3
    return row_of(name, difference(before, ts.cuda.metrics()), seconds)


def main() -> None:
    """The command line."""
    parser = options("maps", __doc__)
    parser.add_argument("--calls", type=int, default=10, help="calls of each case")
    asked = parser.parse_args()
    names = chosen(asked.only, list(CASES), parser)
    if asked.calls < 1:
        parser.error("a case is called once at least")
    need_gpu()
    rows = [measured(name, CASES[name], asked.calls) for name in names]
    for row in rows:
        producers, consumers = row["producers"], row["consumers"]
        print(f"{row['case']:10} {row['stages_per_second']:12.0f} stages/s", end="")
        print(f", producers stalled {producers['stalls']} of {producers['times']}", end="")
        print(f", consumers {consumers['stalls']} of {consumers['times']}, maps {row['maps']}")
    write(asked.out, {"calls": asked.calls, "rows": rows})


if __name__ == "__main__":
    main()
