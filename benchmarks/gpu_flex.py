"""Attention with functions on an NVIDIA GPU, beside `torch.compile(flex_attention)`: eight examples, both passes.

    python -m benchmarks.gpu flex [--only NAME,...] [--head N] [--length N] [--rounds N] [--out FILE]

Scores and masks are those of FlexAttention's published examples; its block masks are built once, outside of what is
timed. Values of both are compared with float64 on the first and the last head, and two runs of ours with each other.
All run in one process, interleaved in bursts. The row `share` compares a window of 1,024 of 16,384 keys with all.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_ports import compile_beside
from benchmarks.gpu_record import chosen, need_gpu, options, write

BATCH, HEADS, WINDOW, CAP = 4, 16, 1024, 20.0
LONG = 16384
BOUND = 2.0**-6
EXAMPLES = ("noop", "causal", "alibi", "soft cap", "window", "documents", "prefix", "table")


@dataclass(frozen=True)
class Math:
    """What functions of scores are written with: ours, or torch's."""

    put: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    cast: Callable[[Any], Any]


@dataclass(frozen=True)
class Tables:
    """What functions capture, as tensors of torch."""

    slopes: Any
    bias: Any
    documents: Any
    prefix: Any

    @classmethod
    def of(cls, torch: Any, length: int) -> Tables:
        """Slopes of heads, relative biases, lengths of documents and of prefixes."""
        slopes = torch.exp2(-torch.arange(1, HEADS + 1, device="cuda") * 8.0 / HEADS)
        documents = torch.randint(0, 12, (length,), device="cuda", dtype=torch.int32).sort()[0]
        prefix = torch.randint(1, length, (BATCH,), device="cuda", dtype=torch.int32)
        return cls(slopes, torch.randn(HEADS, 2 * length - 1, device="cuda"), documents.contiguous(), prefix)


def functions(name: str, tables: Tables, length: int, math_of: Math) -> tuple[Any, Any]:
    """The score and the mask of an example; None where it has none."""
    slopes, bias = math_of.put(tables.slopes), math_of.put(tables.bias)
    documents, prefix = math_of.put(tables.documents), math_of.put(tables.prefix)
    scores: dict[str, Any] = {
        "alibi": lambda s, b, h, i, j: s + slopes[h] * math_of.cast(j - i),
        "soft cap": lambda s, b, h, i, j: CAP * math_of.tanh(s / CAP),
        "table": lambda s, b, h, i, j: s + bias[h, i - j + (length - 1)],
        "noop": lambda s, b, h, i, j: s,
    }
    masks: dict[str, Any] = {
        "causal": lambda b, h, i, j: i >= j,
        "alibi": lambda b, h, i, j: i >= j,
        "window": lambda b, h, i, j: (i >= j) & (i - j < WINDOW),
        "documents": lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j),
        "prefix": lambda b, h, i, j: (j < prefix[b]) | (i >= j),
    }
    return scores.get(name), masks.get(name)


def ours(name: str, tables: Tables, length: int) -> tuple[Any, Any]:
    """The forward program, and the forward and backward one."""
    score, mask = functions(name, tables, length, Math(ts.cuda.array, ts.ops.tanh, lambda x: x.cast(ts.f32)))

    def attend(q: Any, k: Any, v: Any) -> Any:
        return ts.ops.attention(q, k, v, mask, score=score)

    def step(q: Any, k: Any, v: Any, cotangent: Any) -> Any:
        out, pull = ts.vjp(attend, q, k, v)
        return out, *pull(cotangent)

    return ts.jit(attend, backend="cuda"), ts.jit(step, backend="cuda")


def theirs(torch: Any, name: str, tables: Tables, length: int) -> Callable[..., Any]:
    """FlexAttention, compiled for the sizes."""
    flex: Any = importlib.import_module("torch.nn.attention.flex_attention")
    score, mask = functions(name, tables, length, Math(lambda x: x, torch.tanh, lambda x: x))
    blocks = None
    if mask is not None:
        build = torch.compile(flex.create_block_mask)
        blocks = build(mask, BATCH if name == "prefix" else None, None, length, length, device="cuda")
    compiled = torch.compile(flex.flex_attention, dynamic=False)

    def run(q: Any, k: Any, v: Any) -> Any:
        return compiled(q, k, v, score_mod=score, block_mask=blocks)

    return run


def exact(torch: Any, name: str, tables: Tables, operands: Sequence[Any], at: tuple[int, int]) -> Any:
    """One head in float64."""
    batch, head = at
    q, k, v = (one[batch, head].double() for one in operands)
    length = len(q)
    score, mask = functions(name, tables, length, Math(lambda x: x, torch.tanh, lambda x: x.double()))
    found = q @ k.T / math.sqrt(q.shape[-1])
    i, j = torch.arange(length, device="cuda")[:, None], torch.arange(length, device="cuda")[None, :]
    found = found if score is None else score(found, batch, head, i, j)
    found = found if mask is None else found.masked_fill(~mask(batch, head, i, j), -math.inf)
    return torch.softmax(found, -1) @ v


def operands_of(torch: Any, length: int, head: int, batch: int = BATCH) -> list[Any]:
    """Queries, keys, values and a cotangent."""
    return [torch.randn(batch, HEADS, length, head, device="cuda").bfloat16() for _ in range(4)]


def measure(torch: Any, name: str, length: int, head: int, rounds: int) -> dict[str, Any]:
    """One example: errors of both, whether our runs have the same bits, and milliseconds of both passes."""
    tables, operands = Tables.of(torch, length), operands_of(torch, length, head)
    given = [ts.cuda.array(one) for one in operands]
    forward, step = ours(name, tables, length)
    peer = theirs(torch, name, tables, length)
    first, again = (torch.from_dlpack(forward(*given[:3])) for _ in range(2))
    leaves = [one.clone().requires_grad_() for one in operands[:3]]

    def peer_forward() -> Any:
        with torch.no_grad():
            return peer(*operands[:3])

    def peer_step() -> Any:
        return torch.autograd.grad(peer(*leaves), leaves, operands[3])

    errors: dict[str, float] = {}
    for whose, out in (("tessera", first), ("torch", peer_forward())):
        found: list[float] = []
        for at in ((0, 0), (BATCH - 1, HEADS - 1)):
            wanted = exact(torch, name, tables, operands[:3], at)
            found.append(float(((out[at].double() - wanted).norm() / wanted.norm()).item()))
        errors[whose] = max(found)
    if not errors["tessera"] <= BOUND:
        raise ArithmeticError(f"{name} is wrong by {errors['tessera']:.3g}, allowed {BOUND:.3g}")
    made, peers = step(*given), peer_step()
    slopes = [
        float(((torch.from_dlpack(one).double() - other.double()).norm() / other.double().norm()).item())
        for one, other in zip(made[1:], peers, strict=True)
    ]
    runs = {"tessera": lambda: forward(*given[:3]), "torch": peer_forward}
    runs |= {"tessera step": lambda: step(*given), "torch step": peer_step}
    times = {key: 1e3 * seconds for key, seconds in timed(torch, runs, 2e12, rounds).items()}
    backward = {whose: times[f"{whose} step"] - times[whose] for whose in ("tessera", "torch")}
    return {
        "name": name,
        "errors": errors,
        "gradients_apart": max(slopes),
        "same_bits": bool(torch.equal(first, again)),
        "milliseconds": times,
        "forward": times["torch"] / times["tessera"],
        "backward": backward["torch"] / backward["tessera"],
    }


def share(torch: Any, head: int, rounds: int) -> dict[str, Any]:
    """What a window costs, in parts of its share of all scores."""
    tables, operands = Tables.of(torch, LONG), operands_of(torch, LONG, head, 1)[:3]
    given = [ts.cuda.array(one) for one in operands]
    programs = {name: ours(name, tables, LONG)[0] for name in ("window", "noop")}
    for program in programs.values():
        program(*given)
    runs = {name: lambda program=program: program(*given) for name, program in programs.items()}
    times = {key: 1e3 * seconds for key, seconds in timed(torch, runs, 2e12, rounds).items()}
    seen = (WINDOW * LONG - WINDOW * (WINDOW - 1) / 2) / LONG**2
    return {"name": "share", "milliseconds": times, "of_its_share": times["window"] / times["noop"] / seen}


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes."""
    times = ", ".join(f"{key} {value:.3f}" for key, value in row["milliseconds"].items())
    if row["name"] == "share":
        print(f"a window of {WINDOW} of {LONG} keys: {times} ms, {row['of_its_share']:.2f} of its share", flush=True)
        return row
    bits = "" if row["same_bits"] else " BITS DIFFER"
    print(
        f"{row['name']:10} forward {row['forward']:.2f}, backward {row['backward']:.2f}: {times} ms; errors "
        f"{row['errors']['tessera']:.1e}, torch {row['errors']['torch']:.1e}; gradients apart "
        f"{row['gradients_apart']:.1e}{bits}",
        flush=True,
    )
    return row


def compile_row(torch: Any, name: str, length: int, head: int) -> None:
    """Fill the disk caches of both compilers with the programs of an example."""
    tables, operands = Tables.of(torch, length), operands_of(torch, length, head)
    given = [ts.cuda.array(one) for one in operands]
    for program, count in zip(ours(name, tables, length), (3, 4), strict=True):
        program(*given[:count])
    leaves = [one.clone().requires_grad_() for one in operands[:3]]
    peer = theirs(torch, name, tables, length)
    with torch.no_grad():
        peer(*operands[:3])
    torch.autograd.grad(peer(*leaves), leaves, operands[3])


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options("flex", __doc__)
    parser.add_argument("--length", type=int, default=4096, help="queries and keys")
    parser.add_argument("--head", type=int, default=64, help="elements of a head")
    parser.add_argument("--rounds", type=int, default=5, help="bursts of each program")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    names = chosen(asked.only, [*EXAMPLES, "share"], parser)
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    examples = [name for name in names if name != "share"]
    if asked.compile:
        for name in examples:
            compile_row(torch, name, asked.length, asked.head)
        return
    compile_beside("benchmarks.gpu_flex", examples, ["--length", str(asked.length), "--head", str(asked.head)])
    rows = [show(measure(torch, name, asked.length, asked.head, asked.rounds)) for name in examples]
    means = {
        key: math.exp(sum(math.log(row[key]) for row in rows) / len(rows))
        for key in ("forward", "backward")
        if rows and all(row[key] > 0 for row in rows)
    }
    print(", ".join(f"geometric mean {key} {value:.2f}" for key, value in means.items()))
    rows += [show(share(torch, 128, asked.rounds))] if "share" in names else []
    write(asked.out, {"length": asked.length, "head": asked.head, "means": means, "rows": rows})


if __name__ == "__main__":
    main()
