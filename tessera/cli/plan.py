"""`tessera plan`: a training step on a described cluster, of one mesh or of the best that a search finds."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.arguments import Look, TargetError, load
from tessera.diagnostics.error import TesseraError, format_count
from tessera.planner.cluster import Cluster, describe_cluster
from tessera.planner.model_cost import ModelCost, describe_model
from tessera.planner.report import COLUMNS, TRAFFIC_COLUMNS, plan_row, traffic_rows, write_page
from tessera.planner.search import Refused, Search, search_meshes
from tessera.planner.simulate import Step, simulate
from tessera.planner.topology_file import read_cluster
from tessera.planner.training_plan import Memory, TrainingPlan, parse_mesh
from tessera.planner.transformer import read_transformer
from tessera.types.rates import format_time

_WIDE = 160
"""Columns of a table that goes to a file or a pipe."""
_NARROW = 130
"""Columns below which a table has the choices of a plan as lines of one cell, and leaves others to the page."""
_IN_PLAN = ("schedule", "ZeRO", "recompute")
_ON_PAGE = ("bubble", "exposed", "overlap")


@dataclass(frozen=True)
class PlanOptions:
    """What the command line says beside the model and the topology."""

    mesh: str = ""
    ranks: int = 0
    batch: int = 0
    microbatch: int = 1
    sequence: int = 0
    schedule: str = "1f1b"
    chunks: int = 1
    zero: int = 1
    recompute: str = "none"
    output: str = "plan.html"
    as_json: bool = False


def show_plan(target: str, topology: str, options: PlanOptions, look: Look | None = None) -> int:
    """Print the table of a plan, or of the best ones, and write its page; the exit status."""
    console, look = Console(highlight=False, soft_wrap=True), look or Look()
    if not console.is_terminal:
        console.width = _WIDE
    try:
        model, cluster = find_model(target, options.sequence, look), read_cluster(topology)
        if options.mesh:
            look.say(f"simulating a step of {options.mesh}")
            steps, refused, found = (simulate(plan_of(options), model, cluster),), (), None
        else:
            found = _search(model, cluster, options, look)
            steps, refused = found.steps, found.refused
        page = write_page(options.output, model, cluster, steps, refused)
    except TargetError as error:
        console.print(Text(f"tessera plan: {error}"), style="red")
        return 2
    except TesseraError as error:
        console.print(Text(error.render()))
        return 1
    except OSError as error:
        console.print(Text(f"tessera plan: {error.filename}: {error.strerror}"), style="red")
        return 1
    if options.as_json:
        console.print_json(json.dumps(_as_json(model, cluster, steps, refused, str(page))))
        return 0
    console.print(Text(describe_model(model)))
    console.print(Text(describe_cluster(cluster)))
    _print_plans(console, steps, found)
    _print_first(console, steps[0])
    console.print(Text(f"the timeline of a step, memory and links: {page}"))
    return 0 if steps[0].fits else 3


def find_model(target: str, sequence: int, look: Look) -> ModelCost:
    """The costs of what a command names: numbers of a file, or a model of a module."""
    if ":" not in target:
        changes: dict[str, Any] = {"sequence": sequence} if sequence else {}
        return read_transformer(target, **changes).cost()
    from tessera.planner.traced_model import trace_model  # noqa: PLC0415 - loads the compiler

    found = load(target, executes=look.executes)
    look.say(f"tracing `{target}` without weights")
    return trace_model(found, sequence=sequence, name=target.partition(":")[2])


def plan_of(options: PlanOptions) -> TrainingPlan:
    """The plan of a command line with `--mesh`; without a batch, four microbatches a stage."""
    sizes: dict[str, Any] = parse_mesh(options.mesh)
    usual = sizes.get("dp", 1) * options.microbatch * (4 * sizes["pp"] if sizes.get("pp", 1) > 1 else 1)
    return TrainingPlan(
        **sizes,
        batch=options.batch or usual,
        microbatch=options.microbatch,
        schedule=options.schedule,
        chunks=options.chunks,
        zero=options.zero,
        recompute=options.recompute,
    )


def _search(model: ModelCost, cluster: Cluster, options: PlanOptions, look: Look) -> Search:
    is_live = sys.stderr.isatty() and look.progress

    def tell(done: int, total: int, best: Step | None) -> None:
        if best is None or not (is_live or done % 10 == 0 or done == 1):
            return
        text = f"simulated {done}, at most {total}; best {best.plan.describe()}: {format_time(best.time)}"
        if is_live:
            print(f"\r\033[Ktessera: {text}", end="", file=sys.stderr, flush=True)
        else:
            look.say(text)

    look.say(f"searching meshes of {format_count(options.ranks or cluster.ranks, 'rank')}")
    found = search_meshes(model, cluster, ranks=options.ranks, batch=options.batch, progress=tell)
    if is_live:
        print(file=sys.stderr)
    return found


def _print_plans(console: Console, steps: Sequence[Step], found: Search | None) -> None:
    is_wide = console.width >= _NARROW
    shown = [name for name in COLUMNS if is_wide or name not in _IN_PLAN + _ON_PAGE]
    table = Table(show_edge=False, show_lines=not is_wide)
    for name in shown:
        is_text = name in ("mesh", *_IN_PLAN)
        table.add_column(name if is_wide or not is_text else "plan", justify="left" if is_text else "right")
    for step in steps:
        cells: dict[str, str] = dict(zip(COLUMNS, plan_row(step), strict=True))
        if not is_wide:
            choices = ", ".join(filter(None, [cells["schedule"], f"ZeRO {cells['ZeRO']}"]))
            recompute = "" if cells["recompute"] == "none" else f"\nrecompute {cells['recompute']}"
            cells["mesh"] += f"\n{choices}{recompute}"
        table.add_row(*(cells[name] for name in shown), style="" if step.fits else "red")
    console.print(table)
    if not is_wide:
        console.print(Text(f"{', '.join(_ON_PAGE[:-1])} and {_ON_PAGE[-1]} are on the page"))
    if found is not None:
        batch = found.best.plan.batch
        fit = f"{format_count(found.candidates, 'plan')} {'fits' if found.candidates == 1 else 'fit'} for a batch of"
        were = "was" if found.simulated == 1 else "were"
        text = f"{fit} {format_count(batch, 'sequence')}, {found.simulated} {were} simulated"
        refused = format_count(len(found.refused), "mesh", "meshes")
        text += f"; {refused} {'does' if len(found.refused) == 1 else 'do'} not fit" if found.refused else ""
        console.print(Text(text))


def _print_first(console: Console, step: Step) -> None:
    worst = step.worst_memory
    console.print(Text(f"memory of the fullest rank, of {worst.capacity / 1e9:.3g} GB: {_memory_text(worst)}"))
    if not step.fits:
        console.print(Text("it does not fit: recompute, raise `--zero`, or divide it further"), style="red")
    if step.traffic:
        table = Table(show_edge=False)
        for at, name in enumerate(TRAFFIC_COLUMNS):
            table.add_column(name, justify="left" if at < 3 else "right", overflow="fold")
        for row in traffic_rows(step):
            table.add_row(*row)
        console.print(table)


def _memory_text(memory: Memory) -> str:
    names = ("parameters", "gradients", "optimizer", "activations", "gathered")
    return ", ".join(f"{name} {getattr(memory, name) / 1e9:.3g}" for name in names if getattr(memory, name)) + " GB"


def _as_json(
    model: ModelCost, cluster: Cluster, steps: Sequence[Step], refused: Sequence[Refused], page: str
) -> dict[str, Any]:
    return {
        "model": {
            "name": model.name,
            "parameters": model.parameters,
            "layers": model.layers,
            "sequence": model.sequence,
        },
        "cluster": describe_cluster(cluster),
        "plans": [step.as_json() for step in steps],
        "refused": [{"mesh": one.plan.describe(), "bytes": one.memory.total} for one in refused],
        "page": page,
    }
