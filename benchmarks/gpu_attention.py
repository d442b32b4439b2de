"""Attention on an NVIDIA GPU, through `ts.jit`, beside cuDNN and a copy in one process.

    PYTHONPATH=. python3 -m benchmarks.gpu_attention [--quick] [--only FORM,...] [--out FILE]

Each function is first compared with float64 on fresh random numbers, and run again for the same bits. Then bursts of
contenders are interleaved, with a pause before each so that all see the same clocks, and medians are compared. Both
write the log-sum-exp of each row, but where a kernel in the kernel language has none; decoding is compared with a
copy on the device, by the bytes that both move.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Sequence
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import Run, timed, write_down
from benchmarks.gpu_record import need_gpu
from examples.flash_attention import flash as example
from tessera import Schedule

LENGTHS = ((8, 16, 1024), (8, 16, 2048), (4, 16, 4096), (2, 16, 8192), (1, 16, 16384))
SHARED = ((4, 32, 4096), (1, 64, 8192))
DECODED = ((16, 64, 32768), (4, 32, 65536), (1, 64, 32768), (16, 64, 10000))
_COPIED = 1 << 30


def full(q: Any, k: Any, v: Any) -> Any:
    """Attention to all keys."""
    return ts.ops.attention(q, k, v, return_lse=True)


def causal(q: Any, k: Any, v: Any) -> Any:
    """Attention to the keys so far."""
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def decode(q: Any, k: Any, v: Any) -> Any:
    """One query to all keys."""
    return ts.ops.attention(q, k, v, split_keys=True)


def cached(q: Any, k: Any, v: Any, length: Any) -> Any:
    """One query to the keys that a cache holds."""
    return ts.ops.attention(q, ts.KVCache(k, v, length))


flash = example.with_schedule(Schedule(block=(128, 128), warps=8))


def flash_full(q: Any, k: Any, v: Any) -> Any:
    """The kernel of the example, as a user would schedule it."""
    return flash(q, k, v)


def flash_causal(q: Any, k: Any, v: Any) -> Any:
    """The same, to the keys so far."""
    return flash(q, k, v, causal=True)


FUNCTIONS: dict[str, Any] = {
    function.__name__: ts.jit(function, backend="cuda")
    for function in (full, causal, decode, cached, flash_full, flash_causal)
}


def exact(torch: Any, q: Any, k: Any, v: Any, is_causal: bool) -> tuple[Any, Any]:
    """Attention and the log-sum-exp of its scores, in float64."""
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        scores += torch.full_like(scores, -math.inf).triu(1)
    return torch.softmax(scores, -1) @ v.double(), torch.logsumexp(scores, -1)


def error_of(mine: Any, wanted: Any) -> float:
    """The distance to the wanted values, in parts of their size; NaN where any element is."""
    return float(((mine.double() - wanted).norm() / wanted.norm()).item())


def several(outcome: Any) -> list[Any]:
    """What a function gave, one or more."""
    return [*outcome] if isinstance(outcome, tuple) else [outcome]


def checked(
    torch: Any, jitted: Any, tensors: Sequence[Any], is_causal: bool, others: Sequence[Any] = ()
) -> dict[str, Any]:
    """How far a function is from float64, on the first and the last head, and whether two runs have the same bits."""
    given = [*(ts.cuda.array(value) for value in tensors), *others]
    first, again = several(jitted(*given)), several(jitted(*given))
    torch.cuda.synchronize()
    same = all(bool((torch.from_dlpack(a) == torch.from_dlpack(b)).all()) for a, b in zip(first, again, strict=True))
    errors: list[list[float]] = []
    q, k, v = tensors
    groups = q.shape[1] // k.shape[1]
    for batch, head in ((0, 0), (q.shape[0] - 1, q.shape[1] - 1)):
        part = (slice(batch, batch + 1), slice(head, head + 1))
        shared = (part[0], slice(head // groups, head // groups + 1))
        wanted = exact(torch, q[part], k[shared], v[shared], is_causal)
        errors.append([error_of(torch.from_dlpack(one)[part], want) for one, want in zip(first, wanted, strict=False)])
    worst = [max(each) for each in zip(*errors, strict=True)]
    return {"error": worst[0], "lse_error": worst[1] if len(worst) > 1 else None, "same_bits": same}


def attention_row(torch: Any, form: str, size: Sequence[int], head: int, shared: int = 1) -> dict[str, Any]:
    """One attention beside cuDNN; `shared` heads of queries have one of keys."""
    jitted, is_causal = FUNCTIONS[form], form.endswith("causal")
    batch, heads, length = size
    shapes = [(batch, count, length, head) for count in (heads, heads // shared, heads // shared)]
    q, k, v = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
    given = [ts.cuda.array(value) for value in (q, k, v)]
    is_written = not form.startswith("flash")
    attend = torch.ops.aten._scaled_dot_product_cudnn_attention

    def peer() -> Any:
        return attend(q, k, v, None, is_written, 0.0, is_causal, False)

    facts = checked(torch, jitted, (q, k, v), is_causal)
    flops = 4.0 * batch * heads * length * length * head / (2 if is_causal else 1)
    times = timed(torch, {"tessera": lambda: jitted(*given), "torch": peer}, flops)
    rates = {name: flops / seconds / 1e12 for name, seconds in times.items()}
    name = form if shared == 1 else f"{form} {shared}:1"
    return {"form": name, "size": [*size, head], **facts, **rates, "ratio": times["torch"] / times["tessera"]}


def decode_row(torch: Any, form: str, size: Sequence[int], shared: int = 8, head: int = 128) -> dict[str, Any]:
    """One query of each head, beside a copy: bytes of keys and values, and of what a copy reads and writes, by time.

    A cache is full, and only the device knows it.
    """
    batch, heads, length = size
    q = torch.randn(batch, heads, 1, head, device="cuda").bfloat16()
    k, v = (torch.randn(batch, heads // shared, length, head, device="cuda").bfloat16() for _ in range(2))
    given, jitted = [ts.cuda.array(value) for value in (q, k, v)], FUNCTIONS[form]
    if form == "cached":
        given.append(ts.cuda.array(torch.tensor(length, device="cuda")))
    facts = checked(torch, jitted, (q, k, v), False, given[3:])
    source = torch.empty(_COPIED // 2, device="cuda", dtype=torch.bfloat16).normal_()
    target = torch.empty_like(source)
    runs: dict[str, Run] = {"tessera": lambda: jitted(*given), "copy": lambda: target.copy_(source)}
    times = timed(torch, runs, 4e11)
    moved = 2 * (k.numel() + v.numel())
    rates = {"tessera": moved / times["tessera"] / 1e12, "torch": 2 * _COPIED / times["copy"] / 1e12}
    return {"form": form, "size": [*size, head], **facts, **rates, "ratio": rates["tessera"] / rates["torch"]}


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes."""
    unit = "TB/s" if row["form"] in ("decode", "cached") else "TFLOP/s"
    lse = "" if row["lse_error"] is None else f"{row['lse_error']:.1e}"
    print(
        f"{row['form']:12} {'x'.join(map(str, row['size'])):18} {row['tessera']:7.2f} {row['torch']:7.2f} {unit} "
        f"ratio {row['ratio']:.3f} error {row['error']:.2e} {lse} {'' if row['same_bits'] else 'BITS DIFFER'}",
        flush=True,
    )
    return row


def plan(quick: bool) -> list[tuple[str, tuple[int, ...], int, int]]:
    """Form, size, head and queries for each key, of all rows."""
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for form in ("full", "causal"):
        found += [(form, size, 128, 1) for size in (LENGTHS[2:3] if quick else LENGTHS)]
        if not quick:
            found += [(form, (4, 32, 4096), 64, 1), *[(form, size, 128, 8) for size in SHARED]]
        found.append((f"flash_{form}", LENGTHS[2], 128, 1))
    found += [("decode", size, 128, 8) for size in (DECODED[:1] if quick else DECODED)]
    return [*found, ("cached", DECODED[0], 128, 8)]


def means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The geometric mean of each form with heads of 128."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["size"][-1] == 128:
            found.setdefault(row["form"], []).append(math.log(row["ratio"]))
    return {form: math.exp(sum(logs) / len(logs)) for form, logs in found.items()}


def main() -> None:
    """Run all rows and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    kept = [row for row in plan(asked.quick) if not asked.only or row[0] in asked.only.split(",")]
    rows: list[dict[str, Any]] = []
    for form, size, head, shared in kept:
        is_decoding = form in ("decode", "cached")
        made = decode_row(torch, form, size) if is_decoding else attention_row(torch, form, size, head, shared)
        rows.append(show(made))
    print(means(rows))
    write_down(torch, rows, asked.out)


if __name__ == "__main__":
    main()
