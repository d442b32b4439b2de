"""Training recipes: a small GPT trained by the ranks of a mesh has the losses of one rank, whatever is divided."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist
from tessera.diagnostics.codes import ArgumentError, CheckpointError, FileFormatError, ShapeError
from tessera.distributed.rebuild import SequenceBlock, rebuild
from tests.distributed import programs
from tests.distributed.programs import config, llama, train
from tests.runtime.ranks.threads import on_ranks

SECONDS = 300.0


@cache
def alone(of: Any, steps: int) -> dict[str, Any]:
    """What one process comes to without a recipe."""
    return train(of, None, steps)


@cache
def alone_in_shards(of: Any, steps: int) -> dict[str, Any]:
    """What one rank comes to that computes four shards of a batch one by one."""
    with dist.mesh(dp=1):
        return train(of, {"shards": 4}, steps)


def together(of: Any, choices: dict[str, Any], steps: int, **axes: int) -> dict[str, Any]:
    """What the ranks of a mesh come to, who all have the same."""
    found = on_ranks(lambda _: train(of, choices, steps), SECONDS, **axes)
    for one in found:
        if isinstance(one, Exception):
            raise one
        np.testing.assert_array_equal(one["losses"], found[0]["losses"])
        for left, right in zip(one["params"], found[0]["params"], strict=True):
            np.testing.assert_array_equal(left, right)
    return found[0]


def bound(steps: int) -> float:
    """How far apart losses may be whose sums are in another order.

    Each sum has at most as many terms as a batch has tokens times the width of a layer, each of which rounds once; a
    step starts with parameters that are off by what the steps before it were.
    """
    terms = programs.DATA.shape[1] * (programs.DATA.shape[2] - 1) * 32
    return steps * terms * float(np.finfo(np.float32).eps)


def assert_close(found: dict[str, Any], expected: dict[str, Any], steps: int) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=bound(steps))
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=10 * bound(steps))
    # The first step changes elements by up to 1e-2. Its errors are those of gradients, times `rate / (|g| + eps)`: far
    # below what a wrong share of a gradient would make.
    for left, right in zip(found["first params"], expected["first params"], strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("ranks", "zero"), [(2, 0), (4, 0), (2, 3), *[pytest.param(4, z, marks=pytest.mark.slow) for z in (1, 2, 3)]]
)
def test_d3_data_parallel_training_has_the_bits_of_one_rank(ranks: int, zero: int) -> None:
    expected = alone_in_shards(config(), 2)
    found = together(config(), {"shards": 4, "zero": zero}, 2, dp=ranks)
    np.testing.assert_array_equal(found["losses"], expected["losses"])
    for left, right in zip(found["params"], expected["params"], strict=True):
        np.testing.assert_array_equal(left, right)
    assert_close(found, alone(config(), 2), 2)
    # What is divided is a rank's part of it: moments of parameters, and with ZeRO-3 parameters.
    share = ranks if zero else 1
    counts = 4
    assert found["state bytes"] - counts == (expected["state bytes"] - counts) // share
    assert found["param bytes"] == expected["param bytes"] // (ranks if zero == 3 else 1)


MOE = {"mlp": "moe", "experts": 4, "top_experts": 2, "hidden": 16}
RECIPES: dict[str, tuple[Any, dict[str, Any], dict[str, int]]] = {
    "dp": (config(), {}, {"dp": 4}),
    "zero 1": (config(), {"zero": 1}, {"dp": 4}),
    "zero 2": (config(), {"zero": 2}, {"dp": 4}),
    "zero 3": (config(), {"zero": 3}, {"dp": 4}),
    "fsdp of a llama": (llama(), {"zero": 3, "shards": 4}, {"dp": 4}),
    "tp": (config(), {"tensor": "tp"}, {"tp": 4}),
    "tp with tied embeddings": (config(tied=True), {"tensor": "tp"}, {"tp": 2}),
    "tp and sequences": (config(), {"tensor": "tp", "sequence": True}, {"tp": 4}),
    "pp": (config(depth=4), {"pipeline": "pp", "microbatches": 4}, {"pp": 4}),
    "pp interleaved": (
        config(depth=4),
        {"pipeline": "pp", "microbatches": 4, "schedule": "interleaved", "chunks": 2},
        {"pp": 2},
    ),
    "ep": (config(**MOE), {"expert": "dp"}, {"dp": 4}),
    "sp by a ring": (config(), {"context": "sp"}, {"sp": 4}),
    "dp, tp and zero 3": (llama(), {"tensor": "tp", "zero": 3}, {"dp": 2, "tp": 2}),
    "dp, tp, sequences and shards": (llama(), {"tensor": "tp", "sequence": True, "shards": 2}, {"dp": 2, "tp": 2}),
    "pp and tp": (config(), {"pipeline": "pp", "microbatches": 2, "tensor": "tp"}, {"pp": 2, "tp": 2}),
    "pp, dp and zero 3": (config(), {"pipeline": "pp", "microbatches": 2, "zero": 3}, {"dp": 2, "pp": 2}),
    "dp and ep": (config(**MOE), {"expert": "ep", "zero": 1}, {"dp": 2, "ep": 2}),
    "dp and a ring": (llama(), {"context": "sp", "zero": 3}, {"dp": 2, "sp": 2}),
}
QUICK = ("tp and sequences", "pp and tp", "dp and ep", "dp and a ring")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_a_recipe_has_the_losses_of_one_rank(name: str) -> None:
    of, choices, axes = RECIPES[name]
    steps = 2 if name in QUICK else 30
    assert_close(together(of, choices, steps, **axes), alone(of, steps), steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tp", "tp and sequences", "dp, tp and zero 3"])
def test_f6_collective_matmuls_of_a_recipe_in_chunks_have_the_same_bits(name: str) -> None:
    of, choices, axes = RECIPES[name]

    def losses(chunks: int) -> Any:
        given = {"collectives.chunks": chunks}
        return on_ranks(lambda _: train(of, choices, 2, overrides=given)["losses"], SECONDS, **axes)

    np.testing.assert_array_equal(losses(2), losses(1))


def test_p6_a_pipeline_keeps_as_many_microbatches_as_there_are_stages_behind() -> None:
    choices = {"pipeline": "pp", "microbatches": 4}
    found = on_ranks(lambda _: train(config(), choices, 1)["most kept"], SECONDS, pp=2)
    assert found == [2, 1]


def test_p12_1_parameters_are_gathered_for_use_and_freed() -> None:
    """The whole weights of two blocks at most are in memory at a time, gathered once for each pass."""
    depth = 4
    for steps, held in dist.run(programs.gathered_weights, ranks=2, args=(depth,)):
        assert len(held) == 2 * depth
        most = max(sum(first <= at <= last for first, last in held) for at in range(steps))
        assert most <= 2, held


def test_v6_2_a_checkpoint_of_four_ranks_goes_on_on_two_and_on_one(tmp_path: Path) -> None:
    of, paths = config(), [str(tmp_path / name) for name in "abc"]
    plans: list[tuple[dict[str, Any], dict[str, int]]] = [
        ({"shards": 4, "zero": 3}, {"dp": 4}),
        ({"shards": 4}, {"dp": 2}),
        ({"shards": 4}, {"dp": 1}),
    ]
    losses: list[float] = []
    for (choices, axes), path, start in zip(plans, paths, (None, *paths), strict=False):
        found = on_ranks(lambda _: programs.train_and_save(path, choices, of, axes, start), SECONDS, **axes)  # noqa: B023
        if isinstance(found[0], Exception):
            raise found[0]
        losses += found[0]
    expected = alone_in_shards(of, 6)
    np.testing.assert_array_equal(losses, expected["losses"])
    held = ts.train.restore(paths[-1])
    names = [f"params.{name}" for name in ts.nn.state_dict(ts.nn.GPT.init(ts.random.key(0), of))]
    for name, want in zip(names, expected["params"], strict=True):
        np.testing.assert_array_equal(np.asarray(held[name]), want)
    _check_damage(paths[0], of)


def _check_damage(path: str, of: Any) -> None:
    """A part that is damaged or missing is named, and so is another model."""
    with dist.mesh(dp=1):
        model = ts.nn.GPT.init(ts.random.key(0), config(width=32))
        recipe = dist.recipe(model, shards=4)
        with pytest.raises(CheckpointError, match=r"does not fit: `params\.tokens.weight` is"):
            ts.train.restore(path, ts.train.State.init(model, programs.OPTIMIZER, recipe=recipe), recipe=recipe)
    part = Path(path) / "part-00001.safetensors"
    bytes_of_it = bytearray(part.read_bytes())
    bytes_of_it[-1] ^= 1
    part.write_bytes(bytes_of_it)
    with pytest.raises(FileFormatError, match=r"part-00001\.safetensors` is damaged"):
        ts.train.restore(path)
    part.unlink()
    with pytest.raises(FileFormatError, match=r"part-00001\.safetensors` is missing"):
        ts.train.restore(path)


@pytest.mark.slow
def test_v6_2_layers_stages_and_states_in_parts_are_restored_on_other_meshes(tmp_path: Path) -> None:
    of, paths = config(), [str(tmp_path / name) for name in "abc"]
    plans: list[tuple[dict[str, Any], dict[str, int]]] = [
        ({"tensor": "tp", "zero": 1}, {"dp": 2, "tp": 2}),
        ({"pipeline": "pp", "microbatches": 2}, {"pp": 2}),
        ({"tensor": "tp", "sequence": True}, {"tp": 4}),
    ]
    losses: list[float] = []
    for (choices, axes), path, start in zip(plans, paths, (None, *paths), strict=False):
        found = on_ranks(lambda _: programs.train_and_save(path, choices, of, axes, start), SECONDS, **axes)  # noqa: B023
        if isinstance(found[0], Exception):
            raise found[0]
        losses += found[0]
    np.testing.assert_allclose(losses, alone(of, 6)["losses"], rtol=bound(6))


REFUSED: list[tuple[dict[str, Any], dict[str, int], Any, type[Exception], str]] = [
    (
        {"tensor": "tp"},
        {"tp": 3},
        config(),
        ShapeError,
        r"dim 1 of `blocks.0.attention.qkv.weight` \[16, 48\] is 48 in sections of 16, 16, 16, which the 3 ranks",
    ),
    ({}, {"tp": 2}, config(), ArgumentError, r"mesh\(tp=2\) has axis `tp` of 2 ranks, which the recipe gives nothing"),
    ({"shards": 3}, {"dp": 1}, config(), ArgumentError, "`shards` as a power of two that its 1 data ranks divide, got"),
    ({"shards": 2}, {"dp": 4}, config(), ArgumentError, "that its 4 data ranks divide, got 2"),
    ({"context": "sp", "shards": 2}, {"sp": 3}, config(), ArgumentError, "along the sequence, got 3 of `sp`"),
    ({"zero": 4}, {"dp": 2}, config(), ArgumentError, "`zero` as 0, 1, 2 or 3, got 4"),
    ({"sequence": True}, {"dp": 2}, config(), ArgumentError, "there is no `tensor` axis"),
    ({"tensor": "tp", "context": "sp"}, {"tp": 2, "sp": 2}, config(), ArgumentError, "`tensor` and `context` both"),
    ({"expert": "dp"}, {"dp": 3}, config(**MOE), ShapeError, r"dim 0 of `blocks.0.mlp.gate` \[4, 16, 16\] is 4, which"),
    ({"expert": "dp", "wire": "f16"}, {"dp": 2}, config(**MOE), ArgumentError, "tokens travel in"),
    ({"pipeline": "pp", "microbatches": 4}, {"pp": 4}, config(), ArgumentError, "4 stages takes as many blocks, and"),
    (
        {"pipeline": "pp", "microbatches": 2},
        {"pp": 2},
        config(tied=True),
        ArgumentError,
        "the model ties their weights",
    ),
    ({"pipeline": "pp", "shards": 2}, {"pp": 2}, config(), ArgumentError, "and not with `shards`"),
    ({"pipeline": "pp", "microbatches": 4}, {"pp": 2}, config(**MOE), ArgumentError, "has a mixture of experts"),
]


@pytest.mark.parametrize(("choices", "axes", "of", "error", "text"), REFUSED)
def test_what_does_not_go_together_is_named(choices: Any, axes: Any, of: Any, error: Any, text: str) -> None:
    model = ts.nn.GPT.init(ts.random.key(0), of)
    with dist.mesh(**axes), pytest.raises(error, match=text):
        dist.recipe(model, **choices)


def test_a_step_refuses_what_its_recipe_does_not_divide() -> None:
    model = {"w": ts.ones((4, 2))}
    with dist.mesh(dp=1):
        recipe = dist.recipe(model, shards=4)
        step = ts.train.make_step(lambda p, x: (x @ p["w"]).mean(), ts.optim.sgd(0.1), recipe=recipe)
        state = ts.train.State.init(model, ts.optim.sgd(0.1), recipe=recipe)
        with pytest.raises(ArgumentError, match=r"is \[6, 4\], which does not make 4 shards"):
            step(state, np.ones((6, 4), np.float32))
    with dist.mesh(dp=1, tp=1), pytest.raises(ArgumentError, match=r"made for mesh\(dp=1\), and what is in force is"):
        step(state, np.ones((8, 4), np.float32))
    with pytest.raises(ArgumentError, match="carries no `extra`"):
        ts.train.make_step(lambda p, x, extra: (x.sum(), extra), ts.optim.sgd(0.1), recipe=recipe)
    with dist.mesh(dp=2):
        cut = dist.recipe(model, zero=1)
        factored = ts.optim.adafactor(0.1)
        made = ts.train.make_step(lambda p, x: (x @ p["w"]).mean(), factored, recipe=cut)
        start = ts.train.State.init(model, factored, recipe=cut)
        with pytest.raises(ArgumentError, match="`adafactor` keeps means over rows and columns"):
            made.trace(start, np.ones((8, 4), np.float32))


@pytest.mark.parametrize(
    "optimizer",
    [
        ts.optim.with_loss_scale(ts.optim.sgd(0.5)),
        ts.optim.accumulate(ts.optim.with_loss_scale(ts.optim.sgd(0.5)), 2),
    ],
)
def test_a_pipeline_refuses_a_scale_of_the_loss(optimizer: Any) -> None:
    model = ts.nn.GPT.init(ts.random.key(0), config())
    with dist.mesh(pp=1):
        recipe = dist.recipe(model, pipeline="pp", microbatches=2)
        step = ts.train.make_step(programs.loss, optimizer, recipe=recipe)
        with pytest.raises(ArgumentError, match="scale"):
            step(ts.train.State.init(model, optimizer, recipe=recipe), programs.batch(0))


def test_a_pipeline_refuses_a_state_with_an_average() -> None:
    model, optimizer = ts.nn.GPT.init(ts.random.key(0), config()), ts.optim.sgd(0.5)
    with dist.mesh(pp=1):
        recipe = dist.recipe(model, pipeline="pp", microbatches=2)
        step = ts.train.make_step(programs.loss, optimizer, recipe=recipe)
        with pytest.raises(ArgumentError, match="the state has an `average`"):
            step(ts.train.State.init(model, optimizer, average=ts.optim.ema(0.9), recipe=recipe), programs.batch(0))


LOCAL: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({}, {"dp": 2}),
    ({"shards": 4}, {"dp": 2}),
    ({"shards": 4, "zero": 3}, {"dp": 2}),
    ({"pipeline": "pp", "microbatches": 2}, {"dp": 2, "pp": 1}),
]


@pytest.mark.parametrize(("choices", "axes"), LOCAL)
def test_ranks_that_pass_their_own_parts_have_the_loss_of_the_whole(choices: Any, axes: Any) -> None:
    model, optimizer = ts.nn.GPT.init(ts.random.key(0), config()), ts.optim.sgd(0.5)
    whole = programs.batch(0)

    def run(rank: int) -> Any:
        recipe = dist.recipe(model, local_batch=True, **choices)
        step = ts.train.make_step(programs.loss, optimizer, recipe=recipe)
        mine = {name: value[4 * rank : 4 * rank + 4] for name, value in whole.items()}
        state, metrics = step(ts.train.State.init(model, optimizer, recipe=recipe), mine)
        return float(metrics["loss"]), programs.leaves(recipe.gather(state.params))

    state, metrics = ts.train.make_step(programs.loss, optimizer)(ts.train.State.init(model, optimizer), whole)
    for found in on_ranks(run, SECONDS, **axes):
        if isinstance(found, Exception):
            raise found
        np.testing.assert_allclose(found[0], float(metrics["loss"]), rtol=bound(1))
        for left, right in zip(found[1], programs.leaves(state.params), strict=True):
            np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=1e-4, atol=1e-6)


def test_a_pipeline_trains_parameters_of_bf16() -> None:
    """Gradients of microbatches are summed wider than they are: those of many are those of one."""
    model, optimizer = ts.nn.GPT.init(ts.random.key(0), config(), dtype=ts.bf16), ts.optim.sgd(0.5)

    def norm(count: int) -> float:
        with dist.mesh(pp=1):
            recipe = dist.recipe(model, pipeline="pp", microbatches=count)
            step = ts.train.make_step(programs.loss, optimizer, recipe=recipe, grad_norm=True)
            state, metrics = step(ts.train.State.init(model, optimizer, recipe=recipe), programs.batch(0))
            assert state.params.norm.weight.dtype == ts.bf16
            return float(metrics["grad_norm"])

    np.testing.assert_allclose(norm(8), norm(1), rtol=2**-7)


# Dropout: parts of one tensor are not dropped alike.


def test_ranks_with_other_positions_drop_others() -> None:
    params, optimizer, x = {"w": ts.ones(())}, ts.optim.sgd(0.0), (2.0 ** np.arange(8, dtype=np.float32)).reshape(1, 8)

    def run(_: int) -> Any:
        recipe = dist.recipe(params, data=None, context="sp")
        step = ts.train.make_step(
            lambda p, x, key: p["w"] * (ts.random.dropout(x, key, 0.5) / 2.0).sum(), optimizer, recipe=recipe
        )
        state, kept = ts.train.State.init(params, optimizer, recipe=recipe), list[int]()
        for _ in range(5):
            state, metrics = step(state, x)
            kept.append(round(float(metrics["loss"]) * 2))
        return kept

    for kept in on_ranks(run, SECONDS, sp=2):
        assert any(mask % 16 != mask // 16 for mask in kept), kept


def test_ranks_with_other_heads_drop_other_weights() -> None:
    layer = ts.nn.Attention.init(ts.random.key(0), 8, heads=4, dropout=0.5, bias=False)
    # Keys of 0 weigh all positions alike, values are 1, and a feature of the result is one of a head.
    qkv = np.concatenate([np.zeros((8, 16)), np.full((8, 8), 0.125)], axis=1).astype(np.float32)
    layer = layer.replace(
        qkv=ts.nn.Linear(ts.Tensor.of(qkv)), out=ts.nn.Linear(ts.Tensor.of(np.eye(8, dtype=np.float32)))
    )

    def run(_: int) -> Any:
        recipe = dist.recipe(layer, data=None, tensor="tp")
        call = ts.jit(lambda own, x, key: rebuild(recipe, own)(x, key=key))
        return np.asarray(call(recipe.take(layer), np.ones((1, 16, 8), np.float32), ts.random.key(1)))

    left, right = on_ranks(run, SECONDS, tp=2)
    np.testing.assert_array_equal(left, right)
    assert len(np.unique(left)) > 2
    assert not np.array_equal(left[..., :4], left[..., 4:])


def test_parts_of_a_sequence_between_layers_are_dropped_otherwise() -> None:
    class Drop(ts.nn.Module):
        def __call__(self, x: Any, *, key: Any) -> Any:
            return ts.random.dropout(x, key, 0.5), None, None

    def run(_: int) -> Any:
        block = SequenceBlock(Drop(), "tp", True, True)
        return np.asarray(
            ts.jit(lambda x, key: block(x, key=key)[0])(np.ones((1, 32, 4), np.float32), ts.random.key(1))
        )

    left, right = on_ranks(run, SECONDS, tp=2)
    np.testing.assert_array_equal(left, right)
    assert not np.array_equal(left[:, :16], left[:, 16:])


def test_ranks_with_dropout_keep_the_same_parameters() -> None:
    model, optimizer = ts.nn.GPT.init(ts.random.key(0), config(depth=1, dropout=0.5)), ts.optim.sgd(0.5)

    def run(_: int) -> Any:
        recipe = dist.recipe(model, data=None, tensor="tp", sequence=True)
        step = ts.train.make_step(lambda m, b, key: m.loss(b["x"], b["y"], key=key), optimizer, recipe=recipe)
        state, _ = step(ts.train.State.init(model, optimizer, recipe=recipe), programs.batch(0))
        held = state.params
        return [np.asarray(one) for one in (held.tokens.weight, held.norm.weight, held.blocks[0].norm2.weight)]

    left, right = on_ranks(run, SECONDS, tp=2)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("of", "zero"), [(config(), 0), (llama(depth=1), 3)])
def test_a_loss_that_shifts_parts_of_a_sequence_is_refused(of: Any, zero: int) -> None:
    model, optimizer = ts.nn.GPT.init(ts.random.key(0), of), ts.optim.sgd(0.5)
    with dist.mesh(dp=2, sp=2):
        recipe = dist.recipe(model, context="sp", zero=zero)
        step = ts.train.make_step(lambda m, b: m.loss(b[:, :-1], b[:, 1:]), optimizer, recipe=recipe)
        state = ts.train.State.init(model, optimizer, recipe=recipe)
        with pytest.raises(ShapeError, match="called with 3 positions, and each of the 2 ranks of `sp` has 4 of the 8"):
            step.trace(state, programs.DATA[0][:, :8])


def test_zero_2_sums_gradients_into_parts() -> None:
    model, optimizer = {"w": ts.ones((4, 2))}, ts.optim.sgd(0.5)
    with dist.mesh(dp=2):
        recipe = dist.recipe(model, zero=2)
        step = ts.train.make_step(lambda p, x: (x @ p["w"]).mean(), optimizer, recipe=recipe)
        text = str(step.trace(ts.train.State.init(model, optimizer, recipe=recipe), np.ones((2, 4), np.float32)).tape)
    assert text.count("reduce_scatter") == 1
    assert text.count("all_reduce") == 1  # of the loss
