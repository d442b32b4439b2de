"""What goes wrong on a first day: each mistake is answered in words that help, and what they say to write runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import tessera as ts
from tessera.diagnostics.error import TesseraError
from tests.errors.test_programs import PRELUDE, run


@dataclass(frozen=True)
class Mistake:
    """A wrong program, words that its message must have, and the program as they say; None where an edit is offered."""

    program: str
    words: tuple[str, ...]
    fixed: str | None = None


def traced(body: str, arguments: str = "X", parameters: str = "x") -> str:
    """A jitted function with this body, called once."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    given = "X, M, I = np.ones(4, np.float32), np.ones((4, 3), np.float32), np.int64(1)"
    return f"{given}\n\n\n@ts.jit\ndef f({parameters}):\n{lines}\n\n\nf({arguments})\n"


def returns(expression: str, arguments: str = "X", parameters: str = "x") -> str:
    return traced(f"return {expression}", arguments, parameters)


def masked(condition: str) -> str:
    """An attention whose mask is this condition."""
    return attended(f"Q, Q, Q, mask=lambda b, h, i, j: {condition}")


def attended(arguments: str) -> str:
    """An attention of these arguments."""
    given = "Q, T = ts.ones((1, 2, 8, 16)), np.ones((2, 8), np.float32)"
    return f"{given}\nts.ops.attention({arguments})\n"


SYMBOLIC = 'x: Tensor["N", f32]'

MISTAKES: dict[str, Mistake] = {
    # Python that needs values
    "while": Mistake(
        traced("while x.sum() > 1:\n    x = x / 2\nreturn x"),
        ("`while` needs the value", "ts.while_loop(lambda x: x.sum() > 1"),
    ),
    "while of several": Mistake(
        traced("n = 0\nwhile x.sum() > 1:\n    x = x / 2\n    n = n + 1\nreturn x"),
        ("`while`", "ts.while_loop(condition, body, (x, n))"),
        traced("x, n = ts.while_loop(lambda s: s[0].sum() > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))\nreturn x"),
    ),
    "range": Mistake(
        traced("for i in range(n):\n    x = x + 1\nreturn x", "X, I", "x, n"),
        ("`range` needs the value", "ts.fori_loop(0, n, lambda i, x: x + 1, x)"),
    ),
    "range of two": Mistake(
        traced("for i in range(1, n):\n    x += 2\nreturn x", "X, I", "x, n"),
        ("ts.fori_loop(1, n, lambda i, x: x + 2, x)",),
    ),
    "range of a symbolic dim": Mistake(
        traced("y = 0.0\nfor i in range(x.shape[0]):\n    y = y + x[i]\nreturn y", "X", SYMBOLIC),
        ("symbolic dim", "ts.fori_loop(0, x.shape[0], lambda i, y: y + x[i], y)"),
    ),
    "and": Mistake(returns("ts.ops.where(x > 0 and x < 1, x, 0)"), ("`and` needs the value", "(x > 0) & (x < 1)")),
    "or": Mistake(returns("ts.ops.where(x > 0 or x < 1, x, 0)"), ("`or` needs the value", "(x > 0) | (x < 1)")),
    "not": Mistake(returns("ts.ops.where(not x > 0, x, 0)"), ("`not` needs the value", "~(x > 0)")),
    "and of not": Mistake(returns("ts.ops.where(x > 0 and not x < 1, x, 0)"), ("(x > 0) & ~(x < 1)",)),
    "a chained comparison": Mistake(
        returns("ts.ops.where(0 < x < 1, x, 0)"), ("chained comparison", "(0 < x) & (x < 1)")
    ),
    # `&` between comparisons, which Python takes for a part of what is compared
    "i >= j & i - j < 4": Mistake(
        masked("i >= j & i - j < 4"), ("`&` binds tighter than comparisons: write `(i >= j) & (i - j < 4)`",)
    ),
    "i >= j & i - j < 4 | j == 0": Mistake(
        masked("i >= j & i - j < 4 | j == 0"), ("write `(i >= j) & (i - j < 4) | (j == 0)`",)
    ),
    "h == 0 | i >= j": Mistake(
        masked("h == 0 | i >= j"),
        (
            "`|` binds tighter",
            "(h == 0) | (i >= j)",
        ),
    ),
    "0 <= i < j + 1 & 0 <= j": Mistake(masked("0 <= i < j + 1 & 0 <= j"), ("(0 <= i) & (i < j + 1) & (0 <= j)",)),
    "(h == 0) | i >= j > 2": Mistake(masked("(h == 0) | i >= j > 2"), ("(h == 0) | (i >= j) & (j > 2)",)),
    "0 <= i & 3 < 4": Mistake(masked("0 <= i & 3 < 4"), ("write `(0 <= i & 3) & (i & 3 < 4)`",)),
    "0 <= (i & j) < 4": Mistake(masked("0 <= (i & j) < 4"), ("write `(0 <= i & j) & (i & j < 4)`",)),
    # Tables and functions of an attention
    "an array in a score": Mistake(
        attended("Q, Q, Q, score=lambda s, b, h, i, j: s + T[h, i]"), ("`T = ts.asarray(T)`", "s + ts.asarray(T)[h, i]")
    ),
    "a row of an array in a mask": Mistake(
        attended("Q, Q, Q, mask=lambda b, h, i, j: T[0][i] > 0"), ("make `T[0]` a tensor", "ts.asarray(T[0])[i] > 0")
    ),
    "an array that is written to": Mistake(
        traced("held = np.zeros(4)\nheld[:] = x\nreturn x"),
        ("NumPy needs the value of a traced tensor", "= help: use `tessera.ops` instead of `numpy`"),
        returns("ts.ops.zeros_like(x) + x"),
    ),
    "a mask in place of the values": Mistake(
        attended("Q, Q, lambda b, h, i, j: i >= j"),
        ("`v` of `attention` is missing", "write `mask=`"),
        attended("Q, Q, Q, mask=lambda b, h, i, j: i >= j"),
    ),
    "if": Mistake(
        traced("if x.sum() > 0:\n    return x\nreturn -x"),
        ("`if` needs the value", "ts.ops.where(x.sum() > 0, a, b)", "ts.cond(x.sum() > 0, then, otherwise, x)"),
        returns("ts.cond(x.sum() > 0, lambda x: x, lambda x: -x, x)"),
    ),
    "if with and": Mistake(
        traced("if x.sum() > 0 and x.max() < 1:\n    return x\nreturn -x"),
        ("`if` needs the value", "ts.ops.where((x.sum() > 0) & (x.max() < 1), a, b)"),
        returns("ts.ops.where((x.sum() > 0) & (x.max() < 1), x, -x)"),
    ),
    "if of a not": Mistake(
        traced("if not x.sum() > 0:\n    return x\nreturn -x"),
        ("`if` needs the value", "ts.ops.where(~(x.sum() > 0), a, b)"),
        returns("ts.ops.where(~(x.sum() > 0), x, -x)"),
    ),
    "a conditional expression": Mistake(
        returns("x if x.sum() > 0 else -x"), ("`if` needs the value", "ts.ops.where(x.sum() > 0, x, -x)")
    ),
    "an assert": Mistake(
        traced("assert (x > 0).all()\nreturn x"),
        ("`assert` needs the value", "check it after the call"),
        returns("(x, (x > 0).all())"),
    ),
    "bool()": Mistake(returns("x * bool(x.sum())"), ("bool() needs the value", "compare it with 0")),
    "max of two": Mistake(returns("max(x.sum(), 1.0)"), ("`max` needs the value", "ts.ops.maximum")),
    "min of a symbolic row": Mistake(returns("min(x)", "X", SYMBOLIC), ("ts.ops.min(x)",)),
    "sum of a symbolic row": Mistake(returns("sum(x)", "X", SYMBOLIC), ("ts.ops.sum(x)",)),
    "math": Mistake("import math\n" + returns("math.sin(x.sum())"), ("`sin` needs the value", "ts.ops.sin(x.sum())")),
    "float()": Mistake(returns("x * float(x.sum())"), ("float() needs the value", "use the tensor itself")),
    "item": Mistake(returns("x * x.sum().item()"), ("`.item()` needs the value", "use the tensor itself")),
    "a format": Mistake(
        traced('print(f"{x.sum():.2f}")\nreturn x'),
        ("the format `:.2f` needs the value", 'ts.debug_print("{:.2f}", x.sum())'),
    ),
    "a format within text": Mistake(
        traced('print(f"loss {x.sum():.3e} of {x.max()}")\nreturn x'),
        ('ts.debug_print("loss {:.3e} of {}", x.sum(), x.max())',),
    ),
    "a list by a tensor": Mistake(
        returns("[x, x * 2][i]", "X, I", "x, i"), ("an index of a list", "ts.ops.stack([x, x * 2])[i]")
    ),
    "if of a call": Mistake(
        traced("if x.any(): return x\nreturn -x"),
        ("`if` needs the value", "ts.cond(x.any(), then, otherwise, x)"),
        returns("ts.cond(x.any(), lambda x: x, lambda x: -x, x)"),
    ),
    "while of a name": Mistake(
        traced("m = x.sum() > 9\nwhile m:\n    m = ~m\nreturn m"), ("ts.while_loop(lambda m: m, lambda m: ~m, m)",)
    ),
    "a conditional expression of a name": Mistake(
        returns("1.0 if m else 2.0", "I", "m"), ("ts.ops.where(m, 1.0, 2.0)",)
    ),
    "or of numbers": Mistake(
        returns("x.sum() or 2"), ("`or` needs the value", "ts.ops.where(x.sum() != 0, x.sum(), 2)")
    ),
    "and of numbers": Mistake(returns("x.sum() and 2"), ("ts.ops.where(x.sum() != 0, 2, x.sum())",)),
    "not of a number": Mistake(returns("not x.sum()"), ("`not` needs the value", "(x.sum() == 0)")),
    "any of a list": Mistake(returns("any([x.sum(), x.max()])"), ("ts.ops.any(ts.ops.stack([x.sum(), x.max()]))",)),
    "all of a generator": Mistake(
        returns("all(a > 0 for a in (x.sum(), x.max()))"),
        ("ts.ops.all(ts.ops.stack([a > 0 for a in (x.sum(), x.max())]))",),
    ),
    "in a tuple": Mistake(returns("x.sum() in (1, 2)"), ("`in` needs the value", "(x.sum() == 1) | (x.sum() == 2)")),
    "in a tensor": Mistake(returns("1.0 in x"), ("`in` needs the value", "ts.ops.any(x == 1.0)")),
    "match": Mistake(
        traced("match x.sum():\n    case 1:\n        return 1.0\n    case _:\n        return 2.0"),
        ("`match` needs the value", "ts.ops.where(x == value, a, b)"),
        returns("ts.ops.where(x.sum() == 1, 1.0, 2.0)"),
    ),
    "a filter": Mistake(
        returns("[a for a in (x.sum(), x.max()) if a]"),
        ("the shape does not depend on values",),
        returns("ts.ops.where(x != 0, x, 0)"),
    ),
    "a function of math by its name": Mistake(
        "from math import exp\n" + returns("exp(x.sum())"), ("`exp` needs the value", "ts.ops.exp(x.sum())")
    ),
    "a format with a percent sign": Mistake(
        returns('"%.2f" % x.sum()'),
        ("a format needs the value", 'debug_print("{:.2f}", x)'),
        traced('ts.debug_print("{:.2f}", x.sum())\nreturn x'),
    ),
    "the length of a scalar": Mistake(
        returns("len(x.sum())"), ("a scalar has no length", "`x.size` is 1"), returns("x.size")
    ),
    "item of a float": Mistake(
        returns("p.item() * 2", "2.5", "p"), ("it is a Python float", "used as it is"), returns("p * 2", "2.5", "p")
    ),
    "an array of several": Mistake(
        returns("np.array([x.sum(), x.max()])"), ("NumPy needs the value", "ts.ops.stack([x.sum(), x.max()])")
    ),
    "our array of several": Mistake(returns("ts.array([x.sum(), x.max()])"), ("ts.ops.stack([x.sum(), x.max()])",)),
    "a scalar of NumPy": Mistake(returns("np.float32(x.sum())"), ("x.sum().cast(f32)",)),
    "dot of NumPy": Mistake(returns("np.dot(x, x)"), ("NumPy needs the value", "ts.ops.matmul(x, x)")),
    "a traced size": Mistake(
        returns("ts.ops.zeros((n,))", "I", "n"),
        ("a size must be known while tracing", "Python int"),
        returns("ts.ops.zeros((n,))", "3", "n"),
    ),
    # symbolic dims
    "while on a size": Mistake(
        traced("n = x.shape[0]\nwhile n > 1:\n    n = n // 2\nreturn n", "X", SYMBOLIC),
        ("symbolic dim", "n = ts.while_loop(lambda n: n > 1, lambda n: n // 2, n)"),
    ),
    "if on a size": Mistake(
        traced("if x.shape[0] > 3:\n    return x\nreturn -x", "X", SYMBOLIC),
        ("ts.cond(x.shape[0] > 3, then, otherwise, x)", "a number in the annotation"),
        returns("ts.cond(x.shape[0] > 3, lambda x: x, lambda x: -x, x)", "X", SYMBOLIC),
    ),
    "a conditional expression on a size": Mistake(
        returns("-x if x.shape[0] > 3 else x", "X", SYMBOLIC), ("ts.ops.where(x.shape[0] > 3, -x, x)",)
    ),
    "int of a size": Mistake(returns("x * int(x.shape[0])", "X", SYMBOLIC), ("x * x.shape[0]",)),
    "float of a size": Mistake(returns("x * float(x.shape[0])", "X", SYMBOLIC), ("x * x.shape[0]",)),
    "a root of a size": Mistake(
        "import math\n" + returns("x / math.sqrt(x.shape[0])", "X", SYMBOLIC),
        ("ts.ops.sqrt(ts.ops.cast(x.shape[0], f32))",),
    ),
    "NumPy's root of a size": Mistake(
        returns("x / np.sqrt(x.shape[0])", "X", SYMBOLIC), ("ts.ops.sqrt(ts.ops.cast(x.shape[0], f32))",)
    ),
    "a power of a size": Mistake(
        returns("x / x.shape[0] ** 0.5", "X", SYMBOLIC), ("x / ts.ops.cast(x.shape[0], f32) ** 0.5",)
    ),
    "arange of NumPy": Mistake(returns("np.arange(x.shape[0])", "X", SYMBOLIC), ("ts.ops.arange(x.shape[0])",)),
    "max of sizes": Mistake(returns("max(x.shape[0], 3)", "X", SYMBOLIC), ("ts.ops.maximum(x.shape[0], 3)",)),
    "a format of a size": Mistake(
        returns('f"{x.shape[0]:d}"', "X", SYMBOLIC),
        ("cannot be formatted with `:d`", "without a format"),
        returns("x", "X", SYMBOLIC),
    ),
    # slices and assignments
    "a slice": Mistake(
        returns("x[i:i + 2]", "X, I", "x, i"), ("a slice needs the value", "ts.ops.dynamic_slice(x, (i,), (2,))")
    ),
    "a slice of rows": Mistake(
        returns("x[i:i + 2, :]", "M, I", "x, i"), ("ts.ops.dynamic_slice(x, (i, 0), (2, x.shape[1]))",)
    ),
    "an assignment": Mistake(traced("x[0] = 1.0\nreturn x"), ("tensors do not change", "x = x.at[0].set(1.0)")),
    "an addition to an element": Mistake(
        traced("x[0] += 2\nreturn x"), ("tensors do not change", "x = x.at[0].add(2)")
    ),
    "an assignment by a mask": Mistake(traced("x[x < 0] = 0\nreturn x"), ("x = ts.ops.where(x < 0, 0, x)",)),
    "an eager assignment": Mistake(
        "x = ts.ones((3,))\nx[0] = 2.0\n", ("tensors do not change", "x = x.at[0].set(2.0)")
    ),
    "an eager addition": Mistake("x = ts.ones((3, 4))\nx[0, 1] += 2\n", ("x = x.at[0, 1].add(2)",)),
    "a subtraction from an element": Mistake(traced("x[0] -= 1\nreturn x"), ("x = x.at[0].set(x[0] - 1)",)),
    "a quotient of an element": Mistake(traced("x[0] /= 1 + 1\nreturn x"), ("x = x.at[0].set(x[0] / (1 + 1))",)),
    "two targets": Mistake(
        traced("x[:, 0], y = x[:, 1], 3\nreturn x * y", "M"), ("x, y = x.at[:, 0].set(x[:, 1]), 3",)
    ),
    "a swap": Mistake(traced("x[0], x[1] = x[1], x[0]\nreturn x"), ("x = x.at[0].set(x[1]).at[1].set(x[0])",)),
    "targets of a call": Mistake(
        traced("x[0], y = divmod(7, 2)\nreturn x * y"),
        ("value, y = divmod(7, 2); x = x.at[0].set(value)",),
    ),
    "an index that the statement binds": Mistake(
        traced("i, x[i] = 1, 2\nreturn x"), ("i, value = 1, 2; x = x.at[i].set(value)",)
    ),
    "a chain of targets": Mistake(
        traced("x[0] = x[1] = 3\nreturn x"),
        ("value = 3; x = x.at[0].set(value); x = x.at[1].set(value)",),
    ),
    "an item of a dict": Mistake(traced('d["w"][0] = 1\nreturn d', '{"w": X}', "d"), ('d["w"] = d["w"].at[0].set(1)',)),
    "an item of a tuple": Mistake(
        traced("p[1][0] = 1\nreturn p", "(X, X)", "p"), ("p = (*p[:1], p[1].at[0].set(1), *p[1 + 1 :])",)
    ),
    "an item of a list": Mistake(traced("p[1][0] = 1\nreturn p", "[X, X]", "p"), ("p[1] = p[1].at[0].set(1)",)),
    "a row of a row": Mistake(
        traced("x[i][j] = v\nreturn x", "M, 1, 2, 3.0", "x, i, j, v"), ("x = x.at[i, j].set(v)",)
    ),
    "a row of a slice": Mistake(
        traced("x[:, 1:][0] = 3\nreturn x", "M"), ("x = x.at[:, 1:].set(x[:, 1:].at[0].set(3))",)
    ),
    "a column": Mistake(traced("x.T[0] = 3\nreturn x", "M"), ("x = x.T.at[0].set(3).T",)),
    "a field": Mistake(
        "from types import SimpleNamespace\np = SimpleNamespace(w=ts.ones((3,)))\np.w[0] = 1\n",
        ("p.w = p.w.at[0].set(1)",),
    ),
    "a field of a named tuple": Mistake(
        "from typing import NamedTuple, Any\nclass P(NamedTuple):\n    w: Any\n"
        + traced("p.w[0] = 1\nreturn p", "P(X)", "p"),
        ("p = p._replace(w=p.w.at[0].set(1))",),
    ),
    "a field of a frozen class": Mistake(
        "import dataclasses\nfrom typing import Any\n@dataclasses.dataclass(frozen=True)\nclass P:\n    w: Any\n"
        + traced("p.w[0] = 1\nreturn p", "P(X)", "p"),
        ("p = dataclasses.replace(p, w=p.w.at[0].set(1))",),
    ),
    "what is captured": Mistake(
        "from types import SimpleNamespace\np = SimpleNamespace(w=ts.ones((4,)))\n"
        + traced("p.w[0] = 1\nreturn x + p.w"),
        ("write `w = p.w.at[0].set(1)`, and use `w` from there on",),
        "from types import SimpleNamespace\np = SimpleNamespace(w=ts.ones((4,)))\n"
        + traced("w = p.w.at[0].set(1)\nreturn x + w"),
    ),
    "a captured name": Mistake(
        "W = ts.ones((4,))\n" + traced("W[0] = 1\nreturn x + W"),
        ("write `new = W.at[0].set(1)`, and use `new` from there on",),
        "W = ts.ones((4,))\n" + traced("new = W.at[0].set(1)\nreturn x + new"),
    ),
    "the target of a loop": Mistake(
        traced("for x[0] in (1, 2):\n    pass\nreturn x"),
        ("bind a name", "`x = x.at[0].set(value)`"),
        traced("for value in (1, 2):\n    x = x.at[0].set(value)\nreturn x"),
    ),
    "a mask that is a name": Mistake(traced("x[m] = 0\nreturn x", "M, M > 0", "x, m"), ("x = ts.ops.where(m, 0, x)",)),
    "a mask of rows": Mistake(
        traced("x[m] += 1\nreturn x", "M, M[:, 0] > 0", "x, m"), ("x = ts.ops.where(m[..., None], x + 1, x)",)
    ),
    "a deletion": Mistake(traced("del x[0]\nreturn x"), ("this deletes elements", "x = x[1:]")),
    "a deletion in the middle": Mistake(traced("del x[1]\nreturn x"), ("x = ts.ops.concat([x[:1], x[2:]])",)),
    "an eager deletion": Mistake("x = ts.ones((4, 2))\ndel x[-1]\n", ("x = x[:-1]",)),
    "an index out of range": Mistake(returns("x[4]"), ("index 4 is out of range", "indices are -4..3")),
    "a mask as an index": Mistake(returns("x[x > 0]"), ("a mask cannot be an index", "ts.ops.where(x > 0, x, 0)")),
    # NumPy and other libraries
    "a function of torch": Mistake(
        "import torch\n" + returns("torch.relu(x)"), ("PyTorch needs the value", "ts.ops.relu(x)")
    ),
    "a function of torch.nn": Mistake("import torch\n" + returns("torch.nn.functional.gelu(x)"), ("ts.ops.gelu(x)",)),
    "a function of torch by another name": Mistake(
        "import torch\n" + returns("torch.cat([x, x])"), ("PyTorch needs the value", "ts.ops.concat([x, x])")
    ),
    "a tensor of torch": Mistake(
        "import torch\n" + returns("torch.tensor(x)"),
        ("another library needs the value", "outside of the traced function"),
        "import torch\n" + returns("x") + "torch.tensor(np.asarray(f(X)))\n",
    ),
    "NumPy": Mistake(returns("np.tanh(x)"), ("NumPy needs the value", "ts.ops.tanh(x)")),
    "NumPy of an array": Mistake(returns("np.tanh(np.asarray(x))"), ("ts.ops.tanh(x)",)),
    "an array": Mistake(returns("np.asarray(x)"), ("NumPy needs the value",)),
    "zeros of NumPy": Mistake(
        returns("x + np.zeros(x.shape)", "X", SYMBOLIC), ("symbolic dim", "ts.ops.zeros(x.shape)")
    ),
    "a misspelt function": Mistake(
        returns("ts.ops.sofmax(x)"), ("did you mean `tessera.ops.softmax`?",), returns("ts.ops.softmax(x)")
    ),
    "randn": Mistake(
        "ts.randn(2, 3)\n",
        ("`tessera.random.normal(key, (2, 3))`", "`key = tessera.random.key(0)`"),
        "key = ts.random.key(0)\nts.random.normal(key, (2, 3))\n",
    ),
    "linear": Mistake(
        "ts.ops.linear(np.ones((2, 3)), np.ones((4, 3)))\n",
        ("`tessera.ops.matmul(x, weight.T) + bias`",),
        "ts.ops.matmul(np.ones((2, 3)), np.ones((4, 3)).T) + np.ones(4)\n",
    ),
    "no_grad": Mistake(
        "with ts.no_grad():\n    ts.ones((2,))\n", ("nothing to switch off: remove it",), "ts.ones((2,))\n"
    ),
    "a dtype of another library": Mistake(
        "ts.ones((2,), ts.float32)\n", ("write `tessera.f32`",), "ts.ones((2,), ts.f32)\n"
    ),
    "tensor": Mistake("ts.tensor([1.0])\n", ("write `tessera.array(values)`",), "ts.array([1.0])\n"),
    "softmax at the front": Mistake(
        "ts.softmax(ts.ones((2,)))\n", ("`tessera.ops.softmax`",), "ts.ops.softmax(ts.ones((2,)))\n"
    ),
    "view": Mistake("ts.ones((2, 3)).view(6)\n", ("`x.reshape(...)`",), "ts.ones((2, 3)).reshape(6)\n"),
    "dim for axis": Mistake(
        "ts.ops.softmax(ts.ones((2, 3)), dim=0)\n",
        ("unexpected argument `dim`", "`axis=0`"),
        "ts.ops.softmax(ts.ones((2, 3)), axis=0)\n",
    ),
    # shapes
    "a product": Mistake(returns("M @ x", "X"), ("the inner dimensions", "3", "4"), returns("x @ M")),
    "a transposed weight": Mistake(
        returns("x @ w", "np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)", "x, w"),
        ("cannot multiply", "transpose `w`"),
    ),
    "a transposed weight under names": Mistake(
        returns(
            "x @ w",
            "np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)",
            'x: Tensor["B", "D", f32], w: Tensor["D", "H", f32]',
        ),
        ("both are `D`: `w` fits transposed", "transpose it"),
    ),
    "a transposed weight under numbers": Mistake(
        returns(
            "x @ w",
            "np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)",
            'x: Tensor["B", 4, f32], w: Tensor[4, 3, f32]',
        ),
        ("`w.shape[0]` must be 4, got 3: it fits transposed", "transpose it"),
    ),
    "two sizes of one name": Mistake(
        returns("x + y", "np.ones(2, np.float32), np.ones(3, np.float32)", 'x: Tensor["B", f32], y: Tensor["B", f32]'),
        ("both are `B`", "pass tensors of one size there"),
        returns("x + y", "np.ones(3, np.float32), np.ones(3, np.float32)", 'x: Tensor["B", f32], y: Tensor["B", f32]'),
    ),
    "a broadcast": Mistake(returns("x + M"), ("cannot broadcast [4] with [4, 3]", "[4, 1]")),
    "an axis": Mistake(returns("x.sum(axis=1)"), ("has no axis 1", "axes are -1..0")),
    "sizes one by one of a reshape": Mistake(
        "ts.ops.reshape(ts.ones((2, 3)), 3, 2)\n",
        ("pass sizes as one shape, as in `(3, 2)`",),
        "ts.ops.reshape(ts.ones((2, 3)), (3, 2))\n",
    ),
    "steps of a fraction": Mistake(
        "ts.ops.arange(0, 1, 0.1)\n",
        ("`arange` takes integers", "tessera.ops.arange(10) * 0.1", "tessera.ops.linspace(0.0, 1.0, 11)"),
        "ts.ops.arange(10) * 0.1\nts.ops.linspace(0.0, 1.0, 11)\n",
    ),
    "a scan that returns no pair": Mistake(
        "ts.scan(lambda c, x: c + x, 0.0, ts.ones((3,)))\n",
        ("must return (state, y)", "lambda state, x: (state + x, state)"),
        "ts.scan(lambda state, x: (state + x, state), 0.0, ts.ones((3,)))\n",
    ),
    "sizes one by one": Mistake("ts.zeros(2, 3)\n", ("pass sizes as one shape, as in `(2, 3)`",), "ts.zeros((2, 3))\n"),
    "sizes that fitted before": Mistake(
        "ts.ones((2, 3)) @ ts.ones((3, 2))\nts.ones((2, 5)) @ ts.ones((3, 2))\n",
        ("cannot multiply [2, 5] by [3, 2]",),
        "ts.ones((2, 5)) @ ts.ones((5, 2))\n",
    ),
    "a sum that fitted before": Mistake(
        "ts.ones((2, 3)) + ts.ones((3,))\nts.ones((2, 3)) + ts.ones((4,))\n",
        ("cannot broadcast [2, 3] with [4]",),
        "ts.ones((2, 3)) + ts.ones((3,))\n",
    ),
    # calls
    "too many arguments": Mistake(
        returns("x", "X, X"), ("too many positional arguments", "its parameters are `x`"), returns("x")
    ),
    "a missing argument": Mistake(returns("x", ""), ("missing a required argument: `x`",), returns("x")),
    "a branch without parameters": Mistake(
        returns("ts.cond(x.sum() > 0, lambda: x, lambda y: -y, x)"),
        ("`<lambda>()` is called with 1 argument", "give it 1 parameter"),
        returns("ts.cond(x.sum() > 0, lambda y: y, lambda y: -y, x)"),
    ),
    "nothing returned": Mistake(traced("x * 2"), ("returns nothing", "`return` the tensors"), returns("x * 2")),
    "a leaked tracer": Mistake(
        "KEPT = []\n" + traced("KEPT.append(x * 2)\nreturn x") + "KEPT[0] + 1\n",
        ("leaked tracer", "return the tensor from the function"),
        returns("(x, x * 2)"),
    ),
    "an unknown option": Mistake(
        "ts.jit(lambda x: x, bakend='cpu')\n",
        ("there is no option `bakend`", "backend"),
        "ts.jit(lambda x: x, backend='cpu')\n",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_and_the_answer_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mistake = MISTAKES[name]
    with pytest.raises((TesseraError, AttributeError)) as caught:
        run(mistake.program, tmp_path)
    message = str(caught.value)
    for words in mistake.words:
        assert words in message, message
    fixed = mistake.fixed
    if fixed is None:
        assert isinstance(caught.value, TesseraError)
        assert caught.value.fix is not None
        assert caught.value.fix.span is not None, message
        fixed = caught.value.fix.apply(PRELUDE + mistake.program).removeprefix(PRELUDE)
    run(fixed, tmp_path)


@pytest.mark.parametrize(
    ("statement", "words"),
    {
        "x[0, 1] += 2": "as in `x = x.at[0, 1].set(value)`",
        "x[:2, ::3] = 2": "as in `x = x.at[:2, ::3].set(value)`",
        "x[..., None, -1] = 2": "as in `x = x.at[..., None, -1].set(value)`",
        "x[[1, 2]] = 2": "as in `x = x.at[index].set(value)`",
        "del x[0]": "as in `x = tessera.ops.concat([x[:i], x[i + 1 :]])`",
    }.items(),
)
def test_without_source_an_assignment_is_answered_by_its_index(statement: str, words: str) -> None:
    with pytest.raises(TesseraError, match=re.escape(words)):
        exec(compile(statement, "<no source>", "exec"), {"x": ts.ones((3, 4))})


PROMPT = {
    "ts.ops.matmul(ts.ones((2, 3)), ts.ones((4, 5)))": "of the first operand and `shape[0] = 4` of the second",
    "ts.ones((2, 3)) + ts.ones((4,))": "= note: the second operand of `add` is [4] f32",
    "ts.ops.where(ts.ones((3,)) > 0, 1.0, ts.ones((4,)))": "the first operand of `where`, `condition`, is [3] bool",
    "ts.ops.stack([ts.ones((2, 3)), ts.ones((2, 4))])": "`shape[1] = 3` of the first operand",
    "ts.ops.rmsnorm(ts.ones((2, 3)), ts.ones((4,)))": "`rmsnorm` of [2, 3] needs a `weight` of [3]",
    "ts.ones((2,)) & ts.ones((2,))": "got the first operand of f32",
    "ts.jit(lambda p, q: p @ q)(ts.ones((2, 3)), ts.ones((4, 5)))": "`p.shape[1] = 3` and `q.shape[0] = 4` differ",
    "ts.jit(lambda p, q: (p * 2) @ q)(ts.ones((2, 3)), ts.ones((4, 5)))": "of the first operand and `q.shape[0]",
}


@pytest.mark.parametrize(("statement", "words"), PROMPT.items())
def test_without_source_operands_are_named_by_position(statement: str, words: str) -> None:
    """The names of an op's parameters are not the user's, who may have an `x` that is something else."""
    with pytest.raises(TesseraError) as caught:
        exec(compile(statement, "<no source>", "exec"), {"ts": ts})
    message = str(caught.value)
    assert words in message, message
    assert re.search(r"`[abxy]\b[`.]|_0`|_1`", message.replace("as in `x.cast", "")) is None, message


def test_there_are_sixty() -> None:
    assert len(MISTAKES) >= 60
