"""The loop: how many steps, what is shown and kept, how it ends, and where it continues."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import io
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, NumericsError
from tessera.train.checkpoint import Snapshot
from tessera.train.progress import Display, format_bytes, least_seconds

OPTIMIZER = ts.optim.sgd(0.1)
STEP = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), OPTIMIZER)
BATCHES = [ts.full((4,), float(number)) for number in range(5)]


def state() -> ts.train.State:
    return ts.train.State.init(ts.zeros(()), OPTIMIZER)


def by_hand(count: int) -> list[float]:
    w, losses = np.float32(0), list[float]()
    for number in range(count):
        x = np.float32(number % 5)
        losses.append(float((w - x) ** 2))
        w -= np.float32(0.1) * (np.float32(2) * (w - x))
    return losses


def test_steps_are_counted_over_all_passes() -> None:
    once = ts.train.fit(STEP, state(), BATCHES, progress=False)
    assert once.history.steps == [1, 2, 3, 4, 5]
    many = ts.train.fit(STEP, state(), BATCHES, steps=12, progress=False)
    assert many.history.steps == list(range(1, 13))
    # Each step of w rounds a few times in f32, and errors of w shrink.
    assert np.allclose(many.history["loss"], by_hand(12), rtol=16 * 2**-24, atol=16 * 2**-24)
    assert int(many.state.step) == 12
    on = ts.train.fit(STEP, many.state, BATCHES, steps=15, progress=False)
    assert on.history.steps == [13, 14, 15]
    assert np.allclose(on.history["loss"], by_hand(15)[12:], rtol=16 * 2**-24)
    with pytest.raises(ArgumentError, match="there are no more batches"):
        ts.train.fit(STEP, state(), iter(BATCHES), steps=6, progress=False)


def test_callbacks_see_every_step_add_to_the_history_and_can_stop() -> None:
    seen: list[tuple[int, float, int]] = []

    def look(event: ts.train.Event) -> None:
        seen.append((event.step, event.metrics["loss"], int(event.state.step)))
        if event.step == 7:
            event.stop()

    validate = ts.train.every(3, lambda event: {"validation": event.step * 10})
    run = ts.train.fit(STEP, state(), BATCHES, steps=100, callbacks=[look, validate], progress=False)
    assert [step for step, _, _ in seen] == [count for _, _, count in seen] == list(range(1, 8))
    assert [value for _, value, _ in seen] == run.history["loss"]
    assert run.history.of("validation") == [(3, 30.0), (6, 60.0)]
    assert run.history.last["validation"] == 60.0
    again = ts.train.History.from_json(run.history.to_json())
    assert (list(again), again.of("loss")) == (["loss", "validation"], run.history.of("loss"))
    with pytest.raises(ArgumentError, match="has no metric `los`"):
        _ = again["los"]


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    batches = [*BATCHES[:2], ts.full((4,), float("nan"))]
    with pytest.raises(NumericsError, match="the loss of step 3 is nan"):
        ts.train.fit(STEP, state(), batches, progress=False)
    run = ts.train.fit(STEP, state(), batches, progress=False, check_finite=False)
    assert np.isnan(run.history["loss"]).tolist() == [False, False, True]


def test_parameters_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    def step(_: Any, batch: Any) -> Any:
        return {"w": batch}, {"loss": 0.5}  # the loss before an update can be finite, and what it makes is not

    batches = [ts.ones((2,)), ts.zeros((2,)), ts.array([0.0, float("inf")])]
    given: dict[str, Any] = {"save_every": 1, "progress": False, "checkpoints": ts.train.Checkpointer(tmp_path)}
    with pytest.raises(NumericsError, match="the update of step 3 made `w` NaN or infinite") as caught:
        ts.train.fit(step, {"w": ts.ones((2,))}, batches, **given)
    assert "the loss of the step, computed before the update, is 0.5" in str(caught.value)
    assert "the last checkpoint is of step 2" in str(caught.value)
    assert given["checkpoints"].steps() == [1, 2]
    ts.train.fit(step, {"w": ts.ones((2,))}, batches, check_finite=False, **given)
    assert given["checkpoints"].latest() == 3


def test_a_divergence_names_the_checkpoint_that_was_still_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_slowly(self: Snapshot, path: str, notes: Any) -> None:
        time.sleep(0.3)
        write(self, path, notes)

    write = Snapshot.write
    monkeypatch.setattr(Snapshot, "write", write_slowly)
    losses = iter([0.5, 0.5, float("nan"), 0.5])
    with pytest.raises(NumericsError, match="the loss of step 3 is nan") as caught:
        ts.train.fit(
            lambda state, _: (state, {"loss": next(losses)}), {"w": ts.ones((2,))}, [ts.ones((2,))] * 4,
            save_every=2, progress=False, checkpoints=ts.train.Checkpointer(tmp_path),
        )  # fmt: skip
    assert "the last checkpoint is of step 2" in str(caught.value)


def test_an_interrupt_saves_and_the_next_run_continues(tmp_path: Path) -> None:
    whole = ts.train.fit(STEP, state(), BATCHES, steps=11, progress=False)
    given: dict[str, Any] = {"steps": 11, "progress": False, "save_every": 100}
    with ts.train.Checkpointer(tmp_path) as checkpoints:
        interrupt = ts.train.every(4, lambda _: signal.raise_signal(signal.SIGINT))
        for reached in (4, 8):
            with pytest.raises(KeyboardInterrupt):
                ts.train.fit(STEP, state(), BATCHES, checkpoints=checkpoints, callbacks=[interrupt], **given)
            assert checkpoints.latest() == reached
        run = ts.train.fit(STEP, state(), BATCHES, checkpoints=checkpoints, **given)
        assert run.history.of("loss") == whole.history.of("loss")
        assert run.state.params.tobytes() == whole.state.params.tobytes()
        done = ts.train.fit(STEP, state(), BATCHES, checkpoints=checkpoints, **given)
        assert done.state.params.tobytes() == whole.state.params.tobytes()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_terminal_has_a_bar_and_a_log_has_lines() -> None:
    facts = {"": "loss 2.5", "tokens/s": "1,024", "% of peak": "40", "memory": "1.5 GiB"}
    drawn, logged = io.StringIO(), io.StringIO()
    with Display(10, 0, is_shown=True, console=Console(file=drawn, force_terminal=True, width=140)) as display:
        display.show(7, facts)
    assert "loss 2.5 · 1,024 tokens/s · 40 % of peak · 1.5 GiB memory" in drawn.getvalue()
    assert " 7/10" in drawn.getvalue()
    with Display(10, 0, is_shown=True, console=Console(file=logged, width=140)) as display:
        assert (display.is_due(7), display.is_due(10)) == (False, True)
        display.show(7, facts)
    assert logged.getvalue() == "step 7/10: loss 2.5 · 1,024 tokens/s · 40 % of peak · 1.5 GiB memory\n"
    assert [format_bytes(size) for size in (5, 3000, 3 << 20)] == ["5 B", "2.93 KiB", "3 MiB"]


def test_the_least_time_of_a_step_is_that_of_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.train.progress._is_measured", lambda _: True)
    product = ts.jit(lambda x, y: x @ y)
    product(ts.ones((256, 256)), ts.ones((256, 256)))
    from tessera.types.rates import rates_of
    from tessera.types.settings import Settings

    rates = rates_of("cpu")
    assert rates is not None
    expected = 2 * 256**3 / rates.on(Settings.from_environment().threads).compute("f32") / 1e9
    assert least_seconds(product) == pytest.approx(expected, rel=1e-6)
    assert least_seconds(print) is None


def test_wrong_calls_say_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`save_every` needs `checkpoints`"):
        ts.train.fit(STEP, state(), BATCHES, save_every=3)
    with pytest.raises(ArgumentError, match="takes a `Checkpointer`"):
        ts.train.fit(STEP, state(), BATCHES, checkpoints=tmp_path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="a step gives a pair"):
        ts.train.fit(lambda state, _: state, state(), BATCHES, progress=False)


def test_a_state_that_has_taken_steps_uses_all_batches() -> None:
    optimizer = ts.optim.sgd(0.1)
    step = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), optimizer)
    state = ts.train.State.init(ts.zeros(()), optimizer)
    batches = [ts.ones((4,))] * 3
    for passes in (1, 2, 3):
        state, history = ts.train.fit(step, state, batches, progress=False)
        assert (int(state.step), len(history.steps)) == (3 * passes, 3)


def test_an_evaluation_reads_a_loader_from_its_start_and_leaves_its_position() -> None:
    loader = ts.data.Loader([np.float32(item) for item in range(10)], 2, shuffle=False)
    next(iter(loader))
    position = loader.state()
    found = [ts.train.evaluate(lambda w, x: (w * x).mean(), ts.array(1.0), loader, steps=2)["loss"] for _ in range(3)]
    assert found == [1.5, 1.5, 1.5]
    assert loader.state() == position


def test_a_scale_inside_of_another_optimizer_is_refused() -> None:
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.with_loss_scale(ts.optim.sgd(0.1)))
    step = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), optimizer)
    with pytest.raises(ts.TesseraError, match="scales the loss inside of another one"):
        step(ts.train.State.init(ts.zeros(()), optimizer), ts.ones((4,)))
