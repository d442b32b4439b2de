"""How much of the time of collectives each training recipe hides behind kernels, on ranks of this machine.

    python -m benchmarks.overlap [--steps 10] [--recipes dp tp] [--output overlap.json]

Each recipe trains one small GPT on 2 or 4 ranks, with a timeline on every rank. The overlap ratio is the time of
collectives in which a kernel of the same rank runs, over the time of collectives; it is given with overlap and, where
a step is one program, with every collective waited for where it starts, which leaves only what other threads of a
kernel do. Where ranks share cores, a collective lasts as long as its partner is at another kernel.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.environment import describe
from tessera.runtime.timeline import Span

SIZES: dict[str, Any] = {"vocabulary": 256, "length": 64, "width": 256, "depth": 4, "heads": 4, "tied": False}
MOE: dict[str, Any] = {"mlp": "moe", "experts": 4, "top_experts": 2, "hidden": 256}
BATCH = 8
RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "data parallel": ({}, {}, {"dp": 2}),
    "data parallel, same bits": ({}, {"shards": 4}, {"dp": 2}),
    "ZeRO-1": ({}, {"zero": 1}, {"dp": 2}),
    "FSDP": ({}, {"zero": 3}, {"dp": 2}),
    "tensor parallel": ({}, {"tensor": "tp"}, {"tp": 2}),
    "tensor and sequence parallel": ({}, {"tensor": "tp", "sequence": True}, {"tp": 2}),
    "pipeline 1F1B": ({}, {"pipeline": "pp", "microbatches": 4}, {"pp": 2}),
    "experts": (MOE, {"expert": "ep"}, {"ep": 2}),
    "a ring of sequence parts": ({}, {"context": "sp"}, {"sp": 2}),
    "FSDP and tensor parallel": ({}, {"zero": 3, "tensor": "tp"}, {"dp": 2, "tp": 2}),
    "data parallel and a ring": ({}, {"context": "sp"}, {"dp": 2, "sp": 2}),
    "pipeline and tensor parallel": ({}, {"pipeline": "pp", "microbatches": 4, "tensor": "tp"}, {"pp": 2, "tp": 2}),
}
"""Changes of the model, choices of the recipe, and the mesh."""


def loss_of(model: Any, batch: Any) -> Any:
    """What is trained."""
    return model.loss(batch["x"], batch["y"])


def merge(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The times in which any of some spans runs, in order and apart."""
    found: list[tuple[int, int]] = []
    for one in sorted(spans, key=lambda span: span.start):
        if found and one.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], one.end)
        else:
            found.append((one.start, one.end))
    return found


def overlap_of(spans: Sequence[Span]) -> tuple[int, int]:
    """Nanoseconds of collectives, and those of them in which a kernel runs."""
    moving = merge([one for one in spans if one.kind == "collective"])
    kernels = merge([one for one in spans if one.kind == "kernel"])
    hidden = sum(max(0, min(end, to) - max(start, since)) for start, end in moving for since, to in kernels)
    return sum(end - start for start, end in moving), hidden


def run_rank(name: str, steps: int, is_overlapped: bool) -> dict[str, float]:
    """What one rank sees of a recipe: seconds of collectives and what of them is hidden, bytes, kernels."""
    changes, choices, axes = RECIPES[name]
    optimizer = ts.optim.adamw(1e-3)
    data = np.random.default_rng(0).integers(0, SIZES["vocabulary"], (BATCH, SIZES["length"] + 1))
    batch = {"x": np.ascontiguousarray(data[:, :-1]), "y": np.ascontiguousarray(data[:, 1:])}
    options: dict[str, Any] = {} if is_overlapped else {"overrides": {"collectives.overlap": False}}
    with ts.dist.mesh(**axes):
        model = ts.nn.GPT.init(ts.random.key(0), ts.nn.GPTConfig(**{**SIZES, **changes}))
        recipe = ts.dist.recipe(model, **choices)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        step = ts.train.make_step(loss_of, optimizer, recipe=recipe, **options)
        for _ in range(2):
            state, _ = step(state, batch)
        loss: Any = 0.0
        with ts.dist.timeline() as timeline:
            for _ in range(steps):
                state, metrics = step(state, batch)
                loss = metrics["loss"]
            float(loss)
    moving, hidden = overlap_of(timeline.spans)
    kinds = [one.kind for one in timeline.spans]
    counts = {kind: kinds.count(kind) / steps for kind in ("collective", "kernel")}
    return {"moving": moving / steps / 1e9, "hidden": hidden / steps / 1e9, "sent": timeline.sent / steps, **counts}


def measure(name: str, steps: int) -> dict[str, Any]:
    """A row of the table: means over ranks."""
    _, choices, axes = RECIPES[name]
    row: dict[str, Any] = {"mesh": axes, "recipe": choices}
    for label, is_overlapped in (("with", True), ("without", False)):
        if not is_overlapped and "pipeline" in choices:
            continue  # its programs are several, and not all of them have collectives to wait for
        found = ts.dist.run(run_rank, ranks=prod(axes.values()), args=(name, steps, is_overlapped), timeout=300)
        means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        row[label] = {**means, "ratio": means["hidden"] / means["moving"] if means["moving"] else 0.0}
    return row


def render(rows: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [
        "| recipe | mesh | collectives of a step | MB sent | overlap ratio | without overlap |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        mesh = ", ".join(f"{axis} {size}" for axis, size in row["mesh"].items())
        own, apart = row["with"], row.get("without")
        ratio = "-" if apart is None else f"{apart['ratio']:.0%}"
        lines.append(
            f"| {name} | {mesh} | {own['collective']:.0f} | {own['sent'] / 1e6:.2f} | {own['ratio']:.0%} | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--output", default="")
    options = parser.parse_args()
    rows = {name: measure(name, options.steps) for name in options.recipes}
    print(render(rows))
    if options.output:
        found = {"sizes": SIZES, "batch": BATCH, "steps": options.steps, "recipes": rows, "environment": describe()}
        Path(options.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
