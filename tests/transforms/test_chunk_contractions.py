"""Products in chunks: the same bits as whole ones, for losses, gradients and shapes that are drawn, in less memory."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn, ops
from tessera.compiler.compile import lower, schedule_tape
from tessera.compiler.options import Options
from tessera.compiler.report import report_of
from tessera.diagnostics.codes import MemoryBudgetError, OverrideError
from tessera.frontend.pytree import flatten
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import plain
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes.chunk_contractions import CHUNKED, LIMIT
from tessera.ir.graph.passes.rematerialize import BYTES, KEPT, POINTWISE
from tessera.ir.graph.pipeline import pipeline
from tessera.ir.schedule.plan import programs_in

LOSSES: dict[str, Any] = {
    "mean": lambda x, w, k: nn.cross_entropy(x @ w.T, k),
    "none": lambda x, w, k: nn.cross_entropy(x @ w.T, k, reduction="none").sum(),
    "smoothed": lambda x, w, k: nn.cross_entropy(x @ w.T, k, label_smoothing=0.1),
    "bias": lambda x, w, k: nn.cross_entropy(x @ w.T + w[:, 0], k),
    "squared, so that its gradient needs the loss": lambda x, w, k: nn.cross_entropy(x @ w.T, k) ** 2,
    "scores of the other order": lambda x, w, k: ops.logsumexp(w @ x.T, axis=0).sum(),
    "softmax": lambda x, w, k: (ops.softmax(x @ w.T) * ops.tanh(w[:, 0])).sum(axis=1).sum(),
    "two products": lambda x, w, k: nn.cross_entropy(x @ w.T + ops.tanh(x) @ (w * 2).T, k),
    "a layer before": lambda x, w, k: nn.cross_entropy(ops.tanh(x @ x[:3].T @ x[:3]) @ w.T, k),
    "one value as both operands": lambda x, w, k: ops.logsumexp(x @ x.T, axis=-1).mean() + (w * w).sum(),
}


def draw(seed: int) -> tuple[int, int, int, int, Any]:
    """Rows, width, columns, bytes that a product may have, and a dtype; often sizes that no chunk divides."""
    chosen = random.Random(seed)
    rows, width, columns = chosen.randint(5, 70), chosen.randint(1, 4), chosen.choice([1, 2, 17, 40, 61, 128])
    return rows, width, columns, chosen.choice([64, 300, 1000, 5000]), chosen.choice([ts.f32, ts.f32, ts.bf16])


def arrays(rows: int, width: int, columns: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features, weights, and labels of which some are negative and do not count."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal((size, width)).astype(np.float32) for size in (rows, columns))
    return x, w, rng.integers(-1, columns, rows).astype(np.int32)


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(ops.astype(one, ts.f32)).tobytes() for one in flatten(tree)[0]]


def chunked_in(explained: Any) -> list[str]:
    return [line.strip() for line in str(explained).splitlines() if "chunks of" in line]


def workspace_in(explained: Any) -> int:
    found = re.search(r"workspace: (\d+) bytes", str(explained))
    assert found is not None
    return int(found[1])


def results_of(tape: Tape, limit: int, *given: Any, level: int = BYTES) -> tuple[list[bytes], bool]:
    """What a program gives by the interpreter after the graph stage, and whether something is in chunks."""
    module = from_tape(tape)
    for one in pipeline(limit=limit, level=level):
        one.run(module)
    verify(module)
    function = symbol_table(module)["main"]
    return [np.asarray(one).tobytes() for one in interpret(function, *given)], CHUNKED in function.attributes


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", LOSSES)
def test_chunks_change_no_bit(name: str, seed: int) -> None:
    """The graph means the same before and after, by the interpreter, for losses and gradients."""
    rows, width, columns, limit, dtype = draw(seed)
    given = arrays(rows, width, columns, seed)

    def loss(x: Any, w: Any, labels: Any) -> Any:
        return LOSSES[name](x.cast(dtype), w.cast(dtype), labels)

    for function in (loss, ts.value_and_grad(loss, (0, 1))):
        jitted: Any = ts.jit(function)
        tape = jitted.trace(*given).tape
        level = POINTWISE if seed % 3 == 0 else BYTES
        assert results_of(tape, LIMIT, *given, level=level)[0] == results_of(tape, limit, *given, level=level)[0]


STEPS: list[Any] = [
    lambda z, x, w: z + w[:, 0],
    lambda z, x, w: ops.tanh(z) * 0.5,
    lambda z, x, w: z - z.max(axis=-1, keepdims=True),
    lambda z, x, w: z * ops.softmax(z),
    lambda z, x, w: z + ops.tanh(x) @ (w * 0.5).T,
    lambda z, x, w: ops.where(z > 0.0, z, z * 0.1),
    lambda z, x, w: z + (z * w[:, 0]).sum(axis=-1, keepdims=True) * 0.1,
]

ENDS: list[Any] = [
    lambda z, x, w: ops.logsumexp(z, axis=-1).mean(),
    lambda z, x, w: ops.square(ops.softmax(z) @ w).sum(),
    lambda z, x, w: (ops.softmax(z) * w[:, 0]).sum(axis=-1).sum() ** 2,
    lambda z, x, w: ops.logsumexp(z, axis=-1).mean() * ops.logsumexp(x @ w.T, axis=-1).sum(),
]


@pytest.mark.parametrize("seed", range(10))
def test_drawn_programs_mean_the_same_in_chunks(seed: int) -> None:
    """Chains of steps on scores of batches and sequences, wherever what is reduced from them is needed again."""
    chosen = random.Random(seed)
    shape = chosen.choice([(chosen.randint(8, 40),), (chosen.randint(2, 4), chosen.randint(5, 12))])
    x, w, _ = arrays(int(np.prod(shape)), chosen.randint(1, 4), chosen.choice([20, 33, 64]), seed)
    x = x.reshape(*shape, -1)
    steps, end = chosen.choices(STEPS, k=chosen.randint(1, 4)), chosen.choice(ENDS)

    def loss(x: Any, w: Any) -> Any:
        z = x @ w.T
        for step in steps:
            z = step(z, x, w)
        return end(z, x, w)

    jitted: Any = ts.jit(ts.value_and_grad(loss, (0, 1)))
    tape, size = jitted.trace(x, w).tape, int(np.prod(shape)) * len(w) * 4
    assert results_of(tape, LIMIT, x, w)[0] == results_of(tape, size // 3, x, w)[0]
    found, is_chunked = results_of(tape, size // 20, x, w)
    assert found == results_of(tape, LIMIT, x, w)[0]
    assert is_chunked


@pytest.mark.parametrize(("name", "dtype"), [(name, ts.f32) for name in LOSSES] + [("mean", ts.bf16)])
def test_compiled_code_has_the_same_bits_and_a_smaller_workspace(name: str, dtype: Any) -> None:
    x, w, labels = arrays(131, 4, 150)
    x, w = (ts.array(one).cast(dtype) for one in (x, w))
    for function in (LOSSES[name], ts.value_and_grad(LOSSES[name], (0, 1))):
        whole: Any = ts.jit(function)
        chunked: Any = ts.jit(function, largest_contraction=4096)
        assert bits(whole(x, w, labels)) == bits(chunked(x, w, labels))
        sizes = [workspace_in(one.explain(x, w, labels)) for one in (chunked, whole)]
        assert sizes[0] < sizes[1] / 2
        assert chunked_in(chunked.explain(x, w, labels))
        assert not chunked_in(whole.explain(x, w, labels))


@pytest.mark.parametrize(("rows", "columns"), [(64, 5000), (5000, 64)])
def test_segments_of_a_long_sum_are_those_of_the_whole(rows: int, columns: int) -> None:
    x, w, labels = arrays(rows, 4, columns)
    function = ts.value_and_grad(LOSSES["mean"], (0, 1))
    whole: Any = ts.jit(function)
    chunked: Any = ts.jit(function, largest_contraction=rows * columns // 5)
    assert "segment = " in chunked.lower(x, w, labels).graph
    assert bits(whole(x, w, labels)) == bits(chunked(x, w, labels))
    assert chunked_in(chunked.explain(x, w, labels))


def workspace(function: Any, **options: Any) -> tuple[int, Any]:
    """What is planned for a function whose parameters have sizes, and the program."""
    jitted: Any = ts.jit(function)
    (program,) = programs_in(schedule_tape(jitted.trace().tape, Options.of(**options)))
    assert program.workspace is not None
    assert program.workspace.value is not None
    return program.workspace.value, program


def head(rows: int, *, dtype: Any = ts.f32, width: int = 768, columns: int = 50304) -> tuple[Any, Any]:
    """The loss of a language model's head, and its gradients."""
    x, w, labels = ts.Tensor[rows, width, dtype], ts.Tensor[columns, width, dtype], ts.Tensor[rows, ts.i32]

    def loss(x: x, w: w, labels: labels) -> Any:  # pyright: ignore[reportInvalidTypeForm]
        return nn.cross_entropy(x @ w.T, labels)

    def gradients(x: x, w: w, labels: labels) -> Any:  # pyright: ignore[reportInvalidTypeForm]
        return ts.value_and_grad(lambda x, w: nn.cross_entropy(x @ w.T, labels), (0, 1))(x, w)

    for function in (loss, gradients):
        function.__annotations__.update(x=x, w=w, labels=labels)
    return loss, gradients


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_logits_of_a_large_vocabulary_are_not_in_memory(backend: str) -> None:
    loss, gradients = head(8192)
    logits = 8192 * 50304 * 4
    assert workspace(loss, backend=backend)[0] > logits
    assert workspace(gradients, backend=backend)[0] > 2 * logits
    limit = 256 << 20
    rows = 8192 * 64  # a few numbers for each row
    assert workspace(loss, backend=backend, largest_contraction=limit)[0] < limit + rows
    # Two values of a chunk at a time; the weight padded to a multiple of the chunk, and its gradient.
    weight = 768 * (50304 + 8192) * 4
    assert workspace(gradients, backend=backend, largest_contraction=limit)[0] < 2 * limit + 2 * weight + rows


def test_the_bound_is_two_gibibytes_where_nothing_is_said() -> None:
    small, large = (workspace(head(rows)[0]) for rows in (8192, 16384))
    assert CHUNKED not in small[1].attributes
    assert large[0] <= LIMIT == 2**31
    assert plain(large[1].attributes[CHUNKED])[0].startswith("matmul [16384, 50304] f32: 3296722944 bytes, in 2 chunks")


def test_a_budget_of_memory_is_kept_by_chunks() -> None:
    budget = 600 << 20
    for function in head(8192):
        planned, program = workspace(function, memory=budget)
        assert planned <= budget
        assert CHUNKED in program.attributes
    with pytest.raises(MemoryBudgetError, match="the program needs"):
        workspace(head(8192)[1], memory=1 << 16)


def test_what_fits_into_the_budget_is_not_in_chunks() -> None:
    x, w, labels = arrays(64, 4, 100)
    easy: Any = ts.jit(ts.value_and_grad(LOSSES["mean"], (0, 1)), memory=1 << 20)
    tight: Any = ts.jit(ts.value_and_grad(LOSSES["mean"], (0, 1)), memory=20_000)
    assert bits(tight(x, w, labels)) == bits(easy(x, w, labels))
    assert chunked_in(tight.explain(x, w, labels))
    assert not chunked_in(easy.explain(x, w, labels))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, w, k: (x @ w.T, nn.cross_entropy(x @ w.T, k)), id="a result"),
        pytest.param(lambda x, w, k: ops.sort((x @ w.T).reshape(-1)), id="needed whole"),
        pytest.param(lambda x, w, k: ops.tanh(x @ w.T) @ w[:, :1].repeat(30, axis=1), id="a result of many elements"),
        pytest.param(lambda x, w, k: ops.tril(x @ w.T).sum(axis=1), id="depends on positions"),
        pytest.param(lambda x, w, k: ops.exp(x @ w.T).sum(), id="a sum over rows and columns"),
    ],
)
def test_other_products_stay_whole(function: Any) -> None:
    x, w, labels = arrays(64, 4, 100)
    whole: Any = ts.jit(function)
    chunked: Any = ts.jit(function, largest_contraction=1000)
    assert bits(chunked(x, w, labels)) == bits(whole(x, w, labels))
    assert not chunked_in(chunked.explain(x, w, labels))


def test_a_symbolic_product_stays_whole() -> None:
    @ts.jit(largest_contraction=1000)
    def loss(x: ts.Tensor["N", 4, ts.f32], w: ts.Tensor[100, 4, ts.f32]) -> Any:
        return ops.logsumexp(x @ w.T, axis=-1).sum()

    assert "tgraph.scan" not in loss.lower().graph


def test_batches_of_sequences_and_attention_by_hand() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((4, 16, 6)).astype(np.float32), rng.standard_normal((6, 60)).astype(np.float32)
    labels = rng.integers(0, 60, (4, 16))

    def loss(x: Any, w: Any) -> Any:
        return nn.cross_entropy(x @ w, labels)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return ops.square(ops.softmax(q @ k.transpose(0, 2, 1)) @ v).sum()

    q, k, v = (rng.standard_normal((3, 50, 4)).astype(np.float32) for _ in range(3))
    for function, given in ((ts.value_and_grad(loss, (0, 1)), (x, w)), (ts.grad(attention, (0, 1, 2)), (q, k, v))):
        # Chunks of sequences, or of positions of all of them where one sequence is too large.
        for largest in (4000, 1000):
            whole: Any = ts.jit(function)
            chunked: Any = ts.jit(function, largest_contraction=largest)
            assert bits(chunked(*given)) == bits(whole(*given))
            assert chunked_in(chunked.explain(*given))


def test_a_gpt_has_the_same_gradients() -> None:
    config = nn.GPTConfig(vocabulary=211, length=12, width=16, heads=2, depth=1)
    model = nn.GPT.init(ts.random.key(3), config)
    tokens = np.random.default_rng(2).integers(0, 211, (3, 13)).astype(np.int32)

    def loss(model: Any, tokens: Any) -> Any:
        return model.loss(tokens[:, :-1], tokens[:, 1:])

    whole: Any = ts.jit(ts.value_and_grad(loss))
    chunked: Any = ts.jit(ts.value_and_grad(loss), largest_contraction=12_000)
    assert bits(whole(model, tokens)) == bits(chunked(model, tokens))
    # One loop over rows and one over columns; hidden layers, which are a quarter as wide or more, are no part of them.
    (line,) = chunked_in(chunked.explain(model, tokens))
    assert re.search(r"matmul \[3, 12, 211\] f32: 30384 bytes, in \d+ chunks of \d+, \d+ chunks of \d+ at", line)


def test_explain_says_what_is_in_chunks_and_keeps_none_of_it() -> None:
    jitted: Any = ts.jit(ts.value_and_grad(LOSSES["mean"], (0, 1)))
    tape = jitted.trace(*arrays(64, 4, 100)).tape
    (program,) = programs_in(schedule_tape(tape, Options.of(largest_contraction=4000)))
    (line,) = plain(program.attributes[CHUNKED])
    assert "matmul [64, 100] f32: 25600 bytes, in 8 chunks of 8, 10 chunks of 10 at " in line
    assert not any("[64, 100]" in one for one in plain(program.attributes[KEPT]))
    (program,) = programs_in(schedule_tape(tape, Options.of()))
    assert any("[64, 100]" in one for one in plain(program.attributes[KEPT]))


def test_a_product_that_is_computed_again_has_no_other_epilogue_on_tensor_cores() -> None:
    """There the epilogue of a product would have the hardware's exp, and a row kernel has not."""
    jitted: Any = ts.jit(head(1024, dtype=ts.bf16, width=128, columns=4096)[1])
    lowered = lower(jitted.trace().tape, Options.of(backend="cuda", features=("sm_90a",), largest_contraction=2 << 20))
    report = report_of(lowered.program, lowered.kernels, lowered.chooser, lowered.code)
    assert report["chunked"]
    assert report["numerics"] == "reproducible"


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1G"])
def test_the_bound_is_a_number_of_bytes(wrong: Any) -> None:
    with pytest.raises(OverrideError, match="`largest_contraction` is a number of bytes"):
        ts.jit(lambda x: x, largest_contraction=wrong)


def test_the_bound_is_part_of_the_key_only_where_it_is_given() -> None:
    assert "largest_contraction" not in Options.of().text
    given = Options.of(largest_contraction=0, memory=0)
    assert Options.parse(given.text) == given
