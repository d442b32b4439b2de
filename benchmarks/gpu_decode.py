"""A decode step of GPT-2-small over KV caches, beside torch eager in a CUDA graph, in one process.

    python -m benchmarks.gpu decode [--sequences 1,16,64] [--filled N] [--capacity N] [--layers N] [--out FILE]

Each sequence takes one token through all layers and appends it to caches of its keys and values, which are donated.
Both sides run from CUDA graphs, so that what is compared is the device's time; torch writes its row of the cache and
attends by `scaled_dot_product_attention` to the rows filled so far, whose number is fixed when its graph is captured,
where ours reads it from the device's memory. Values are compared with torch in float32 first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tessera as ts
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_record import need_gpu, options, write

WIDTH, HEADS, HEAD = 768, 12, 64
GOALS = {1: 0.45, 16: 0.60, 64: 1.2}
"""Milliseconds of a step of 12 layers, at 1,024 of 2,048 positions."""
SHAPES = {
    "norm1": (WIDTH,),
    "shift1": (WIDTH,),
    "qkv": (WIDTH, 3 * WIDTH),
    "qkv_bias": (3 * WIDTH,),
    "out": (WIDTH, WIDTH),
    "out_bias": (WIDTH,),
    "norm2": (WIDTH,),
    "shift2": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH),
    "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH),
    "down_bias": (WIDTH,),
}


def decode(x: Any, layers: Any, caches: Any) -> Any:
    """One token of each sequence, [sequences, 1, width], through all layers; the caches with it."""
    grown: list[Any] = []
    for p, cache in zip(layers, caches, strict=True):
        rows = ts.ops.layernorm(x, p["norm1"], p["shift1"])
        q, k, v = ts.ops.split_qkv(ts.ops.matmul(rows, p["qkv"]) + p["qkv_bias"], heads=HEADS)
        cache = cache.append(k, v)
        mixed = ts.ops.reshape(ts.ops.transpose(ts.ops.attention(q, cache), (0, 2, 1, 3)), x.shape)
        x = x + (ts.ops.matmul(mixed, p["out"]) + p["out_bias"])
        rows = ts.ops.layernorm(x, p["norm2"], p["shift2"])
        hidden = ts.ops.gelu(ts.ops.matmul(rows, p["up"]) + p["up_bias"], approximate="tanh")
        x = x + (ts.ops.matmul(hidden, p["down"]) + p["down_bias"])
        grown.append(cache)
    return x, grown


def torch_decode(torch: Any, x: Any, layers: Any, caches: Any, filled: int) -> Any:
    """The same by torch; the row after the `filled` ones of each cache is written."""
    functional = torch.nn.functional
    for p, (keys, values) in zip(layers, caches, strict=True):
        rows = functional.layer_norm(x, (WIDTH,), p["norm1"], p["shift1"])
        qkv = functional.linear(rows, p["qkv"].T, p["qkv_bias"])
        q, k, v = (part.reshape(len(x), 1, HEADS, HEAD).transpose(1, 2) for part in qkv.split(WIDTH, -1))
        keys[:, :, filled : filled + 1], values[:, :, filled : filled + 1] = k, v
        seen = slice(0, filled + 1)
        mixed = functional.scaled_dot_product_attention(q, keys[:, :, seen], values[:, :, seen])
        x = x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), p["out"].T, p["out_bias"])
        rows = functional.layer_norm(x, (WIDTH,), p["norm2"], p["shift2"])
        hidden = functional.gelu(functional.linear(rows, p["up"].T, p["up_bias"]), approximate="tanh")
        x = x + functional.linear(hidden, p["down"].T, p["down_bias"])
    return x


def make_values(torch: Any, sequences: int, capacity: int, layers: int) -> tuple[Any, Any, Any]:
    """Random tokens, layers and caches."""

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(*shape, device="cuda") * scale).bfloat16()

    made = [
        {name: normal(*shape, scale=shape[0] ** -0.5 if len(shape) > 1 else 0.1) for name, shape in SHAPES.items()}
        for _ in range(layers)
    ]
    for one in made:
        one["norm1"], one["norm2"] = one["norm1"] + 1, one["norm2"] + 1
    stores = [tuple(normal(sequences, HEADS, capacity, HEAD) for _ in range(2)) for _ in range(layers)]
    return normal(sequences, 1, WIDTH), made, stores


def capture_torch(torch: Any, run: Callable[[], Any]) -> Any:
    """A CUDA graph of a function of torch, warmed up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def measure(torch: Any, sequences: int, capacity: int, filled: int, layers: int) -> dict[str, Any]:
    """One row: how far from float32, whether runs have the same bits, and both times in milliseconds."""
    x, weights, stores = make_values(torch, sequences, capacity, layers)
    ours = [{name: ts.cuda.array(value) for name, value in one.items()} for one in weights]
    step = ts.jit(decode, backend="cuda", donate={"caches"})
    given = ts.cuda.array(x)

    def fresh() -> list[Any]:
        made = [[*(part.clone() for part in one), torch.tensor(filled, device="cuda")] for one in stores]
        return [ts.KVCache(*map(ts.cuda.array, parts)) for parts in made]

    # What is captured is given caches of a call before: a graph cannot wait for what torch has made.
    (first, caches), (again, _) = step(given, ours, fresh()), step(given, ours, fresh())
    first, again = torch.from_dlpack(first).clone(), torch.from_dlpack(again).clone()
    wide = [{name: value.float() for name, value in one.items()} for one in weights]
    wanted = torch_decode(torch, x.float(), wide, [tuple(part.float() for part in one) for one in stores], filled)
    peer = torch_decode(torch, x, weights, [tuple(part.clone() for part in one) for one in stores], filled)
    errors = [float(((one.float() - wanted).norm() / wanted.norm()).item()) for one in (first, peer)]
    with ts.cuda.capture() as graph:
        kept = step(given, ours, caches)
    played = capture_torch(torch, lambda: torch_decode(torch, x, weights, stores, filled))
    times = timed(torch, {"tessera": graph.replay, "torch": played.replay}, 1e12)
    del kept
    times = {name: seconds * 1e3 for name, seconds in times.items()}
    facts = {"error": errors[0], "torch_error": errors[1], "same_bits": bool((first == again).all())}
    return {"sequences": sequences, "filled": filled, "capacity": capacity, **facts, **times}


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes, with the ratio of times."""
    row["ratio"], row["goal"] = row["torch"] / row["tessera"], GOALS.get(row["sequences"])
    print(
        f"{row['sequences']:4} sequences {row['filled']} of {row['capacity']}: {row['tessera']:.3f} ms, "
        f"torch {row['torch']:.3f} ms, ratio {row['ratio']:.2f}, goal {row['goal']}, "
        f"error {row['error']:.1e} (torch {row['torch_error']:.1e}) {'' if row['same_bits'] else 'BITS DIFFER'}",
        flush=True,
    )
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options("decode", __doc__)
    parser.add_argument("--sequences", default="1,16,64", help="how many sequences, a row for each")
    parser.add_argument("--filled", type=int, default=1024, help="positions that are filled")
    parser.add_argument("--capacity", type=int, default=2048, help="positions of a cache")
    parser.add_argument("--layers", type=int, default=12, help="layers of a step")
    asked = parser.parse_args(arguments)
    if not 0 < asked.filled < asked.capacity:
        parser.error("a cache has a filled position at least, and one that is free")
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    counts = [int(part) for part in asked.sequences.split(",")]
    rows = [show(measure(torch, count, asked.capacity, asked.filled, asked.layers)) for count in counts]
    write(asked.out, {"step": {"width": WIDTH, "heads": HEADS, "layers": asked.layers}, "rows": rows})


if __name__ == "__main__":
    main()
