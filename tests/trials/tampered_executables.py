"""Executables that were tampered with and sealed anew: every one is refused by `LoadError`, and no process dies.

    python -m tests.trials.tampered_executables 5000 --seed 1 --jobs 2

Three kinds. `sealed`: any field of the header, the prefix or the parts is changed, and the SHA-256 at the end is made
to match. `forged`: bytes of an object file are changed, and the digest in the header that ties it to its code is made
to match as well. `headed`: fields of the header are changed, and both digests match; some of these files are for a
GPU, and are read where there is none. Files of the last two kinds are only linked, never called, since they may hold
any code, or say anything of the code that they hold.
"""

# Headers are JSON, and traced functions lambdas: neither has types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import argparse
import collections
import copy
import hashlib
import json
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.diagnostics.codes import DeviceError, LoadError
from tessera.runtime import executable as format_
from tessera.runtime.devices.cuda.program import CudaProgram
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tests.trials.mutate_text import ROOT

PREFIX, DIGEST = 16, 32
X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 4), np.float32)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda x: x + 1.0, (X,)),
    "softmax": (lambda x: ts.ops.softmax(x @ x.T), (X,)),
    "two results": (lambda x, w: (x @ w, x.sum(axis=0)), (X, W)),
    "integers": (lambda i: i.cumsum(axis=0), (np.arange(5),)),
}
GPU = "softmax on a GPU"
RARE_FACTS: dict[str, Any] = {
    "donated": {"given": [0], "kept": [[0, 0]]},
    "callbacks": [["io_callback", 0, "", [["f32", 1]], []]],
    "features": ["avx2"],
}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 3, 1 << 70, 0.5, "", "N", "64", "f32", "i64", "f64", "bool", "4*N + 1", "(", [], {}, [[]]),
    *(["f32", ["N"], "x"], ["f32", [], ""], [1, 2], "\u0000", {"features": 3}, {"features": ["nonsense"]}),
)


@cache
def sealed_bytes() -> dict[str, bytes]:
    """The files that are tampered with; half of the dims are symbols."""
    found: dict[str, bytes] = {}
    for number, (name, (function, arguments)) in enumerate(PROGRAMS.items()):
        jitted = ts.jit(function, dynamic=number % 2 == 0)
        found[name] = compile_tape(jitted.trace(*arguments).tape, ts.Options()).to_bytes()
    function, arguments = PROGRAMS["softmax"]
    options = ts.Options.of(backend="cuda", features=("sm_90a",))
    found[GPU] = compile_tape(ts.jit(function, dynamic=True).trace(*arguments).tape, options).to_bytes()
    return found


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the parts of a file."""
    length = int.from_bytes(data[12:PREFIX], "little")
    return json.loads(data[PREFIX : PREFIX + length]), data[PREFIX + length : -DIGEST]


def seal(header: Any, parts: bytes, prefix: bytes = b"") -> bytes:
    """A file of a header and parts, with the digest that belongs there."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    start = prefix or format_.MAGIC + format_.VERSION.to_bytes(4, "little") + len(text).to_bytes(4, "little")
    return start + text + parts + hashlib.sha256(start + text + parts).digest()


def tie_and_seal(header: dict[str, Any], parts: bytes, sizes: Sequence[int]) -> bytes:
    """A file whose header is tied to the objects of these sizes, with both digests that belong there."""
    objects = [parts[start:end] for start, end in pairwise([0, *accumulate(sizes)])][:-1]
    return seal({**header, "belongs": format_.tie_to_code(header, objects)}, parts)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a header."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in places(item, (*path, key)))]


def change_field(header: Any, rng: random.Random) -> Any:
    """A header with one value replaced, dropped, doubled, or swapped with its neighbour."""
    path = rng.choice(places(header)[1:])
    holder: Any = header
    for key in path[:-1]:
        holder = holder[key]
    key, old = path[-1], holder[path[-1]]
    kind = rng.choice(("replace", "replace", "near", "near", "drop", "double", "swap"))
    if kind == "near" and isinstance(old, int):
        holder[key] = old + rng.choice((-1, 1, 2, 1000))
    elif kind == "near" and isinstance(old, str):
        holder[key] = rng.choice((old + "1", old[:-1], old.swapcase(), "N", str(rng.randrange(9))))
    elif kind == "drop":
        del holder[key]
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(old))
    elif kind == "swap" and isinstance(holder, list) and len(holder) > 1:
        other = rng.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    return header


def flip(data: bytes, rng: random.Random, count: int) -> bytes:
    changed = bytearray(data)
    for _ in range(count):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
    return bytes(changed)


def draw_sealed(data: bytes, rng: random.Random) -> bytes:
    """A file changed anywhere and sealed anew."""
    header, parts = split(data)
    kind = rng.random()
    if kind < 0.7:
        for _ in range(rng.choice((1, 1, 2, 4))):
            header = change_field(header, rng)
        return seal(header, parts)
    if kind < 0.8:
        return seal(header, flip(parts, rng, rng.choice((1, 1, 8))) if parts else b"x")
    if kind < 0.87:
        at = rng.randrange(len(parts) + 1)
        return seal(header, parts[:at] + rng.randbytes(rng.choice((0, 1, 40))) + parts[at + rng.choice((1, 9)) :])
    if kind < 0.93:
        text = json.dumps(header)
        at = rng.randrange(len(text))
        texts = (
            text[:at],
            text[:at] + "\\" + text[at:],
            "[" * 100_000,
            "null",
            "[]",
            '"x"',
            "{}",
            "1" * 9000,
            text + text,
        )
        return seal(rng.choice(texts), parts)
    start = bytearray(data[:PREFIX])
    start[rng.randrange(8, PREFIX)] ^= 1 << rng.randrange(8)
    return seal(header, parts, bytes(start))


def draw_forged(data: bytes, rng: random.Random) -> bytes:
    """A file whose object was changed where linkers read it (its head and its tables), tied and sealed anew."""
    made = Executable.from_bytes(data)
    number = rng.randrange(len(made.objects))
    one = made.objects[number]
    table = int.from_bytes(one[40:48], "little")
    head, tail = (0, 64) if rng.random() < 0.3 else (table, len(one)), b""
    changed = one[: head[0]] + flip(one[head[0] : head[1]], rng, rng.choice((1, 1, 2, 6))) + one[head[1] :] + tail
    if rng.random() < 0.1:
        changed = one[: rng.randrange(len(one))]
    objects = (*made.objects[:number], changed, *made.objects[number + 1 :])
    return Executable(
        objects, made.inputs, made.outputs, made.symbols, made.binding, made.guards, made.metadata, made.support
    ).to_bytes()


def draw_headed(data: bytes, rng: random.Random) -> bytes:
    """A file whose header says something else of its code, tied to it and sealed anew."""
    header, parts = split(data)
    sizes = list(header["blobs"])
    for _ in range(rng.choice((1, 1, 2, 4))):
        if rng.random() < 0.3:  # facts that few programs have, which other code reads
            fact, form = rng.choice(list(RARE_FACTS.items()))
            header["metadata"][fact] = copy.deepcopy(form) if rng.random() < 0.7 else copy.deepcopy(rng.choice(VALUES))
        header = change_field(header, rng)
        if not isinstance(header.get("metadata"), dict):
            break
    return tie_and_seal(header, parts, sizes) if header.keys() >= set(format_.FACTS) else seal(header, parts)


def judge(name: str, data: bytes, *, is_called: bool) -> tuple[str, str]:
    """What became of a file, and for a fault what is wrong with that."""
    try:
        program = (CudaProgram if name == GPU else LoadedExecutable)(Executable.from_bytes(data))
    except LoadError:
        return "refused", ""
    except DeviceError:  # what is said of the kernels was accepted, and there is no GPU, or it refuses them
        return "read", ""
    except BaseException:
        return "fault", traceback.format_exc()[-2000:]
    if not is_called:
        return "linked", ""
    arguments = PROGRAMS[name][1]
    wanted = [np.asarray(one) for one in _listed(reference(name)(*arguments))]
    found = [np.asarray(one) for one in _listed(program(*arguments))]
    same = len(wanted) == len(found) and all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b) for a, b in zip(wanted, found, strict=True)
    )
    return ("unchanged", "") if same else ("fault", f"another result: {found}")


@cache
def reference(name: str) -> LoadedExecutable:
    return LoadedExecutable(Executable.from_bytes(sealed_bytes()[name]))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "sealed": draw_sealed,
    "forged": draw_forged,
    "headed": draw_headed,
}


def run_cases(numbers: Sequence[int], seed: int) -> collections.Counter[str]:
    """Run some cases in this process; faults are printed as JSON lines."""
    counts: collections.Counter[str] = collections.Counter()
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        name, drawn = rng.choice(tuple(PROGRAMS)), rng.choice(tuple(KINDS))
        if drawn == "headed" and rng.random() < 0.4:
            name = GPU
        changed = KINDS[drawn](sealed_bytes()[name], rng)
        print(json.dumps({"at": number}), flush=True)
        kind, fault = judge(name, changed, is_called=drawn == "sealed")
        counts[f"{drawn} {kind}"] += 1
        if fault:
            print(json.dumps({"number": number, "fault": f"{name}: {fault}"}), flush=True)
    return counts


def main() -> int:
    """Run a campaign in some processes; 1 where a file did what it must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part >= 0:
        print(json.dumps({"counts": run_cases(range(given.part, given.count, given.jobs), given.seed)}))
        return 0
    command = [sys.executable, "-m", "tests.trials.tampered_executables", str(given.count), "--seed", str(given.seed)]
    started = time.perf_counter()
    workers = [
        subprocess.Popen(
            [*command, "--jobs", str(given.jobs), "--part", str(part)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(ROOT),
        )
        for part in range(given.jobs)
    ]
    counts: collections.Counter[str] = collections.Counter()
    faults = 0
    for worker in workers:
        output, _ = worker.communicate()
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        faults += worker.returncode != 0
        if worker.returncode != 0:
            print(
                f"a process died with {worker.returncode} at case {[line['at'] for line in lines if 'at' in line][-1:]}"
            )
        for line in lines:
            counts.update(line.get("counts", {}))
            if "fault" in line:
                faults += 1
                print(f"case {line['number']}: {line['fault']}")
    print(f"{counts.total()} files, {faults} faults, {time.perf_counter() - started:.0f} s")
    print(", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
