"""Names of other libraries: every one is answered with what to write here, and what is suggested exists."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

import pytest

import tessera as ts
from tessera.api.other_names import FRONT, OPS, RANDOM, advice_for

TABLES: dict[str, Mapping[str, str]] = {"tessera": FRONT, "tessera.ops": OPS, "tessera.random": RANDOM}
KNOWN = [
    (module, name)
    for module, table in TABLES.items()
    for name in table
    if name not in importlib.import_module(module).__all__
]
PATH = re.compile(r"tessera((?:\.\w+)+)")


@pytest.mark.parametrize(("module", "name"), KNOWN)
def test_a_known_name_is_answered_and_what_is_suggested_exists(module: str, name: str) -> None:
    home = importlib.import_module(module)
    with pytest.raises(AttributeError) as caught:
        getattr(home, name)
    assert str(caught.value) == f"module `{module}` has no attribute `{name}`: {TABLES[module][name]}"
    for path in PATH.findall(TABLES[module][name]):
        found: object = ts
        for part in path[1:].split("."):
            found = getattr(found, part)


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("tessera", "softmax", "write `tessera.ops.softmax`"),
        ("tessera", "linear", "write `tessera.ops.matmul(x, weight.T) + bias`"),
        ("tessera", "randn", "write `tessera.random.normal(key, (2, 3))`"),
        ("tessera", "uniform", "write `tessera.random.uniform`"),
        ("tessera", "no_grad", "nothing to switch off: remove it"),
        ("tessera", "nn", "layers are functions on tensors here, in `tessera.ops`"),
        ("tessera", "jitt", "did you mean `tessera.jit`?"),
        ("tessera", "fori_lop", "did you mean `tessera.fori_loop`?"),
        ("tessera.ops", "jit", "write `tessera.jit`"),
        ("tessera.ops", "randn", "write `tessera.random.normal(key, (2, 3))`"),
        ("tessera.ops", "sofmax", "did you mean `tessera.ops.softmax`?"),
        ("tessera.random", "softmax", "write `tessera.ops.softmax`"),
        ("tessera.random", "unifrom", "did you mean `tessera.random.uniform`?"),
        ("tessera.dist", "psum", "write `tessera.dist.all_reduce(x, axis)`"),
        ("tessera.dist", "all_reduc", "did you mean `tessera.dist.all_reduce`?"),
        ("tessera.verify", "finit", "did you mean `tessera.verify.finite`?"),
    ],
)
def test_a_name_of_another_module_or_a_misspelt_one_is_answered(module: str, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute `{name}`: ") as caught:
        getattr(importlib.import_module(module), name)
    assert words in str(caught.value)


@pytest.mark.parametrize("module", ["tessera", "tessera.ops", "tessera.random", "tessera.dist", "tessera.cuda"])
def test_a_name_that_nobody_knows_is_only_reported(module: str) -> None:
    with pytest.raises(AttributeError, match=rf"`{re.escape(module)}` has no attribute `qqqq`$"):
        getattr(importlib.import_module(module), "qqqq")  # noqa: B009
    assert not hasattr(importlib.import_module(module), "_private")
    assert advice_for(module, "__wrapped__") == ""
