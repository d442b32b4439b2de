"""Writes docs/api/, the reference of every public name, from the live objects and the examples of api_examples.py.

Usage: python scripts/api_reference.py [--check]

An entry has a signature and a summary (from the object), shapes and dtypes (found by tracing its example with
symbolic dims and with every dtype), where it runs (from the declarations of the IR ops that the example records),
and an example with what it printed when the page was made.
"""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tessera as ts
from scripts.api_examples import KERNEL, METHODS, ON_A_GPU, OPS, PROGRAMS, TILE, WITH_TORCH
from scripts.api_facts import Runner, facts_of, kernel_facts, runner, with_values
from tessera import tile

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "api"
MODULES = {
    "ops": "tessera.ops",
    "epilogue": "tessera.ops.epilogue",
    "tile": "tessera.tile",
    "cuda": "tessera.cuda",
    "dist": "tessera.dist",
    "autotune": "tessera.autotune",
    "effects": "tessera.effects",
    "graph": "tessera.graph",
    "profile": "tessera.profile",
    "nn": "tessera.nn",
    "optim": "tessera.optim",
    "data": "tessera.data",
    "train": "tessera.train",
    "random": "tessera.random",
    "linalg": "tessera.linalg",
    "verify": "tessera.verify",
    "stdlib": "tessera.stdlib",
    "interop": "tessera.interop.torch",
}
"""The page of every public module; `tessera` itself has three: functions, classes, tensor."""

ALIASES = {
    "tessera.op": "another name of `tessera.ops`",
    "tessera.xp": "the [array API standard](../guide/array-api.md): functions of `tessera.ops` under its names",
}
ENTRY = re.compile(r"^## (\w+)$|^\| `(\w+)` \|", re.MULTILINE)
NOTE = "<!-- Made by scripts/api_reference.py; change the docstring or scripts/api_examples.py, not this page. -->"


@dataclass(frozen=True)
class Entry:
    """A public name: the module it is in, itself, and the object."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def shown(self) -> str:
        """How users write it."""
        return self.path.replace("tessera", "ts", 1) if "interop" not in self.module else self.path

    @property
    def summary(self) -> str:
        return summary_of(self.value)


def public_names(module: ModuleType) -> list[str]:
    """The names of `__all__`, or without one those that the module defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    own = module.__name__
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (getattr(value, "__module__", None) == own or name.isupper())
    )


def find_module(name: str) -> ModuleType:
    """A public module; `tessera.ops.epilogue` is an attribute and no file."""
    parent, _, last = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(parent), last)


def entries(module_name: str) -> list[Entry]:
    """Every public name of a module."""
    module = find_module(module_name)
    names = _tile_names() if module_name == "tessera.tile" else public_names(module)
    return [Entry(module_name, name, getattr(module, name)) for name in names]


def _tile_names() -> list[str]:
    """The kernel language is a star import: what the module has beside what every module has."""
    return sorted(name for name in vars(tile) if not name.startswith("_") and name != "annotations")


def pages() -> dict[str, list[Entry]]:
    """The entries of every page."""
    found = {page: entries(module) for page, module in MODULES.items()}
    top = [entry for entry in entries("tessera") if not isinstance(entry.value, ModuleType)]
    found["classes"] = [e for e in top if inspect.isclass(e.value) and e.name != "Tensor"]
    found["functions"] = [e for e in top if not inspect.isclass(e.value)]
    found["tensor"] = [Entry("tessera.Tensor", name, getattr(ts.Tensor, name)) for name in members_of(ts.Tensor)]
    return found


def public_modules() -> list[str]:
    """The modules among the names of `tessera` itself."""
    return [entry.name for entry in entries("tessera") if isinstance(entry.value, ModuleType)]


def members_of(kind: type) -> list[str]:
    """Public members of a class but those of Python's own classes, whose docstrings every version of it words anew."""
    own = [base for base in kind.__mro__ if base.__module__ != "builtins"]
    return sorted({name for base in own for name in vars(base) if not name.startswith("_")})


def documented(text: str) -> set[str]:
    """The names that a page has an entry for."""
    return {first or second for first, second in ENTRY.findall(text)}


def summary_of(value: Any) -> str:
    """The first paragraph of a docstring, on one line; a mapping has none of its own."""
    if isinstance(value, Mapping):
        return f"A table of {len(value)} names."  # pyright: ignore[reportUnknownArgumentType]
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def signature_of(value: Any, *, skip_first: bool = False, breaks: bool = False) -> str:
    """The parameters as users write them: annotations without quotes, and none that only say `Any`."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    shown: list[str] = []
    star = False
    parameters = list(signature.parameters.values())[1 if skip_first else 0 :]
    for index, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            shown.append("*")
        star = star or one.kind is one.VAR_POSITIONAL
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        text = prefix + one.name + _annotation(one.annotation)
        default = "" if one.default is one.empty else re.sub(r"<function (\w+) at 0x\w+>", r"\1", _default(one))
        shown.append(text + default)
        following = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if one.kind is one.POSITIONAL_ONLY and following is not one.POSITIONAL_ONLY:
            shown.append("/")
    result = _annotation(signature.return_annotation)[2:]
    # The formatter leaves parameters with annotations alone.
    is_long = breaks and ": " in "".join(shown) and sum(map(len, shown)) > 90
    inner = ",\n    ".join(["(\n    " + shown[0], *shown[1:]]) + ",\n)" if is_long else f"({', '.join(shown)})"
    return inner + (f" -> {result}" if result not in ("", "None", "NoReturn") else "")


def _annotation(value: Any) -> str:
    if value is inspect.Parameter.empty or value in ("Any", Any):
        return ""
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    return f": {text}"


def _default(parameter: inspect.Parameter) -> str:
    space = " = " if _annotation(parameter.annotation) else "="
    return f"{space}{parameter.default!r}"


def body_of(value: Any) -> list[str]:
    """What a docstring says after its summary, with its examples as code."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")[1:]
    lines: list[str] = []
    for paragraph in paragraphs:
        text = textwrap.dedent(paragraph)
        lines += ["```pycon", text, "```", ""] if text.lstrip().startswith(">>>") else [_section(text), ""]
    return lines


def _section(text: str) -> str:
    """A paragraph of a docstring; `Args:` and its like become a list."""
    head, _, rest = text.partition("\n")
    if not head.endswith(":") or not rest.startswith("    "):
        return text
    items = textwrap.dedent(rest).split("\n")
    return "\n".join([f"**{head}**", "", *(f"- {item}" if not item.startswith(" ") else f"  {item}" for item in items)])


def call_of(entry: Entry) -> str:
    """The call of an op that its entry shows: the one in `OPS`, else one with a tensor for each operand."""
    if entry.name in OPS:
        return OPS[entry.name]
    parameters = inspect.signature(entry.value).parameters.values()
    needed = sum(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)
    if needed not in (1, 2):
        raise SystemExit(f"no example calls `ts.ops.{entry.name}`: add it to OPS in scripts/api_examples.py")
    return f"ts.ops.{entry.name}({'s' if needed == 1 else 'x, y'})"


def program_of(entry: Entry) -> str | None:
    """The example of a name; None where its docstring has one, or it has none."""
    if entry.path in PROGRAMS:
        return with_values(PROGRAMS[entry.path])
    if entry.module == "tessera.ops":
        return with_values(call_of(entry))
    if entry.module == "tessera.Tensor":
        return with_values(METHODS.get(entry.name, f"x.{entry.name}()"))
    if entry.module == "tessera.tile":
        body = TILE.get(entry.name, f"tile.{entry.name}(a)")
        return with_values(KERNEL.format(body=body) + "\nf(x)")
    return None


def render_entry(entry: Entry, run: Runner) -> list[str]:
    """One entry: signature, what it does, facts, example."""
    signature = signature_of(entry.value, breaks=True) if callable(entry.value) else ""
    lines = [f"## {entry.name}", "", "```python", f"{entry.shown}{signature}", "```", "", _sentence(entry), ""]
    if callable(entry.value) or inspect.isclass(entry.value):
        examples_elsewhere = program_of(entry) is not None
        body = body_of(entry.value)
        lines += _without_examples(body) if examples_elsewhere else body
    facts = _facts(entry, run)
    lines += [*facts, ""] if facts else []
    lines += _example(entry, run)
    if inspect.isclass(entry.value):
        lines += _member_table(entry.value)
    return lines


def _facts(entry: Entry, run: Runner) -> list[str]:
    """Shapes, dtypes and machines, where an example is one expression that can be traced."""
    if entry.module == "tessera.ops":
        return facts_of(call_of(entry), entry.value)
    if entry.module == "tessera.random" and "\n" not in PROGRAMS.get(entry.path, "\n"):
        return facts_of(PROGRAMS[entry.path])
    if entry.module == "tessera.tile" and entry.path not in PROGRAMS:
        kernel = KERNEL.format(body=TILE.get(entry.name, f"tile.{entry.name}(a)"))
        return kernel_facts(run.run(kernel.replace(", ts.f32]", "]"))[1]["f"])
    return []


def _sentence(entry: Entry) -> str:
    if callable(entry.value) or inspect.isclass(entry.value):
        return entry.summary
    summary = CONSTANTS.get(entry.path, entry.summary)
    is_plain = not isinstance(entry.value, ModuleType) and " at 0x" not in repr(entry.value)
    return f"`{entry.value!r}`. {summary}" if is_plain else summary


CONSTANTS = {
    "tessera.flush_denormals": "A policy: operands and results below the smallest normal number become zero.",
    "tessera.keep_denormals": "A policy: denormals are kept, which is the default.",
    "tessera.round_nearest_even": "A policy: round to nearest, ties to even, which is the default.",
    "tessera.round_toward_zero": "A policy: round toward zero.",
    "tessera.stochastic_round": "A policy: round up or down at random, with the expected value kept.",
    "tessera.saturate": "A policy: what is beyond the largest number of a format becomes that number.",
    "tessera.wrap": "A policy: integers wrap modulo `2**bits`.",
    "tessera.cpu": "The CPU, as a device of `ts.device`.",
    "tessera.autotune.cache": "Plans that are kept: `store(best)`, `lookup(signature)` and `clear()`.",
    "tessera.effects.ALL": "Every effect: what an unknown op has.",
    "tessera.effects.KINDS": "The five kinds of effects.",
    "tessera.effects.PURE": "No effect.",
    "tessera.tile.INF": "Infinity, for masks and identities of min/max.",
    "tessera.cuda.POOL": "The memory pool of the device.",
    "tessera.ops.epilogue.ACTIVATIONS": "The names that `act` takes.",
}
"""Summaries of constants, whose own docstring is that of their class."""


def _without_examples(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    left = re.sub(r"```pycon\n.*?\n```\n\n?", "", text, flags=re.DOTALL).strip("\n").splitlines()
    return [*left, ""] if left else []


def _example(entry: Entry, run: Runner) -> list[str]:
    if entry.module == "tessera.cuda" and entry.name in ON_A_GPU:
        return ["On a GPU, with a jitted `f` and a tensor `x` there:", "", "```python", ON_A_GPU[entry.name], "```", ""]
    if entry.module == "tessera.interop.torch" and entry.name in WITH_TORCH:
        return ["With PyTorch installed:", "", "```python", WITH_TORCH[entry.name], "```", ""]
    program = program_of(entry)
    if program is None:
        return []
    printed, _ = run.run(program, entry.name)
    shown = ["```python", program, "```", ""]
    return [*shown, "```text", printed.rstrip("\n"), "```", ""] if printed.strip() else shown


def _member_table(kind: type) -> list[str]:
    """Methods and properties with their summaries; fields, which the class itself explains, by name."""
    rows: list[str] = []
    silent: list[str] = []
    for name in members_of(kind):
        value = inspect.getattr_static(kind, name)
        plain = getattr(kind, name)
        summary = summary_of(plain) if callable(plain) or isinstance(value, property) else ""
        if not summary:
            silent.append(f"`{name}`")
            continue
        form = f".{name}" + (signature_of(plain, skip_first=inspect.isfunction(value)) if callable(plain) else "")
        rows.append(f"| `{_cell(form)}` | {_cell(summary)} |")
    table = ["| member | |", "|---|---|", *rows, ""] if rows else []
    return [*table, f"Also: {', '.join(silent)}.", ""] if silent else table


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render_tensor(members: list[Entry], run: Runner) -> list[str]:
    """The methods of `Tensor`; those that are functions of `ts.ops` say so."""
    lines = ["# Tensor", "", NOTE, "", summary_of(ts.Tensor), "", *body_of(ts.Tensor)]
    lines += ["Operators (`+ - * / // % ** @ < == & | ^ ~ << >> x[...]`) are the functions of [ts.ops](ops.md).", ""]
    for entry in members:
        lines += [f"## {entry.name}", ""]
        same = {"clip": "clamp"}.get(entry.name, entry.name)
        delegates = "arguments" in signature_of(entry.value) if callable(entry.value) else False
        if delegates and same in ts.ops.__all__:
            function = getattr(ts.ops, same)
            form = f"x.{entry.name}{signature_of(function, skip_first=True)}"
            lines += ["```python", form, "```", "", f"{summary_of(function)} [`ts.ops.{same}`](ops.md#{same})", ""]
        else:
            is_method = inspect.isfunction(inspect.getattr_static(ts.Tensor, entry.name))
            form = signature_of(entry.value, skip_first=is_method) if callable(entry.value) else ""
            owner = "x" if is_method or not callable(entry.value) else "ts.Tensor"
            lines += ["```python", f"{owner}.{entry.name}{form}", "```", "", entry.summary, ""]
        lines += _example(entry, run)
    return lines


def render_dtypes(members: list[Entry]) -> list[str]:
    """The element types as one table."""
    lines = [
        "## Element types",
        "",
        "| name | kind | bits | exponent | mantissa | computes in |",
        "|---|---|---|---|---|---|",
    ]
    for entry in members:
        kind = entry.value
        cells = (kind.kind, kind.bits, kind.exponent or "", kind.mantissa or "", f"`{kind.compute}`")
        lines.append(f"| `{entry.name}` | {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def render(page: str, members: list[Entry], run: Runner) -> str:
    """A page as text."""
    if page == "tensor":
        return "\n".join(render_tensor(members, run))
    titles = {"functions": "ts: functions and values", "classes": "ts: classes"}
    module = MODULES.get(page, "tessera")
    title = titles.get(page, module.replace("tessera.", "ts.", 1) if page != "interop" else module)
    lines = [f"# {title}", "", NOTE, ""]
    if page in MODULES:
        lines += [summary_of(find_module(module)), ""]
    if page == "tile":
        lines += [
            "Examples call their kernel with `x`; every function runs on CPU, on NVIDIA GPUs and in the interpreter.",
            "",
        ]
    plain = [e for e in members if not isinstance(e.value, ts.DType)]
    lines += [" · ".join(f"[{name}](#{anchor})" for name, anchor in _anchors(plain)), ""]
    element_types = [e for e in members if isinstance(e.value, ts.DType)]
    lines += render_dtypes(element_types) if element_types else []
    for entry in plain:
        lines += render_entry(entry, run)
    return "\n".join(lines)


def _anchors(members: list[Entry]) -> list[tuple[str, str]]:
    """The anchor of each entry; of two that differ in case alone the second one has a number."""
    taken: Counter[str] = Counter()
    found: list[tuple[str, str]] = []
    for entry in members:
        anchor = entry.name.lower()
        found.append((entry.name, f"{anchor}-{taken[anchor]}" if taken[anchor] else anchor))
        taken[anchor] += 1
    return found


def render_index(all_pages: dict[str, list[Entry]]) -> str:
    """The list of pages with all names."""
    lines = ["# API reference", "", NOTE, "", "`import tessera as ts`; names load when they are first used.", ""]
    order = ["functions", "classes", "tensor", *MODULES]
    for page in order:
        title = {"functions": "ts.*, functions and values", "classes": "ts.*, classes", "tensor": "Tensor"}.get(
            page, MODULES.get(page, "").replace("tessera.", "ts.", 1)
        )
        names = ", ".join(f"`{entry.name}`" for entry in all_pages[page])
        lines += [f"- [{title}]({page}.md): {names}"]
    lines += [f"- `{alias}` is {what}" for alias, what in ALIASES.items()]
    return "\n".join([*lines, ""])


def render_all() -> dict[Path, str]:
    """Every page of the reference; runs every example."""
    found = pages()
    texts = {FOLDER / "index.md": render_index(found)}
    with runner() as run:
        for page, members in found.items():
            texts[FOLDER / f"{page}.md"] = render(page, members, run).rstrip("\n") + "\n"
    return formatted(texts)


def formatted(texts: dict[Path, str]) -> dict[Path, str]:
    """The pages with their code as the formatter of the repository leaves it."""
    with tempfile.TemporaryDirectory() as folder:
        for file, text in texts.items():
            (Path(folder) / file.name).write_text(text, encoding="utf-8")
        settings = ["--config", str(ROOT / "pyproject.toml")]
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", *settings, folder], check=True)
        return {file: (Path(folder) / file.name).read_text(encoding="utf-8") for file in texts}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` only compare them."""
    texts = render_all()
    stale = [file for file, text in texts.items() if not file.is_file() or file.read_text(encoding="utf-8") != text]
    if arguments[:1] == ["--check"]:
        print("\n".join(f"{file.relative_to(ROOT)} is out of date" for file in stale) or f"{len(texts)} pages")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.md"):
        if file not in texts:
            file.unlink()
    for file in stale:
        file.write_text(texts[file], encoding="utf-8")
    print(f"{len(stale)} of {len(texts)} pages changed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
