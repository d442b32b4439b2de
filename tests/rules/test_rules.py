"""Rules of the code base that a machine can check; CONTRIBUTING.md says why they are rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tessera.diagnostics.codes import all_codes
from tessera.ir.base.passes import find_pass
from tests.rules.glossary import PROSE, findings, prose_findings

ROOT = Path(__file__).parents[2]
FOLDERS = ("tessera", "tests", "scripts", "examples", "benchmarks", "docs")
SHORTEST_FILE, LONGEST_FILE = 120, 700
MAY_BE_SHORT = ("__init__.py", "__main__.py", "dialect.py", "typed_ops.py", "pipeline.py", "manifest.py")
"""Package roots, and files that hold one list or one table."""
SHORT = {
    "tessera/api/auto_shard.py": "a public function, which loads the compiler where it is called",
    "tessera/api/function.py": "a decorator of its own, for those who want the source too",
    "tessera/backends/nvptx/blackwell/lower.py": "what Blackwell lowers otherwise than Hopper",
    "tessera/backends/nvptx/types.py": "the types of a dialect",
    "tessera/frontend/complex/dispatch.py": "loaded with all functions, the table only where an argument is complex",
    "tessera/frontend/complex/table.py": "one table",
    "tessera/frontend/epilogue.py": "a public namespace, `ops.epilogue`",
    "tessera/frontend/functions/complex_numbers.py": "a family of public functions",
    "tessera/frontend/functions/elementwise.py": "a family of public functions beside the table's",
    "tessera/frontend/functions/public.py": "a facade, `tessera.ops`",
    "tessera/frontend/kernel/language.py": "a facade, `tessera.tile`",
    "tessera/ir/base/reproducers.py": "files of failures: who asks for a knob's class must not load `pathlib` for them",
    "tessera/ir/graph/samples.py": "samples, which only declarations of ops read",
    "tessera/ir/schedule/emit/short_rows.py": "one way to emit row kernels, beside `columns.py` and `runs.py`",
    "tessera/ir/tile/write_records.py": "writing needs xDSL, records do not",
    "tessera/nn/constructors.py": "what modules say to calls by sizes; `module.py` holds what they are",
    "tessera/runtime/devices/cuda/device.py": "one implementation of the protocol `Device`",
    "tessera/runtime/devices/host.py": "one implementation of the protocol `Device`",
    "tessera/runtime/run_record.py": "a file format, for users",
    "tessera/stdlib/tile_kernels.py": "kernels that users read as examples",
    "tessera/stdlib/operand_dims.py": "what all functions of the library ask of their operands",
    "tessera/types/complex_dtype.py": "values beside the element types, which the compiler does not know",
    "tessera/types/numerics.py": "the numbers of the recipes, which every stage reads",
    "tessera/types/frozen.py": "a decorator that everything imports",
    "tessera/xp/operands.py": "what all functions of the namespace ask of their operands",
}
"""Other short files of the package, and why each stands alone."""
LONGEST_FUNCTION = 60
VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "core", "manager", "managers", "stuff", "base_utils"}
# Split so that this file does not contain what it forbids.
FORBIDDEN = ("/" + "work/", "TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "sub" + "agent", "lorem " + "ipsum")
VAGUE_CLASS = VAGUE - {"common", "core"}  # words of the field: common subexpressions, cores of a CPU
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@lru_cache(maxsize=1)
def sources() -> dict[Path, str]:
    """Every Python file of the repository and its text."""
    files = (file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py")))
    return {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in files}


@lru_cache(maxsize=1)
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(text) for file, text in sources().items()}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def passes() -> list[Path]:
    """The file of every pass; its path is its name."""
    found = sorted((ROOT / "tessera").glob("*/*/passes/*.py"))
    return [file.relative_to(ROOT) for file in found if file.stem != "__init__"]


def pass_name(file: Path) -> str:
    """`tessera/backends/nvptx/passes/select_mma.py` is `tile-select-mma`."""
    return f"{file.parts[2]}-{file.stem}".replace("_", "-")


def may_be_short(file: Path) -> bool:
    """Facades, passes, op files, fusion rules, package roots and what a stub shows say one thing, however short."""
    is_facade = len(file.parts) == 2 or (ROOT / file).with_suffix(".pyi").exists()
    folders = {"passes", "ops", "fusion", "kinds", "architectures"} & set(file.parts[:-1])
    return is_facade or file.name in MAY_BE_SHORT or bool(folders) or file.as_posix() in SHORT


def test_no_file_is_longer_than_700_lines() -> None:
    lengths = {str(file): len(text.splitlines()) for file, text in sources().items()}
    assert {file: length for file, length in lengths.items() if length > LONGEST_FILE} == {}


def test_files_that_may_be_short_exist_and_are() -> None:
    lengths = {file.as_posix(): len(text.splitlines()) for file, text in sources().items()}
    assert [file for file in SHORT if lengths.get(file, LONGEST_FILE) >= SHORTEST_FILE] == []


def test_no_file_of_the_package_is_shorter_than_120_lines() -> None:
    files = {file: text for file, text in sources().items() if file.parts[0] == "tessera" and not may_be_short(file)}
    lengths = {str(file): len(text.splitlines()) for file, text in files.items()}
    assert {file: length for file, length in lengths.items() if length < SHORTEST_FILE} == {}


def test_names_and_prose_use_the_words_of_the_field() -> None:
    found = [str(finding) for finding in findings([ROOT / "tessera", ROOT / "docs", *ROOT.glob("*.md")])]
    assert found == []


EXAMPLES = (
    "Its way down", "matrix units", "the copy engine", "pairs of CTAs", "two tensor maps", "a free dim",
    "a running fold", "it spreads a row", "a turned operand", "two turns", "the left side", "both of its sides",
    "a loop written out", "brought ahead", "values handed on", "it lies along a row", "the last door", "an extreme",
    "computing again", "At once", "deeds", "a stand-in", "a team", "a queue", "a recording", "given up to a call",
    "spent arguments", "ranks speak with others", "the processor", "no place of the dim", "the places of a tile",
    "a whole number", "the cure", "NaN wins", "called with other arguments", "as it stands",
)  # fmt: skip


def test_a_word_that_nobody_searches_for_is_found_with_the_one_for_it() -> None:
    for (pattern, instead), example in zip(PROSE.items(), EXAMPLES, strict=True):
        found = [finding.instead for finding in prose_findings(Path("page.md"), iter([(1, example)]))]
        assert instead in found, f"{pattern}: {example}"


def test_measured_constants_say_where_they_come_from() -> None:
    silent: list[str] = []
    for file, tree in trees().items():
        if file.parts[:2] == ("tessera", "backends") or file.parts[:3] == ("tessera", "ir", "schedule"):
            silent += [f"{file}:{node.lineno}" for node in constants_without_a_word(sources()[file], tree)]
    assert silent == []


def constants_without_a_word(text: str, tree: ast.Module) -> Iterator[ast.stmt]:
    """Numbers of a module (`NAME = 96`) with neither a docstring behind them nor a comment before or beside them."""
    lines = text.splitlines()
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and is_number(node.value):
            documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            beside = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
            if not documented and not beside:
                yield node


def is_number(value: ast.expr) -> bool:
    """A number, or several, or arithmetic on them."""
    parts = [part for part in ast.walk(value) if isinstance(part, ast.expr)]
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple)
    numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, allowed) for part in parts) and all(type(n) in (int, float) for n in numbers)


def test_no_function_is_longer_than_60_lines() -> None:
    long: dict[str, int] = {}
    for file, tree in trees().items():
        for function in functions(tree):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > LONGEST_FUNCTION:
                long[f"{file}:{function.lineno} {function.name}"] = length
    assert long == {}


def test_every_file_opens_with_a_sentence_on_what_it_holds() -> None:
    silent: list[str] = []
    for file, tree in trees().items():
        opening = (ast.get_docstring(tree) or "").split("\n\n")[0].strip()
        if not opening.endswith((".", "`", ":")) and tree.body:
            silent.append(str(file))
    assert silent == []


def test_no_name_is_vague() -> None:
    vague = [str(file) for file in sources() if VAGUE & {part.lower() for part in (*file.parts[:-1], file.stem)}]
    for file, tree in trees().items():
        classes = (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        vague += [f"{file} {name}" for name in classes if VAGUE_CLASS & {word.lower() for word in WORD.findall(name)}]
    assert vague == []


def test_no_forbidden_word() -> None:
    texts = {str(file): text for file, text in sources().items()}
    for pattern in ("*.md", "docs/**/*.md", "changes/*.md", "tests/lit/**/*.mlir", "Makefile", "*.toml"):
        texts |= {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in ROOT.glob(pattern)}
    found = [f"{file}: {word}" for file, text in texts.items() for word in FORBIDDEN if word in text]
    assert found == []


def test_no_exception_is_swallowed() -> None:
    swallowed: list[str] = []
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and _is_silent(node):
                swallowed.append(f"{file}:{node.lineno}")
    assert swallowed == []


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Catches everything and does nothing about it."""
    catches_all = handler.type is None or (isinstance(handler.type, ast.Name) and "Exception" in handler.type.id)
    return catches_all and all(isinstance(statement, ast.Pass) for statement in handler.body)


@pytest.mark.parametrize("file", passes(), ids=pass_name)
def test_a_pass_is_named_by_its_path(file: Path) -> None:
    expected = "".join(word.capitalize() for word in file.stem.split("_"))
    names = [node.name for node in ast.parse(sources()[file]).body if isinstance(node, ast.ClassDef)]
    assert expected.lower() in {name.lower() for name in names}, f"{file} must define class {expected}"
    assert find_pass(pass_name(file)).__module__ == ".".join(file.with_suffix("").parts)


@pytest.mark.parametrize("file", passes(), ids=pass_name)
def test_a_pass_has_a_lit_test(file: Path) -> None:
    assert (ROOT / "tests" / "lit" / file.parts[2] / f"{file.stem}.mlir").is_file()


def test_every_error_code_has_a_page_and_every_page_a_code() -> None:
    # The pages hold failing programs that tests/diagnostics/test_pages.py runs: a page is a test.
    assert sorted(file.stem for file in (ROOT / "docs" / "errors").glob("T*.md")) == list(all_codes())


def test_every_stage_has_a_page() -> None:
    stages = {file.name for file in (ROOT / "tessera" / "ir").iterdir() if (file / "__init__.py").is_file()} - {"base"}
    assert stages == {file.stem for file in (ROOT / "docs" / "contributing" / "stages").glob("*.md")}


def test_every_change_fragment_is_one_short_sentence_or_two() -> None:
    long = [file.name for file in (ROOT / "changes").glob("*.md") if len(file.read_text(encoding="utf-8")) > 600]
    assert long == []
