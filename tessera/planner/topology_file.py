"""Topology files: a cluster in TOML, checked key by key, so that a mistake is shown where it stands.

    name = "two nodes"
    nodes = 2
    devices = 8                # of a node

    [device]
    name = "H100 SXM"
    memory = 80.0              # GB
    memory_bandwidth = 3350.0  # GB/s
    overlaps = true            # optional: whether collectives run beside kernels
    [device.flops]             # TFLOP/s, dense
    bf16 = 989.0

    [inside]                   # the link of one device to the others of its node
    kind = "NVLink"
    bandwidth = 450.0          # GB/s in one direction
    latency = 0.6              # microseconds

    [between]                  # links of a node to others
    kind = "InfiniBand"
    bandwidth = 50.0           # GB/s of one port, in one direction
    ports = 8                  # of a node, shared by its devices
    latency = 5.0

    [efficiency]               # optional: shares of the peaks that programs reach
    matmul = 0.57

    [[stragglers]]             # optional: slow nodes or ranks
    node = 1
    slowdown = 1.3

The same reader checks descriptions of models (`transformer.py`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import Span, find_nearest
from tessera.planner.cluster import Cluster, Device, Efficiency, Straggler
from tessera.types.frozen import frozen
from tessera.types.topology import MOST_DEVICES, Link, Topology

FOLDER = Path(__file__).parent
_HEADER = re.compile(r"^\s*(\[\[?)\s*([\w.\-]+)\s*\]\]?")
_KEY = re.compile(r"^\s*([\w\-]+(?:\.[\w\-]+)*)\s*=\s*(.*?)\s*(?:#.*)?$")

Check: TypeAlias = Callable[[Any], str]
"""What is wrong with a value, as a rule that it breaks; empty where nothing is."""


def check_number(value: Any, least: float, most: float, unit: str = "") -> str:
    """The rule of a number between two others."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    return "" if is_one else f"is a number from {least:g} to {most:g}{unit and f' {unit}'}"


def check_count(value: Any, least: int = 1, most: int = MOST_DEVICES) -> str:
    """The rule of an integer between two others."""
    return "" if type(value) is int and least <= value <= most else f"is an integer from {least} to {most}"


def check_text(value: Any) -> str:
    """The rule of a string that is not empty."""
    return "" if isinstance(value, str) and value else "is a string"


def check_bool(value: Any) -> str:
    """The rule of a bool."""
    return "" if isinstance(value, bool) else "is true or false"


SHARE: Check = partial(check_number, least=0.01, most=1.0)
GBS: Check = partial(check_number, least=1e-3, most=1e6, unit="GB/s")
MICROSECONDS: Check = partial(check_number, least=0.0, most=1e6, unit="microseconds")
TFLOPS: Check = partial(check_number, least=1e-4, most=1e6, unit="TFLOP/s")
_LINK = {"kind": check_text, "bandwidth": GBS, "latency": MICROSECONDS}
SCHEMA: Mapping[str, Mapping[str, Check]] = {
    "": {"name": check_text, "nodes": check_count, "devices": check_count},
    "device": {
        "name": check_text,
        "memory": partial(check_number, least=1e-3, most=1e5, unit="GB"),
        "memory_bandwidth": GBS,
        "overlaps": check_bool,
    },
    "device.flops": dict.fromkeys(("bf16", "f16", "fp8", "fp4", "tf32", "f32", "f64"), TFLOPS),
    "inside": _LINK,
    "between": {**_LINK, "ports": check_count, "in_network": check_bool},
    "efficiency": dict.fromkeys(("matmul", "attention", "memory", "inside", "between"), SHARE),
    "stragglers": {
        "node": partial(check_count, least=0),
        "rank": partial(check_count, least=0, most=1 << 24),
        "slowdown": partial(check_number, least=1.0, most=1000.0),
    },
}
REQUIRED = (
    "name", "nodes", "devices", "device.name", "device.memory", "device.memory_bandwidth", "device.flops",
    "inside.bandwidth", "inside.latency",
)  # fmt: skip


@frozen
class Document:
    """A TOML file as read: its values, and the line on which each key stands."""

    file: str
    values: Mapping[str, Any]
    spans: Mapping[str, Span]

    def error(self, path: str, message: str, fix: str) -> ScheduleError:
        """An error at a key, or at the nearest one around it."""
        found = path
        while found and found not in self.spans:
            found = found.rpartition(".")[0]
        return ScheduleError(message, span=self.spans.get(found), fix=fix)


def read_document(file: str, text: str) -> Document:
    """A TOML text with the locations of its keys; raises ScheduleError (T0401) where it is none."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"line (\d+), column (\d+)", str(error))
        span = Span(file, int(where[1]), int(where[2])) if where else None
        raise ScheduleError(
            f"`{file}` is no TOML: {str(error).partition(' (')[0].lower()}",
            span=span,
            fix='a line is `key = value` or `[table]`; strings are in quotes, as in `name = "H100"`',
        ) from None
    return Document(file, values, dict(_locate(file, text)))


def _locate(file: str, text: str) -> Iterator[tuple[str, Span]]:
    """Each key with its location: `device.flops.bf16`, and `stragglers.0.node` within arrays of tables."""
    table, counts = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[2]
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                yield table, Span(file, number, 1, number, len(line) + 1)
                table = f"{table}.{counts[header[2]]}"
            yield table, Span(file, number, 1, number, len(line) + 1)
        elif key := _KEY.match(line):
            path = f"{table}.{key[1]}" if table else key[1]
            yield path, Span(file, number, key.start(1) + 1, number, key.end(2) + 1)


def check_document(document: Document, schema: Mapping[str, Mapping[str, Check]], required: tuple[str, ...]) -> None:
    """Raise ScheduleError (T0401) for the first key that is unknown, missing, or has a value it cannot have."""
    for path, value in _walk(document.values):
        table, _, key = re.sub(r"\.\d+(?=\.)", "", path).rpartition(".")
        known = [*schema.get(table, {}), *(name for name in schema if name and name.rpartition(".")[0] == table)]
        if not table:
            known = [name for name in known if "." not in name]
        names = [name.rpartition(".")[2] for name in known]
        if key not in names:
            near = find_nearest(key, names)
            where = f"`[{table}]` of a description" if table else "a description"
            raise document.error(
                path,
                f"{where} has no `{key}`; it has {', '.join(names)}",
                fix=f"write `{near[0]}`" if near else f"write one of {', '.join(names)}",
            )
        check = schema.get(table, {}).get(key)
        if check is not None and (rule := check(value)):
            raise document.error(path, f"`{key}` {rule}, got {value!r}", fix=f"write `{key} = ` and such a value")
        if check is None and not isinstance(value, dict | list):
            raise document.error(path, f"`{key}` is a table, got {value!r}", fix=f"write `[{key}]` and its keys below")
    for path in required:
        if _at(document.values, path) is None:
            table, _, key = path.rpartition(".")
            raise document.error(
                path,
                f"`{document.file}` lacks `{path}`",
                fix=f"write `{key} = ...`" + (f" under `[{table}]`" * bool(table)),
            )


def _walk(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        yield path, value
        if isinstance(value, dict):
            yield from _walk(cast("dict[str, Any]", value), f"{path}.")
        for number, one in enumerate(cast("list[Any]", value) if isinstance(value, list) else ()):
            if isinstance(one, dict):
                yield from _walk(cast("dict[str, Any]", one), f"{path}.{number}.")


def _at(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for part in path.split("."):
        found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    return found


def find_file(name: str, folder: str) -> tuple[str, str]:
    """The path and text of a description: a file of the user, or one that is shipped, by its name."""
    shipped = sorted(file.stem for file in (FOLDER / folder).glob("*.toml"))
    path = Path(name)
    if name in shipped:
        path = FOLDER / folder / f"{name}.toml"
    if not path.is_file():
        near = find_nearest(name, shipped)
        raise ScheduleError(
            f"there is no file `{name}`, and nothing shipped has that name",
            span=None,
            fix=(f"did you mean `{near[0]}`? " if near else "") + f"shipped are {', '.join(shipped)}",
        )
    return str(path), path.read_text(encoding="utf-8")


def read_cluster(name: str) -> Cluster:
    """The cluster of a topology file, or of a shipped one by its name.

    >>> read_cluster("h100").device.memory
    80000000000.0
    """
    return parse_cluster(*find_file(name, "clusters"))


def parse_cluster(file: str, text: str) -> Cluster:
    """The cluster that a text describes; raises ScheduleError (T0401), at its line, for what is wrong with it."""
    document = read_document(file, text)
    check_document(document, SCHEMA, REQUIRED)
    values: Any = document.values
    between = values.get("between")
    if values["nodes"] > 1 and (between is None or not {"bandwidth", "latency"} <= set(between)):
        raise document.error(
            "between",
            f"{values['nodes']} nodes need `bandwidth` and `latency` of `[between]`",
            fix="describe `[between]`",
        )
    device, inside = values["device"], values["inside"]
    peaks = tuple((name, float(rate) * 1e3) for name, rate in device["flops"].items())
    between = between or {"bandwidth": inside["bandwidth"], "latency": inside["latency"]}
    reduces = bool(between.get("in_network", False))
    topology = Topology(
        values["nodes"],
        values["devices"],
        Link(float(inside["bandwidth"]), inside["latency"] * 1e3, reduces),
        Link(
            float(between.get("bandwidth", 1.0)) * between.get("ports", 1), between.get("latency", 0.0) * 1e3, reduces
        ),
    )
    return Cluster(
        values["name"],
        Device(
            device["name"],
            device["memory"] * 1e9,
            float(device["memory_bandwidth"]),
            peaks,
            device.get("overlaps", True),
        ),
        topology,
        Efficiency(**values.get("efficiency", {})),
        tuple(_stragglers(document, topology)),
        inside.get("kind", "NVLink"),
        between.get("kind", "InfiniBand"),
    )


def _stragglers(document: Document, topology: Topology) -> Iterator[Straggler]:
    listed: Any = document.values.get("stragglers", [])
    if not isinstance(listed, list):
        raise document.error("stragglers", "`stragglers` is a list of tables", fix="write `[[stragglers]]`")
    for number, one in enumerate(cast("list[dict[str, Any]]", listed)):
        path, most = f"stragglers.{number}", {"node": topology.nodes, "rank": topology.ranks}
        if ("node" in one) == ("rank" in one) or "slowdown" not in one:
            raise document.error(
                path, f"a straggler has `slowdown` and one of `node` and `rank`, got {', '.join(one) or 'nothing'}",
                fix="write `node = 0` and `slowdown = 1.2`",
            )  # fmt: skip
        which = "node" if "node" in one else "rank"
        if one[which] >= most[which]:
            raise document.error(
                f"{path}.{which}",
                f"`{which}` of a straggler is 0 to {most[which] - 1}, got {one[which]}",
                fix=f"the cluster has {topology.nodes} nodes of {topology.devices} devices",
            )
        yield Straggler(float(one["slowdown"]), one.get("node"), one.get("rank"))
