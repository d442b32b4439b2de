"""Every example runs, at sizes that take no time, and ends without complaint."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.runtime.devices.cuda.driver import is_available

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGES = EXAMPLES.parent / "docs" / "guide" / "examples"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOY: dict[str, dict[str, Any]] = {
    "cluster": {"steps": 2, "width": 16, "folder": ""},
    "collective_kernel": {"ranks": 2, "M": 5, "K": 12, "N": 16},
    "contracts": {"B": 2, "S": 5, "H": 2, "E": 8},
    "data_parallel": {"ranks": 2, "steps": 2, "width": 16},
    "demo": {"steps": 4, "width": 16, "depth": 1, "length": 40, "batch": 2, "files": 12, "folder": ""},
    "digits": {"steps": 60, "batch": 32, "held_out": 200},
    "effects": {"B": 16, "D": 4, "rounds": 3},
    "flash_attention": {"lengths": ((17, 17), (5, 33)), "D": 16},
    "gpt2": {
        "steps": 6, "layers": 1, "d_model": 16, "sequence": 32, "batch": 4, "learning_rate": 1e-2, "save_every": 3,
        "folder": "",
    },
    "long_context": {"ranks": 2, "steps": 2, "length": 16},
    "lora": {"rank": 2, "steps": 40, "width": 32, "depth": 1, "length": 32, "batch": 8, "base": "", "folder": ""},
    "lowering": {"D": 64, "batches": (1, 5), "lengths": (17, 1), "rounds": 1},
    "matmul": {"sizes": ((33, 17, 40), (1, 64, 3))},
    "mixture_of_experts": {"ranks": 2, "steps": 2, "width": 16},
    "mlp": {"batches": (1, 7), "sizes": (20, 33, 16, 10)},
    "numerics": {"B": 4, "K": 32, "N": 8, "draws": 400},
    "pipeline_parallel": {"ranks": 2, "steps": 2, "width": 16},
    "pipelines": {"sizes": ((33, 40, 17),), "ranks": 2},
    "ranks": {"ranks": 2, "B": 3, "D": 16, "H": 32},
    "softmax": {"shapes": ((7, 33), (3, 1))},
    "tensor_parallel": {"ranks": 2, "steps": 2, "width": 16},
    "transformer": {"layers": 2, "D": 64, "lengths": (17, 1)},
}  # fmt: skip


def make_base(folder: Path) -> str:
    """A model that a fine-tune begins with, of random weights that are large enough to count; to train one is slow."""
    model = ts.nn.GPT.init(ts.random.key(0), ts.nn.GPTConfig(vocabulary=128, length=32, width=32, depth=1, heads=4))
    scaled = {name: np.asarray(one) * np.float32(10.0) for name, one in ts.nn.state_dict(model).items()}
    ts.train.save(folder / "start.safetensors", ts.nn.load_state_dict(model, scaled))
    return str(folder / "start.safetensors")


def check_digits(accuracy: float, folder: Path) -> None:
    assert 0.3 < accuracy <= 1.0  # by chance it is 0.1


def check_gpt2(found: Any, folder: Path) -> None:
    assert len(found.losses) == 6
    assert found.losses[-1] < found.losses[0] - 0.3
    assert abs(found.held_out - found.losses[-1]) < 0.5
    assert ts.train.Checkpointer(folder / "checkpoints").steps() == [3, 6]


def check_lora(found: Any, folder: Path) -> None:
    """The program itself compares the frozen weights bit by bit, and the merged model with that of the adapters."""
    assert found.after < found.before - 0.1
    adapters, base = (ts.train.restore(folder / f"{name}.safetensors") for name in ("adapters", "base"))
    names = [
        f"blocks.0.{part}.{one}" for part in ("attention.qkv", "attention.out", "mlp.up", "mlp.down") for one in "ab"
    ]
    assert sorted(adapters) == sorted(names)
    assert found.trained == sum(one.size for one in adapters.values())
    assert found.total == found.trained + sum(one.size for one in base.values())
    assert all(np.asarray(one).any() for one in adapters.values()), "an adapter has learned nothing"


CHECKS: dict[str, Callable[[Any, Path], None]] = {"digits": check_digits, "gpt2": check_gpt2, "lora": check_lora}
"""What must hold of what an example gives, beside what it checks itself."""


MILESTONES = {
    "foundation: constraints, effects, verifiers": {"contracts", "effects"},
    "numerics: policies, stable softmax": {"numerics"},
    "memory and parallelism: prefetch, pipelines, mesh checks": {"pipelines"},
    "backends: kernels for the tensor cores of a machine": {"matmul", "flash_attention"},
    "documents and examples": {"matmul", "softmax", "flash_attention"},
}


def test_every_milestone_has_an_example_and_the_last_its_three() -> None:
    assert all(names and names <= TOY.keys() for names in MILESTONES.values())
    assert MILESTONES["documents and examples"] | CHECKS.keys() <= {page.stem for page in PAGES.glob("*.md")}


@pytest.mark.parametrize("name", sorted(page.stem for page in PAGES.glob("*.md")))
def test_a_page_shows_the_program_of_its_example(name: str) -> None:
    blocks = BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    program = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert blocks
    assert [block for block in blocks if block not in program] == []


def test_every_example_has_toy_sizes() -> None:
    assert sorted(TOY) == sorted(file.stem for file in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(TOY.keys() - {"demo"}))  # tests/test_demo.py runs that one, and looks at it
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `tessera inspect` loads no more of a module than it shows, and leaves that behind.
    monkeypatch.delitem(sys.modules, f"examples.{name}", raising=False)
    paths = {"folder": str, "base": make_base}
    sizes = {key: paths[key](tmp_path) if key in paths else value for key, value in TOY[name].items()}
    found = importlib.import_module(f"examples.{name}").main(**sizes)
    assert capsys.readouterr().out
    if name in CHECKS:
        CHECKS[name](found, tmp_path)


@pytest.mark.parametrize("name", TOY)
@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--nonsense", 2), ("nonsense", 2)])
def test_an_example_says_what_it_is_and_takes_nothing_it_does_not_know(
    name: str, argument: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), argument])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    assert ended.value.code == status
    printed = capsys.readouterr()
    assert f"usage: {name}.py" in printed.out + printed.err


@pytest.mark.skipif(is_available(), reason="there is an NVIDIA GPU here")
@pytest.mark.parametrize("name", ["flash_attention", "matmul", "softmax"])
def test_an_example_that_is_to_run_on_a_gpu_says_in_a_line_that_there_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), "--gpu"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == f"{name}.py: there is no NVIDIA GPU here; leave `--gpu` out to run on the CPU\n"


@pytest.mark.slow
def test_a_step_of_the_gpt_compiles_for_a_gpu_that_is_not_here() -> None:
    gpt2 = importlib.import_module("examples.gpt2")
    optimizer = gpt2.make_optimizer(1e-3, 10)
    model = ts.nn.GPT.init(ts.random.key(0), ts.nn.GPTConfig(vocabulary=256, length=64, width=128, depth=1, heads=2))
    step, tokens = gpt2.make_step(optimizer, "bf16"), np.zeros((2, 64), np.int32)
    tape = step.trace(ts.train.State.init(model, optimizer), (tokens, tokens)).tape
    made = compile_tape(tape, replace(step.options, backend="cuda", features=("sm_90a",)))
    report = made.metadata["report"]
    assert report["machine"] == "cuda-sm_90a"
    units = dict(line.split(": ") for line in report["tensor cores"])
    # Four projections, the scores and attention, forward; two matmuls for each of the five and two of attention back.
    assert len(units) == 6 + 10 + 2
    assert set(units.values()) == {"wgmma"}


def test_an_example_that_trains_on_a_gpu_says_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tessera.cuda.is_available", lambda: False)
    assert exit_of("gpt2", ["--backend", "cuda"], monkeypatch) == 2
    assert capsys.readouterr().err.startswith("gpt2.py: there is no NVIDIA GPU here; leave `--backend cuda` out")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("demo", ["--steps", "0"], "argument --steps: '0' is no integer from 1"),
        ("digits", ["--steps", "many"], "argument --steps: 'many' is no integer from 1"),
        ("digits", ["--seed", "-1"], "argument --seed: '-1' is no integer from 0"),
        ("gpt2", ["--size", "huge"], "argument --size: invalid choice: 'huge'"),
        ("gpt2", ["--learning-rate", "nan"], "argument --learning-rate: 'nan' is no number above 0"),
        ("gpt2", ["--precision", "f8"], "argument --precision: invalid choice: 'f8'"),
        ("lora", ["--rank", "0"], "argument --rank: '0' is no integer from 1"),
    ],
)
def test_a_flag_of_an_example_that_cannot_be_is_named(
    name: str, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_of(name, arguments, monkeypatch) == 2
    assert said in capsys.readouterr().err


def exit_of(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """How an example ends that is called with arguments."""
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    return ended.value.code


def test_an_interrupt_of_the_gpt_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ts.train, "fit", interrupt)
    assert exit_of("gpt2", ["--folder", str(tmp_path)], monkeypatch) == 130
    assert capsys.readouterr().err == "gpt2.py: interrupted; `--resume` continues from the last checkpoint\n"


def test_a_frozen_weight_that_has_changed_ends_the_fine_tune() -> None:
    lora, ones = importlib.import_module("examples.lora"), np.ones(2, np.float32)
    with pytest.raises(SystemExit, match="weights that were frozen have changed: w"):
        lora.check_frozen({"v": ones, "w": ones}, {"v": ones, "w": np.nextafter(ones, np.float32(2))})


def test_the_gpt_refuses_tokens_and_folders_that_do_not_fit(tmp_path: Path) -> None:
    gpt2, path = importlib.import_module("examples.gpt2"), str(tmp_path / "few.tokens")
    ts.data.write_tokens(path, list(range(300)), vocabulary=300)
    with pytest.raises(SystemExit, match="has 300 different tokens: give `--vocabulary 300`"):
        gpt2.open_tokens(path, tmp_path, 256)
    with pytest.raises(SystemExit, match="has 300 tokens: 8 sequences of 64 need 10260"):
        gpt2.make_loaders(gpt2.open_tokens(path, tmp_path, 300), 64, 8, 0)
    with pytest.raises(SystemExit, match="has no checkpoint to resume from"):
        gpt2.open_checkpoints(tmp_path, resume=True)
    with ts.train.Checkpointer(tmp_path / "checkpoints") as checkpoints:
        checkpoints.save(7, {"w": ts.ones((2,))})
    with pytest.raises(SystemExit, match="has a checkpoint of step 7: give `--resume`"):
        gpt2.open_checkpoints(tmp_path, resume=False)
