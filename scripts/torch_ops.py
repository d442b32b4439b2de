"""Writes docs/guide/pytorch-ops.md: every op of PyTorch's own op database, and what it is here: [--check].

The names are those of `op_db`, which PyTorch tests its ops with. Each is here under its name or a part of it, or is
answered by the tables of `tessera.api.other_names`, which say what to write when somebody asks for it; the tables here
are of names alone that mean something else in PyTorch. A name that nobody answers is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import tessera as ts
from tessera.api.other_names import advice_for

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "pytorch-ops.md"
VERSION = "PyTorch "
HOMES = {
    "linalg": ("linalg", "ops"),
    "fft": ("ops", "xp.fft"),
    "nn": ("ops", "nn", "random"),
    "": ("ops", "random", "linalg", "nn", "xp.fft", ""),
}
"""Where ops of a namespace of PyTorch are looked for, in order."""
HERE, WRITE, ABSENT, INTERNAL = "here", "write", "absent", "internal"
_BACKWARD = "a derivative of another op: `tessera.grad` takes derivatives"
_SCALED = "a kernel behind a dtype: `tessera.policy` and `tessera.quantize` choose scaled products"
_KERNEL = "a kernel behind another op: `tessera.ops.attention`, or `tessera.ops.softmax`"
EXCEPTIONS = {
    "signal.windows.cosine": (WRITE, "write `tessera.ops.sin((tessera.ops.linspace(0.5, n - 0.5, n)) * math.pi / n)`"),
    "signal.windows.exponential": (
        WRITE,
        "write `tessera.ops.exp(-tessera.ops.abs(tessera.ops.linspace(-(n - 1) / 2, (n - 1) / 2, n)) / tau)`",
    ),
    "repeat": (WRITE, "write `tessera.ops.tile(x, reps)`; `tessera.ops.repeat` is `repeat_interleave`"),
    "max_pool2d_with_indices_backward": (INTERNAL, _BACKWARD),
    "native_dropout_backward": (INTERNAL, _BACKWARD),
    "_softmax_backward_data": (INTERNAL, _BACKWARD),
    "torch._scaled_mm": (INTERNAL, _SCALED),
    "torch._scaled_mm_v2": (INTERNAL, _SCALED),
}
"""Names whose last part means something else, and those behind other ops."""
NAMESAKES = ("dist", "empty")
"""Names that something else has here, and so are answered as those that are not here."""
_INFINITE = "tessera.ops.where(mask, x, -math.inf)"
_NAN = "tessera.ops.where(mask, x, math.nan)"
_KEPT = "NaN in `x` is left out with what the mask leaves out"
MASKED = {
    "amax": f"tessera.ops.max({_INFINITE}, axis)",
    "amin": "tessera.ops.min(tessera.ops.where(mask, x, math.inf), axis)",
    "argmax": f"tessera.ops.argmax({_INFINITE}, axis)",
    "argmin": "tessera.ops.argmin(tessera.ops.where(mask, x, math.inf), axis)",
    "cumprod": "tessera.ops.cumprod(tessera.ops.where(mask, x, 1), axis)",
    "cumsum": "tessera.ops.cumsum(tessera.ops.where(mask, x, 0), axis)",
    "log_softmax": f"tessera.ops.log_softmax({_INFINITE}, axis)",
    "logaddexp": f"tessera.ops.logaddexp({_INFINITE}, tessera.ops.where(mask_of_y, y, -math.inf))",
    "logsumexp": f"tessera.ops.logsumexp({_INFINITE}, axis)",
    "mean": f"tessera.ops.nanmean({_NAN}, axis)",
    "median": f"tessera.ops.nanmedian({_NAN}, axis)",
    "norm": "tessera.ops.norm(tessera.ops.where(mask, x, 0), axis, order=p)",
    "normalize": "tessera.ops.normalize(tessera.ops.where(mask, x, 0), axis, order=p)",
    "prod": "tessera.ops.prod(tessera.ops.where(mask, x, 1), axis)",
    "softmax": f"tessera.ops.softmax({_INFINITE}, axis)",
    "softmin": "tessera.ops.softmax(tessera.ops.where(mask, -x, -math.inf), axis)",
    "std": f"tessera.ops.nanstd({_NAN}, axis, correction=1)",
    "sum": "tessera.ops.sum(tessera.ops.where(mask, x, 0), axis)",
    "var": f"tessera.ops.nanvar({_NAN}, axis, correction=1)",
}
"""What functions of `torch.masked` are here."""
_MIDDLE = "the mean of the middle two, as NumPy's: PyTorch's is the lower one"
_UNBIASED = "`correction=0` unless it is passed, as NumPy's: write `tessera.ops.{0}(x, correction=1)`"
_LAST = "along the last axis unless `axis` is passed, PyTorch's along axis 1: write `tessera.{0}, axis=1)`"
_LU = (
    "L and U in one matrix, and the permutation of rows: write `tessera.ops.eye(n)[tessera.linalg.lu(a).permutation].T`"
    " for P, `tessera.ops.tril(lu, -1) + tessera.ops.eye(n)` for L and `tessera.ops.triu(lu)` for U"
)
_BIAS = "a bias is no argument: write `tessera.ops.{0}(image, filters) + bias[{1}]`"
_SPATIAL = {"1d": ":, None", "2d": ":, None, None", "3d": ":, None, None, None"}
_DRAWN = "it takes a key, and a shape: write `tessera.random.{0}`"
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h"
    " hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
)
NOTES = {
    **dict.fromkeys((f"special.{name}" for name in _POLYNOMIALS.split()), "`n` is an int"),
    **{f"nn.functional.{name}{dims}": _BIAS.format(name + dims, _SPATIAL[dims])
       for name in ("conv", "conv_transpose") for dims in _SPATIAL},
    "bernoulli": _DRAWN.format("bernoulli(key, p, shape)"),
    "cauchy": _DRAWN.format("cauchy(key, shape)"),
    "exponential": _DRAWN.format("exponential(key, shape)"),
    "geometric": _DRAWN.format("geometric(key, shape, p)"),
    "normal": _DRAWN.format("normal(key, shape, mean=mean, std=std)"),
    "randint": _DRAWN.format("randint(key, shape, low, high)"),
    "uniform": _DRAWN.format("uniform(key, shape, low=low, high=high)"),
    "nn.functional.dropout": "it takes a key: write `tessera.random.dropout(x, key, 0.1)`",
    "nn.functional.alpha_dropout": "it takes a key: write `tessera.random.alpha_dropout(x, key, 0.1)`",
    "argmax": "the first of equal elements",
    "bincount": "the length is an argument: write `tessera.ops.bincount(x, length)`",
    "block_diag": "of matrices: write `x[None]` for a vector",
    "cholesky_solve": "the factor comes first: write `tessera.linalg.cholesky_solve(factor, b)`",
    "cov": "without weights",
    "cross": "the last axis unless `axis` is passed, PyTorch's the first of size 3",
    "cummax": "values alone",
    "cummin": "values alone",
    "flatten": "all axes: write `x.reshape(x.shape[0], -1)` for PyTorch's `flatten(x, 1)`",
    "gather": (
        "a position for each leading axis, which stand in the last axis of the indices: write"
        " `tessera.ops.take_along_axis(x, indices, axis)`, of indices as long as `x` along other axes"
    ),
    "histogram": "counts are integers",
    "linalg.lu": _LU,
    "linalg.solve": "`b` is a vector or matrices: write `tessera.linalg.solve(a, b[..., None])[..., 0]` for vectors",
    "linalg.solve_triangular": "of an upper matrix unless `lower=True`; `unit_diagonal` is PyTorch's `unitriangular`",
    "linalg.vander": "powers descend, as NumPy's: write `tessera.ops.vander(x, increasing=True)`",
    "logit": "without `eps`: write `tessera.ops.logit(tessera.ops.clamp(x, eps, 1 - eps))`",
    "lu": "a matrix with L and U, and the permutation of rows, where PyTorch has pivots",
    "linalg.lu_factor": "the permutation of rows, where PyTorch has pivots",
    "linalg.lu_factor_ex": "the permutation of rows, where PyTorch has pivots",
    "masked.mean": _KEPT,
    "masked.median": f"{_MIDDLE}; {_KEPT}",
    "masked.std": _KEPT,
    "masked.var": _KEPT,
    "meshgrid": "`indexing` is `xy` unless it is passed, as NumPy's: write `tessera.ops.meshgrid(a, b, indexing='ij')`",
    "mode": "values, and how often each is there, where PyTorch has a position",
    "nn.functional.batch_norm": "with the mean and variance that are passed: `tessera.nn.BatchNorm` computes them",
    "nn.functional.binary_cross_entropy": (
        "of logits: write `tessera.nn.binary_cross_entropy(tessera.ops.logit(p), y)` for probabilities"
    ),
    "nn.functional.cosine_similarity": _LAST.format("nn.cosine_similarity(x, y"),
    "nn.functional.cross_entropy": (
        "classes are the last axis, PyTorch's axis 1: write"
        " `tessera.ops.cross_entropy(tessera.ops.moveaxis(logits, 1, -1), labels)`"
    ),
    "nn.functional.embedding": "the table comes first: write `tessera.ops.embedding(table, indices)`",
    "nn.functional.embedding_bag": (
        "the table comes first, and bags are an axis: write `tessera.ops.embedding_bag(table, indices)`"
    ),
    "nn.functional.feature_alpha_dropout": "channels become zeros, as in `dropout2d`",
    "nn.functional.grid_sample": "`linear` is PyTorch's `bilinear`, `cubic` `bicubic`, and `padding` `padding_mode`",
    "nn.functional.instance_norm": "without running means and variances",
    "nn.functional.interpolate": "`linear` is PyTorch's `bilinear`, `cubic` its `bicubic`; there is no `scale_factor`",
    "nn.functional.nll_loss": (
        "classes are the last axis, PyTorch's axis 1: write"
        " `tessera.nn.nll_loss(tessera.ops.moveaxis(logits, 1, -1), labels)`"
    ),
    "nn.functional.normalize": _LAST.format("ops.normalize(x, order=p"),
    "nn.functional.one_hot": (
        "floats unless a dtype is passed, and the number of classes is an argument: write"
        " `tessera.ops.one_hot(classes, n, tessera.i64)`"
    ),
    "nn.functional.pad": (
        "a pair for each axis, the first axis first: write `tessera.ops.pad(x, ((0, 0), (1, 2)))` for PyTorch's"
        " `pad(x, (1, 2))` of a matrix; one pair is for all axes"
    ),
    "nn.functional.rms_norm": "`eps` is 1e-5, PyTorch's the difference of 1 and the next number of the dtype",
    "nn.functional.softplus": "`beta` is 1: write `tessera.ops.softplus(beta * x) / beta` for another",
    "nonzero": "a tuple of positions, one tensor for each axis, as NumPy's: write `tessera.ops.argwhere(x)`",
    "norm": "the axes come second, and `order` by name: write `tessera.ops.norm(x, order=p)`",
    "nanquantile": "`method` is PyTorch's `interpolation`",
    "quantile": "`method` is PyTorch's `interpolation`",
    "round": "to integers: write `tessera.ops.round(x * 100) / 100` for 2 decimals",
    "searchsorted": "`side='right'` is PyTorch's `right=True`",
    "stft": "frames come before frequencies, and ends are not padded, as with PyTorch's `center=False`",
    "sort": "values alone: write `tessera.ops.sort(x), tessera.ops.argsort(x)` for both",
    "split": "a number of equal parts, PyTorch's a size of parts: write `tessera.ops.split(x, [3, 1])` with sizes",
    "unique": "values alone",
    "max": "values alone: `tessera.ops.argmax` has the indices",
    "median": _MIDDLE,
    "min": "values alone: `tessera.ops.argmin` has the indices",
    "nanmedian": _MIDDLE,
    "scatter": (
        "it writes rows by index: write `tessera.ops.put_along_axis(x, indices, values, axis)`, of indices as long as"
        " `x` along other axes"
    ),
    "scatter_add": (
        "it adds rows by index: write `x.at[indices, tessera.arange(n)].add(values)` for axis 0 of a matrix"
    ),
    "std": _UNBIASED.format("std"),
    "svd": "V transposed, as `torch.linalg.svd` has it: write `tessera.linalg.svd(a, full_matrices=False)`",
    "take": "along an axis: write `tessera.ops.take(x.reshape(-1), indices)` for PyTorch's",
    "transpose": "it takes all axes: write `tessera.ops.swapaxes(x, 0, 1)` for two",
    "unfold": (
        "windows of an image: write `x[step * tessera.arange(count)[:, None] + tessera.arange(size)]` of a vector"
    ),
    "var": _UNBIASED.format("var"),
}  # fmt: skip
"""What differs from PyTorch's op."""
OPENING = """# Ops of PyTorch by name

<!-- Made by scripts/torch_ops.py from PyTorch's op database: change its tables and those of tessera/api, not this. -->

Every op of the op database of {version}: {count} names. {here} are **here**, {write} are an expression of ours, which
`ts.<name>` tells who asks for it, {absent} are absent for the reason that stands beside them, and {internal} are
internal to PyTorch. Arguments have the names of NumPy's (`axis`, `keepdims`); the last column says what else differs
from PyTorch's op. [Coming from PyTorch](from-pytorch.md) is about the rest.
"""


@dataclass(frozen=True)
class Row:
    """An op of PyTorch: its name, whether it is here, what to write, and how that differs."""

    name: str
    kind: str
    answer: str

    @property
    def note(self) -> str:
        """What differs from PyTorch's op."""
        return NOTES.get(self.name, "")

    @property
    def group(self) -> str:
        """The namespace that it is listed under."""
        return self.name.rpartition(".")[0] if self.kind != INTERNAL else "Internal to PyTorch"


def names_of_torch() -> list[str]:
    """The names in the op database; PyTorch's module of it asks for `expecttest`, which only its own tests use."""
    if importlib.util.find_spec("expecttest") is None:
        stand_in: Any = ModuleType("expecttest")
        stand_in.TestCase = object
        sys.modules["expecttest"] = stand_in
    database = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return sorted({op.name for op in database.op_db})


def classify(name: str) -> Row:
    """What an op is here; raises LookupError for one that nobody answers."""
    if name in EXCEPTIONS:
        return Row(name, *EXCEPTIONS[name])
    space, _, last = name.rpartition(".")
    if name.startswith("torch.ops."):
        return Row(name, INTERNAL, _KERNEL)
    if space == "masked":
        return Row(name, WRITE, f"write `{MASKED[last]}`")
    for home in () if name in NAMESAKES else HOMES.get(space.partition(".")[0], HOMES[""]):
        module = importlib.import_module(f"tessera.{home}".rstrip("."))
        if last in module.__all__ or last in getattr(module, "_LIBRARY", ()):
            return Row(name, HERE, f"`{module.__name__}.{last}`")
    if hasattr(ts.Tensor, last) and name not in NAMESAKES:
        return Row(name, HERE, f"`tessera.Tensor.{last}`")
    if last.startswith("_"):
        return Row(name, INTERNAL, "an op behind others, which has no name for users")
    advice = advice_for("tessera.ops" if name in NAMESAKES else "tessera", last)
    if not advice or "did you mean" in advice:
        raise LookupError(f"nobody says what PyTorch's `{name}` is here: write it into tessera/api/names_of_torch.py")
    is_absent = advice.startswith(("there is no", "there are no", "it is not here"))
    return Row(name, ABSENT if is_absent else WRITE, advice)


def render(rows: Iterable[Row], version: str) -> str:
    """The page."""
    listed = sorted(rows, key=lambda row: (row.kind == INTERNAL, row.group, row.name))
    counts = {kind: sum(row.kind == kind for row in listed) for kind in (HERE, WRITE, ABSENT, INTERNAL)}
    parts = [OPENING.format(version=version, count=len(listed), **counts)]
    for group, members in groupby(listed, key=lambda row: row.group):
        title = group if " " in group else f"torch.{group}".rstrip(".")
        parts.append(
            f"\n## {title}\n\n| op | {'what it is' if ' ' in group else 'here'} | what differs |\n|---|---|---|\n"
        )
        parts += [
            f"| `{row.name}` | {row.answer.replace('|', '&#124;')} | {row.note} |\n".replace("|  |", "| |")
            for row in members
        ]
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` only compare it."""
    version = VERSION + importlib.import_module("torch").__version__.partition("+")[0]
    text = render(map(classify, names_of_torch()), version)
    is_stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if is_stale and "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if is_stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
