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
from scripts.torch_ops import (
    EXCEPTIONS,
    HERE,
    MASKED,
    NAMESAKES,
    NOTES,
    PAGE,
    VERSION,
    WRITE,
    Row,
    classify,
    names_of_torch,
    render,
)
from tessera.api.names_of_torch import TORCH_FRONT
from tessera.api.other_names import advice_for

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (.+?) \|(.*) ?\|$", TEXT, re.MULTILINE)
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
    assert NOTES.keys() <= {name for name, _, _ in ROWS}
    for _, answer, note in ROWS:
        for path in re.findall(r"\btessera((?:\.\w+)+)", answer + note):
            found: Any = ts
            for part in path[1:].split("."):
                found = getattr(found, part)


ASKED = [
    (name, answer)
    for name, answer, _ in ROWS
    if not answer.startswith("`tessera.")
    and name not in {*EXCEPTIONS, *NAMESAKES}
    and not name.startswith(("masked.", "_", "torch."))
]


@pytest.mark.parametrize(("name", "answer"), ASKED)
def test_who_asks_for_a_name_is_told_what_to_write(name: str, answer: str) -> None:
    last = name.rpartition(".")[2]
    with pytest.raises(AttributeError) as caught:
        getattr(ts, last)
    assert str(caught.value) == f"module `tessera` has no attribute `{last}`: {answer}"


@pytest.mark.parametrize("name", NAMESAKES)
def test_what_has_its_name_here_and_is_something_else_is_answered(name: str) -> None:
    """`tessera.dist` is of ranks, and `Tensor.empty` takes a dtype."""
    row = classify(name)
    assert row.kind == WRITE
    with pytest.raises(AttributeError, match=re.escape(row.answer)):
        getattr(ts.ops, name)


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
    "shape": (2, 2, 2, 2), "parts": 2, "mask": ~np.eye(4, dtype=bool), "mask_of_y": np.arange(4) % 2 == 0,
    "indices": np.array([[0, 3, 1, 2], [3, 3, 0, 2]]), "values": rng.normal(size=(2, 4)), "first": 0, "second": 1,
    "count": 2, "size": 2, "step": 2, "image": rng.normal(size=(2, 3, 5, 5)), "filters": rng.normal(size=(4, 3, 2, 2)),
    "logits": rng.normal(size=(4, 3, 2)), "classes": np.array([0, 2, 1]), "length": 4, "eps": 0.01,
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
    "float_power": lambda t, v: t.float_power(v["indices"] + 9, v["indices"] + 9),
    "softmin": lambda t, v: t.nn.functional.softmin(v["x"], -1),
    "softsign": lambda t, v: t.nn.functional.softsign(v["x"]),
    "linear_cross_entropy": lambda t, v: t.nn.functional.cross_entropy(v["x"] @ v["weight"].T, v["labels"]),
    "pairwise_distance": lambda t, v: t.nn.functional.pairwise_distance(v["x"], v["y"], p=v["p"]),
    "inner": lambda t, v: t.inner(v["weight"], v["b"][:2]),
    "vdot": lambda t, v: t.vdot(v["z"][0], v["z"][1]),
    "equal": lambda t, v: t.tensor(t.equal(v["a"], v["b"][:1])),
    "gradient": lambda t, v: t.gradient(v["x"], dim=0)[0],
    "isreal": lambda t, v: t.isreal(t.tensor([1 + 0j, 1j])),
    "index_reduce": lambda t, v: v["x"].index_reduce(0, v["indices"][1, :2], v["values"], "amax"),
    "scatter_reduce": lambda t, v: v["x"].scatter_reduce(0, v["indices"], v["values"], "sum"),
    "transpose_copy": lambda t, v: t.transpose_copy(v["image"], 0, 1),
    "unfold_copy": lambda t, v: t.unfold_copy(v["y"], 0, 2, 2),
    "split_copy": lambda t, v: t.split_with_sizes_copy(t.arange(7), [3, 4]),
    "nonzero_static": lambda t, v: t.nonzero_static(v["mask"], size=14),
    "index_put": lambda t, v: v["x"].index_put((v["classes"],), v["y"]),
    "positive": lambda t, v: t.positive(v["x"]),
    "upsample_bilinear": lambda t, v: t.nn.functional.interpolate(
        v["image"], size=(7, 7), mode="bilinear", align_corners=True
    ),
    "solve_ex": lambda t, v: t.linalg.solve_ex(v["a"], v["b"]).result,
    "inv_ex": lambda t, v: t.linalg.inv_ex(v["a"]).inverse,
    "cholesky_ex": lambda t, v: t.linalg.cholesky_ex(v["a"] @ v["a"].T).L,
    "kl_div": lambda t, v: t.nn.functional.kl_div(v["x"], v["r"].expand(4, 4), reduction="batchmean"),
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
    **{name: lambda t, v, name=name: getattr(t.signal.windows, name)(v["n"])
       for name in ("hann", "hamming", "bartlett", "blackman", "nuttall")},
    "kaiser": lambda t, v: t.signal.windows.kaiser(v["n"], beta=v["beta"]),
    "gaussian": lambda t, v: t.signal.windows.gaussian(v["n"], std=v["std"]),
    "general_cosine": lambda t, v: t.signal.windows.general_cosine(v["n"], a=v["weights"]),
    "general_hamming": lambda t, v: t.signal.windows.general_hamming(v["n"], alpha=v["alpha"]),
    "signal.windows.cosine": lambda t, v: t.signal.windows.cosine(v["n"]),
    "signal.windows.exponential": lambda t, v: t.signal.windows.exponential(v["n"], tau=v["tau"]),
    "spherical_bessel_j0": lambda t, v: t.special.spherical_bessel_j0(v["x"]),
    "unique_consecutive": lambda t, v: t.unique_consecutive(t.tensor([1.0, 1.0, 2.0, 2.0, 1.0])),
}  # fmt: skip
"""What PyTorch computes, on tensors of `VALUES`, for a name whose answer is code of ours on the same."""
OWN = {
    "mvlgamma": {"x": VALUES["r"] + 1}, "float_power": dict.fromkeys("ab", V["indices"].astype(np.int32) + 9),
    "addr": {"a": V["a"][0], "b": V["b"][0]},
    "inner": {"a": V["weight"], "b": V["b"][:2]}, "vdot": {"a": V["z"][0], "b": V["z"][1]}, "equal": {"b": V["b"][:1]},
    "isreal": {"x": np.array([1 + 0j, 1j])}, "index_reduce": {"indices": V["indices"][1, :2]},
    "transpose_copy": {"x": V["image"]}, "unfold_copy": {"x": V["y"]}, "split_copy": {"x": np.arange(7)},
    "nonzero_static": {"x": V["mask"], "n": 14}, "index_put": {"indices": V["classes"], "values": V["y"]},
    "upsample_bilinear": {"x": V["image"], "size": (7, 7)}, "cholesky_ex": {"a": SQUARE @ SQUARE.T},
    "kl_div": {"log_prediction": V["x"], "target": np.broadcast_to(V["r"], (4, 4)).copy()},
    "logdet": {"a": V["a"] @ V["a"].T}, "expand_as": {"y": V["x"]},
    "H": {"x": V["z"]}, "adjoint": {"x": V["z"]},
    "tensorsolve": {"b": V["y"].reshape(2, 2), "shape": (2, 2)},
    "unique_consecutive": {"x": np.array([1.0, 1.0, 2.0, 2.0, 1.0])},
}  # fmt: skip
"""Values of names that an answer uses for something else."""


def code_of(name: str) -> str:
    """What is to be written, in an answer."""
    answer = EXCEPTIONS[name][1] if name in EXCEPTIONS else advice_for("tessera", name)
    return answer.removeprefix("write `").split("`")[0]


def expect_same(name: str, code: str, expected: Any) -> None:
    """Code of ours on `VALUES`, and those that a name has of its own, gives what PyTorch gave."""
    given = {**VALUES, **OWN.get(name, {})}
    own = {key: ts.array(value) if isinstance(value, np.ndarray) else value for key, value in given.items()}
    found = eval(code, {"tessera": ts, "math": math, **own})
    ours, theirs = (list(one) if isinstance(one, tuple | list) else [one] for one in (found, expected))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        mine, expected_values = np.asarray(one), other.resolve_conj().numpy()
        assert mine.shape == expected_values.shape
        is_exact = str(mine.dtype) in ("float64", "complex64", "complex128") and "float32" not in str(other.dtype)
        rtol = 1e-10 if is_exact else 1e-5
        np.testing.assert_allclose(mine, expected_values, rtol=rtol, atol=rtol)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", SAME)
def test_what_is_to_be_written_computes_what_pytorch_does(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    expect_same(name, code_of(name), SAME[name](torch, tensors(torch)))


NOTED: dict[str, Any] = {
    "cholesky_solve": lambda t, v: t.cholesky_solve(v["b"], v["factor"]),
    "bincount": lambda t, v: t.bincount(t.tensor([0, 3, 3])),
    "flatten": lambda t, v: t.flatten(v["image"], 1),
    "gather": lambda t, v: t.gather(v["x"], -1, v["indices"].T),
    "linalg.solve": lambda t, v: t.linalg.solve(t.stack([v["a"]] * 4), v["b"]),
    "linalg.vander": lambda t, v: t.linalg.vander(v["y"]),
    "logit": lambda t, v: t.logit(t.tensor([0.0, 0.5, 1.0], dtype=t.float64), v["eps"]),
    "meshgrid": lambda t, v: t.meshgrid(t.arange(2), t.arange(3), indexing="ij"),
    "nn.functional.binary_cross_entropy": lambda t, v: t.nn.functional.binary_cross_entropy(
        t.tensor([0.2, 0.7], dtype=t.float64), t.tensor([0.0, 1.0], dtype=t.float64)
    ),
    "nn.functional.conv2d": lambda t, v: t.nn.functional.conv2d(v["image"], v["filters"], v["bias"]),
    "nn.functional.conv_transpose2d": lambda t, v: t.nn.functional.conv_transpose2d(
        v["image"], v["filters"].transpose(0, 1).contiguous(), v["bias"]
    ),
    "nn.functional.cosine_similarity": lambda t, v: t.nn.functional.cosine_similarity(v["logits"], v["logits"] + 1),
    "nn.functional.cross_entropy": lambda t, v: t.nn.functional.cross_entropy(v["logits"], t.tensor(LABELS)),
    "nn.functional.nll_loss": lambda t, v: t.nn.functional.nll_loss(v["logits"], t.tensor(LABELS)),
    "nn.functional.embedding": lambda t, v: t.nn.functional.embedding(v["indices"], v["x"]),
    "nn.functional.embedding_bag": lambda t, v: t.nn.functional.embedding_bag(v["indices"], v["x"]),
    "nn.functional.normalize": lambda t, v: t.nn.functional.normalize(v["logits"], v["p"]),
    "nn.functional.one_hot": lambda t, v: t.nn.functional.one_hot(v["classes"], v["n"]),
    "nn.functional.pad": lambda t, v: t.nn.functional.pad(v["x"], (1, 2)),
    "nn.functional.softplus": lambda t, v: t.nn.functional.softplus(v["x"], v["beta"]),
    "nonzero": lambda t, v: t.nonzero(v["mask"]),
    "norm": lambda t, v: t.norm(v["x"], v["p"]),
    "round": lambda t, v: t.round(v["x"], decimals=2),
    "scatter": lambda t, v: v["x"].scatter(-1, v["indices"].T, v["values"].T),
    "scatter_add": lambda t, v: v["x"].scatter_add(0, v["indices"], v["values"]),
    "sort": lambda t, v: t.sort(v["x"]),
    "split": lambda t, v: t.split(v["x"], 3),
    "std": lambda t, v: t.std(v["x"]),
    "take": lambda t, v: t.take(v["x"], v["indices"]),
    "transpose": lambda t, v: t.transpose(v["image"], 0, 1),
    "unfold": lambda t, v: v["y"].unfold(0, 2, 2),
    "var": lambda t, v: t.var(v["x"]),
}  # fmt: skip
"""What PyTorch computes for a name that is here too, whose note says what to write for it."""
LABELS = VALUES["labels"][:, None] % 2 + np.zeros((4, 2), np.int64)
OWN_OF_NOTES: dict[str, Any] = {
    "bincount": {"x": np.array([0, 3, 3])}, "flatten": {"x": V["image"]}, "gather": {"indices": V["indices"].T.copy()},
    "linalg.solve": {"a": np.stack([V["a"]] * 4)}, "linalg.vander": {"x": V["y"]},
    "logit": {"x": np.array([0.0, 0.5, 1.0])},
    "meshgrid": {"a": np.arange(2), "b": np.arange(3)},
    "nn.functional.binary_cross_entropy": {"p": np.array([0.2, 0.7]), "y": np.array([0.0, 1.0])},
    "nn.functional.conv_transpose2d": {"filters": V["filters"].swapaxes(0, 1).copy()},
    "nn.functional.cosine_similarity": {"x": V["logits"], "y": V["logits"] + 1},
    "nn.functional.cross_entropy": {"labels": LABELS}, "nn.functional.nll_loss": {"labels": LABELS},
    "nn.functional.embedding": {"table": V["x"]}, "nn.functional.embedding_bag": {"table": V["x"]},
    "nn.functional.normalize": {"x": V["logits"]}, "nonzero": {"x": V["mask"]},
    "scatter": {"indices": V["indices"].T.copy(), "values": V["values"].T.copy()}, "transpose": {"x": V["image"]},
    "unfold": {"x": V["y"]},
}  # fmt: skip
OWN.update({f"note of {name}": values for name, values in OWN_OF_NOTES.items()})


@pytest.mark.parametrize("name", NOTED)
def test_what_a_note_says_to_write_computes_what_pytorch_does(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    code = NOTES[name].partition("write `")[2].split("`")[0]
    expect_same(f"note of {name}", code, NOTED[name](torch, tensors(torch)))


@pytest.mark.parametrize("name", TORCH_FRONT)
def test_who_asks_for_what_differs_is_told_what_computes_the_same(name: str) -> None:
    """It is what the page says, which the test above computes."""
    full = next(one for one in NOTED if one.rpartition(".")[2] == name)
    with pytest.raises(AttributeError) as caught:
        getattr(ts, name)
    code = NOTES[full].partition("write `")[2].split("`")[0]
    assert f"write `tessera.ops.{name}`, and for what PyTorch's computes `{code}`" in str(caught.value)


def test_the_parts_of_lu_are_those_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    p, lower, upper = (code for code in re.findall(r"`([^`]+)`", NOTES["linalg.lu"]) if "tessera." in code)
    matrix = SQUARE[::-1].copy()
    a = ts.array(matrix)
    names = {"tessera": ts, "a": a, "n": 4, "lu": ts.linalg.lu(a).lu}
    for code, other in zip((p, lower, upper), torch.linalg.lu(torch.tensor(matrix)), strict=True):
        np.testing.assert_allclose(np.asarray(eval(code, names)), other.numpy(), atol=1e-10)


@pytest.mark.parametrize("name", sorted(MASKED))
def test_masked_functions_are_those_of_pytorch(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    masked, v = torch.masked, tensors(torch)
    mask = v["mask"]
    if name == "logaddexp":
        masks = {"input_mask": mask, "other_mask": v["mask_of_y"].expand(4, 4)}
        expected = masked.logaddexp(v["x"], v["y"].expand(4, 4), **masks)
    elif name in ("norm", "normalize"):
        expected = getattr(masked, name)(v["x"], float(v["p"]), -1, mask=mask)
    else:
        more = (True,) if name in ("std", "var") else ()
        expected = getattr(masked, name)(v["x"], -1, *more, mask=mask)
    expect_same(name, MASKED[name], expected)
