"""Ops of PyTorch's op database: each is here, or answered with what to write, which computes the same."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from scripts.torch_ops import EXCEPTIONS, HERE, PAGE, VERSION, WRITE, Row, classify, names_of_torch, render
from tessera.api.other_names import advice_for

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (.*) \|$", TEXT, re.MULTILINE)
COUNTS = re.search(r"op database of PyTorch (\S+): (\d+) names", TEXT)


def test_the_page_has_every_op_of_the_installed_torch() -> None:
    """A new op of PyTorch is to be here, or answered: `classify` raises for one that is neither."""
    torch = pytest.importorskip("torch")
    rows = [classify(name) for name in names_of_torch()]
    version = VERSION + torch.__version__.partition("+")[0]
    assert COUNTS is not None
    if version == VERSION + COUNTS[1]:
        assert render(rows, version) == TEXT, "run python -m scripts.torch_ops"


def test_a_name_that_nobody_answers_is_an_error() -> None:
    with pytest.raises(LookupError, match="nobody says what PyTorch's `qqqq` is here"):
        classify("qqqq")
    assert classify("linalg.cond") == Row("linalg.cond", HERE, "`tessera.linalg.cond`")
    assert classify("masked.sum").kind == WRITE


def test_the_page_is_whole_and_what_it_says_is_here_exists() -> None:
    assert COUNTS is not None
    assert len(ROWS) == int(COUNTS[2]) > 600
    for _, answer in ROWS:
        for path in re.findall(r"\btessera((?:\.\w+)+)", answer):
            found: Any = ts
            for part in path[1:].split("."):
                found = getattr(found, part)


ASKED = [
    (name, answer)
    for name, answer in ROWS
    if not answer.startswith("`tessera.") and name not in EXCEPTIONS and not name.startswith(("masked.", "_", "torch."))
]


@pytest.mark.parametrize(("name", "answer"), ASKED)
def test_who_asks_for_a_name_is_told_what_to_write(name: str, answer: str) -> None:
    last = name.rpartition(".")[2]
    with pytest.raises(AttributeError) as caught:
        getattr(ts, last)
    assert str(caught.value) == f"module `tessera` has no attribute `{last}`: {answer}"


@pytest.mark.parametrize("space", ["masked", "signal", "special", "sparse", "fft"])
def test_who_asks_for_a_namespace_of_torch_is_told_where_its_functions_are(space: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute `{space}`: ") as caught:
        getattr(ts, space)
    assert "`tessera.ops" in str(caught.value) or "sparse" in str(caught.value)


rng = np.random.default_rng(0)
SQUARE = rng.normal(size=(4, 4)) + 4 * np.eye(4)
VALUES: dict[str, Any] = {
    "x": rng.normal(size=(4, 4)), "y": rng.normal(size=(4,)), "a": SQUARE, "b": rng.normal(size=(4, 4)),
    "low": -0.5, "high": 0.5, "bias": rng.normal(size=(4,)), "weight": rng.normal(size=(3, 4)), "n": 4, "k": 2,
    "angle": rng.normal(size=(4,)), "r": np.abs(rng.normal(size=(4,))), "z": rng.normal(size=(3, 3)) * (1 + 2j),
    "factor": np.linalg.cholesky(SQUARE @ SQUARE.T), "labels": np.array([0, 2, 1, 2]), "p": 3, "std": 2.0, "beta": 5.0,
    "axis": -1, "alpha": 0.6, "weights": [0.4, 0.3, 0.2], "lu": SQUARE, "tau": 1.5, "d": 2, "offset": 0,
    "shape": (2, 2, 2, 2), "parts": 2,
}  # fmt: skip
V = VALUES


def tensors(torch: Any) -> Any:
    return {name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in VALUES.items()}


SAME: dict[str, Any] = {
    "frac": lambda t, v: t.frac(v["x"]),
    "clamp_min": lambda t, v: t.clamp_min(v["x"], v["low"]),
    "clamp_max": lambda t, v: t.clamp_max(v["x"], v["high"]),
    "rsub": lambda t, v: t.rsub(v["x"], v["y"]),
    "addcmul": lambda t, v: t.addcmul(v["x"], v["a"], v["b"]),
    "addcdiv": lambda t, v: t.addcdiv(v["x"], v["a"], v["b"]),
    "addmm": lambda t, v: t.addmm(v["bias"], v["a"], v["b"]),
    "addr": lambda t, v: t.addr(v["x"], v["a"][0], v["b"][0]),
    "dist": lambda t, v: t.dist(v["x"], v["y"], v["p"]),
    "std_mean": lambda t, v: t.std_mean(v["x"]),
    "var_mean": lambda t, v: t.var_mean(v["x"]),
    "aminmax": lambda t, v: tuple(t.aminmax(v["x"])),
    "amax": lambda t, v: t.amax(v["x"], -1),
    "msort": lambda t, v: t.msort(v["x"]),
    "kthvalue": lambda t, v: t.kthvalue(v["x"], v["k"]).values,
    "mvlgamma": lambda t, v: t.mvlgamma(v["r"] + 1, 2),
    "polar": lambda t, v: t.polar(v["r"], v["angle"]),
    "diagflat": lambda t, v: t.diagflat(v["x"]),
    "fliplr": lambda t, v: t.fliplr(v["x"]),
    "hsplit": lambda t, v: t.hsplit(v["x"], 2),
    "float_power": lambda t, v: t.float_power(v["r"], v["b"]),
    "softmin": lambda t, v: t.nn.functional.softmin(v["x"], -1),
    "softsign": lambda t, v: t.nn.functional.softsign(v["x"]),
    "linear_cross_entropy": lambda t, v: t.nn.functional.cross_entropy(v["x"] @ v["weight"].T, v["labels"]),
    "pairwise_distance": lambda t, v: t.nn.functional.pairwise_distance(v["x"], v["y"], p=v["p"]),
    "inner": lambda t, v: t.inner(v["a"][0], v["b"][0]),
    "t": lambda t, v: v["x"].t(),
    "H": lambda t, v: v["z"].H,
    "adjoint": lambda t, v: v["z"].adjoint(),
    "unbind": lambda t, v: t.unbind(v["x"], -1),
    "expand_as": lambda t, v: v["x"],
    "logdet": lambda t, v: t.logdet(v["a"] @ v["a"].T),
    "pinverse": lambda t, v: t.pinverse(v["a"]),
    "inverse": lambda t, v: t.inverse(v["a"]),
    "cholesky_inverse": lambda t, v: t.cholesky_inverse(v["factor"]),
    "lu_unpack": lambda t, v: tuple(t.lu_unpack(v["lu"], t.arange(1, 5, dtype=t.int32)))[1:],
    "tensorinv": lambda t, v: t.linalg.tensorinv(v["a"].reshape(2, 2, 2, 2)),
    "tensorsolve": lambda t, v: t.linalg.tensorsolve(v["a"].reshape(2, 2, 2, 2), v["y"].reshape(2, 2)),
    "fft2": lambda t, v: t.fft.fft2(v["x"]),
    "ifft2": lambda t, v: t.fft.ifft2(v["x"]),
    "rfft2": lambda t, v: t.fft.rfft2(v["x"]),
    "irfft2": lambda t, v: t.fft.irfft2(v["z"]),
    "hfft2": lambda t, v: t.fft.hfft2(v["z"]),
    "hfftn": lambda t, v: t.fft.hfftn(v["z"]),
    "ihfft2": lambda t, v: t.fft.ihfft2(v["x"]),
    "ihfftn": lambda t, v: t.fft.ihfftn(v["x"]),
    "hann": lambda t, v: t.signal.windows.hann(v["n"], sym=False),
    "hamming": lambda t, v: t.hamming_window(v["n"]),
    "kaiser": lambda t, v: t.kaiser_window(v["n"], True, v["beta"]),
    "gaussian": lambda t, v: t.signal.windows.gaussian(v["n"], std=v["std"], sym=False),
    "general_cosine": lambda t, v: t.signal.windows.general_cosine(v["n"], a=v["weights"], sym=False),
    "general_hamming": lambda t, v: t.signal.windows.general_hamming(v["n"], alpha=v["alpha"], sym=False),
    "signal.windows.cosine": lambda t, v: t.signal.windows.cosine(v["n"]),
    "signal.windows.exponential": lambda t, v: t.signal.windows.exponential(v["n"], tau=v["tau"]),
    "spherical_bessel_j0": lambda t, v: t.special.spherical_bessel_j0(v["x"]),
    "unique_consecutive": lambda t, v: t.unique_consecutive(t.tensor([1.0, 1.0, 2.0, 2.0, 1.0])),
}
"""What PyTorch computes, on tensors of `VALUES`, for a name whose answer is code of ours on the same."""
OWN = {
    "mvlgamma": {"x": VALUES["r"] + 1}, "float_power": {"a": VALUES["r"]}, "addr": {"a": V["a"][0], "b": V["b"][0]},
    "inner": {"a": V["a"][0], "b": V["b"][0]}, "logdet": {"a": V["a"] @ V["a"].T}, "expand_as": {"y": V["x"]},
    "H": {"x": V["z"]}, "adjoint": {"x": V["z"]},
    "tensorsolve": {"b": V["y"].reshape(2, 2), "shape": (2, 2)},
    "unique_consecutive": {"x": np.array([1.0, 1.0, 2.0, 2.0, 1.0])},
}  # fmt: skip
"""Values of names that an answer uses for something else."""


def code_of(name: str) -> str:
    """What is to be written, in an answer."""
    answer = EXCEPTIONS[name][1] if name in EXCEPTIONS else advice_for("tessera", name)
    return answer.removeprefix("write `").split("`")[0]


@pytest.mark.parametrize("name", SAME)
def test_what_is_to_be_written_computes_what_pytorch_does(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    given = {**VALUES, **OWN.get(name, {})}
    own = {key: ts.array(value) if isinstance(value, np.ndarray) else value for key, value in given.items()}
    found = eval(code_of(name), {"tessera": ts, "math": math, **own})
    expected = SAME[name](torch, tensors(torch))
    ours, theirs = (list(one) if isinstance(one, tuple | list) else [one] for one in (found, expected))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        rtol = 1e-10 if one.dtype in (ts.f64, ts.c64, ts.c128) and "float32" not in str(other.dtype) else 1e-5
        np.testing.assert_allclose(np.asarray(one), other.resolve_conj().numpy(), rtol=rtol, atol=rtol)
