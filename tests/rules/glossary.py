"""The field's words: what names and prose must not say, and what they say instead; run as a script it lists findings.

`python -m tests.rules.glossary [PATH ...]` prints each finding with its line. Names are looked at word by word
(`emit_fold` has the words emit and fold), prose is docstrings, comments and strings of Python files and whole
Markdown pages.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES: dict[str, str] = {
    "fold": "reduce (constant folding may say fold)",
    "folds": "reductions",
    "folded": "reduced",
    "spread": "broadcast",
    "turned": "transposed",
    "turns": "iterations",
    "turn": "iteration, or transpose",
    "sides": "operands",
    "side": "operand, lhs, rhs",
    "product": "dot, matmul, contraction",
    "products": "dots, matmuls, contractions",
    "sums": "accumulators, or reductions",
    "depth": "K",
    "brought": "prefetched",
    "ahead": "prefetch",
    "handed": "exchanged, shuffled",
    "again": "rematerialized, or say what",
    "said": "reasons",
    "team": "warps per row, warp group",
    "teams": "warp groups",
    "deed": "access",
    "deeds": "accesses",
    "meet": "synchronize, barrier",
    "meets": "synchronizes",
    "meeting": "barrier, rendezvous",
    "meetings": "barriers, rendezvous",
    "speak": "communicate",
    "speaks": "communicates",
    "extreme": "min/max",
    "extremes": "min/max",
    "powers": "exp, exp2",
    "queue": "stream",
    "queues": "streams",
    "recording": "CUDA graph, capture",
    "recordings": "CUDA graphs",
    "spent": "consumed",
    "cure": "fix, help",
    "processor": "CPU",
    "room": "stage, package",
    "rooms": "stages",
    "door": "exit verifier",
    "doors": "exit verifiers",
    "house": "project, package",
    "hall": "package",
    "way": "access pattern, kind, path",
    "ways": "patterns, kinds",
    "rest": "epilogue, remainder, tail",
    "rests": "remainders",
    "lies": "say what lies where: contiguous, stride",
    "tape": "",
}
STANDARD_NAMES = re.compile(
    r"fold_constants|FoldConstants|constant_fold|^_?fold$|fold_key"  # constants; random keys
    r"|_tape|tape_|Tape|^tape|side_by_side|^_?product$|ProductRule|_bound_products|two_product|^meet$|^depth$|^side$",
    re.IGNORECASE,
)
"""Names that have such a word in its standard meaning: of folding constants and keys, of the front end's tape, of an
error-free product, of a lattice, of nested calls, of one-hot vectors, and of a search in a sorted row."""
PUBLIC_ADJECTIVES = frozenset({"replicated", "ordered", "seeded", "scaled", "unscaled", "joined", "searchsorted"})
"""Words that users write for what something is, beside a type or as a promise."""
IRREGULAR = (
    "given told brought handed said spent shown taken kept found made written known seen done held built met sent"
    " chosen drawn grown broken spoken laid led lost paid thought won"
)
PARTICIPLES = frozenset(re.findall(r"\w+", IRREGULAR))
VERBS_IN_ED = frozenset({"need", "embed", "feed", "seed", "speed", "exceed", "proceed", "succeed"})
PROSE: dict[str, str] = {
    r"\bway(s)? down\b": "lowering",
    r"\bmatrix units?\b": "tensor cores, MMA",
    r"\bcopy engine\b": "TMA",
    r"\bpairs? of CTAs\b": "cluster",
    r"\btensor maps?\b": "TMA descriptor",
    r"\bfree (size|dim|width|row|sequence)s?\b": "dynamic dim, symbolic dim",
    r"\b(running fold|fold_place|folds?|folded|folding)\b": "reduce, reduction (constant folding is fine)",
    r"\bspread(s|ing)?\b": "broadcast",
    r"\bturned\b": "transposed",
    r"\bturns?\b(?! (off|on|out|into|it|them|this|that|a|an|the)\b)": "iteration, trip (or transpose)",
    r"\b(left|right) sides?\b": "lhs, rhs; A operand, B operand",
    r"\bsides\b": "operands",
    r"\bwritten out\b": "unrolled",
    r"\bbrought( ahead)?\b": "prefetched",
    r"\bhanded\b": "exchanged, shuffled",
    r"\blies? along\b": "contiguous in, stride-1 in",
    r"\b(rooms?|doors?|hall|house)\b": "stage, package, exit verifier",
    r"\bextremes?\b": "min/max",
    r"\bcomput(e|es|ed|ing) again\b": "rematerialize",
    r"\bat once\b": "eagerly, together",
    r"\b(deeds?|meetings?)\b": "accesses; barriers",
    r"\bstand-?ins?\b": "tracer, traced value",
    r"\bteams?\b": "warps per row, workers (say which)",
    r"\bqueues?\b": "CUDA stream",
    r"\brecordings?\b": "CUDA graph, capture",
    r"\b(give|gives|given|giving|gave) (it |them |\w+ )?up\b": "donate, consumed",
    r"\bspent\b": "consumed",
    r"\b(speaks?|spoken|speaking)\b": "communicate",
    r"\bprocessors?\b": "CPU",
    r"\b(no|is a|are) places?\b": "out-of-bounds index",
    r"\bplaces\b": "indices, offsets, addresses, locations",
    r"\bwhole numbers?\b": "integer",
    r"\bcures?\b": "fix, help",
    r"\bNaN wins\b": "propagates",
    r"\bcalled with other arguments\b": "missing argument, unexpected argument",
    r"\bas (it|they) (lies?|stands?)\b": "in its memory order, unchanged",
}
ANY_PROSE = re.compile("|".join(f"(?:{pattern})" for pattern in PROSE), re.IGNORECASE)
EXEMPT = re.compile(
    r"constant[- ]fold|fold(s|ed|ing)? (of )?(a )?constant|constants are folded|most of their scalars are constants"
    r"|fold[-_]constants|random\.fold|fold_in|#fold|^## fold|fold\(key|\"fold\""
    r"|`(exponential|feature_dropout)`, `fold`|fold in a number|folding will look"
    r"|(multi|co|pre|micro)processor|platform\.processor|processor (@|architecture)|queue\.|manifold|unfold|CHECK"
    r"|in turn\b|both sides|makes room|compiler places copies|extreme (rows|numbers|values|logits)|runs as it stands",
    re.IGNORECASE,
)
"""Lines that say such a word in its standard meaning."""
OLD_TEXTS = {"tessera/ir/base/text.py", "docs/features.md", "docs/features.tsv"}
"""Files that must say old words: names of earlier IR versions, and the wording of the promises."""


@dataclass(frozen=True)
class Finding:
    """One word that has a better one."""

    file: Path
    line: int
    word: str
    instead: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r} -> {self.instead}: {self.text[:120]}"


def words_of(name: str) -> list[str]:
    """The words of an identifier, lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def name_findings(file: Path, tree: ast.Module) -> Iterator[Finding]:
    """Names that a file defines: the file itself, its classes, functions, parameters and module-level values."""
    found: list[tuple[int, str]] = [(1, file.stem)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            found.append((node.lineno, node.arg))
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found += [(node.lineno, target.id) for target in targets if isinstance(target, ast.Name)]
    for line, name in found:
        if STANDARD_NAMES.search(name):
            continue
        for word in words_of(name):
            if NAMES.get(word):
                yield Finding(file, line, word, NAMES[word], name)
                break


def participle_findings(file: Path, tree: ast.Module) -> Iterator[Finding]:
    """Functions named by a bare participle: a function is a verb."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not is_participle(node.name.strip("_")):
            continue
        if not any("property" in ast.unparse(one) for one in node.decorator_list):
            yield Finding(file, node.lineno, node.name, "a verb", f"def {node.name}")


def is_participle(name: str) -> bool:
    """One word that says what was done: `scaled`, `given`."""
    if name in PUBLIC_ADJECTIVES:
        return False
    return name in PARTICIPLES or (re.fullmatch("[a-z]+ed", name) is not None and name not in VERBS_IN_ED)


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings of a Python file, line by line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def prose_findings(file: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Finding]:
    """Phrases that have a standard term."""
    for number, line in lines:
        if ANY_PROSE.search(line) is None:
            continue
        for pattern, instead in PROSE.items():
            match = re.search(pattern, line, re.IGNORECASE)
            if match and not EXEMPT.search(line):
                yield Finding(file, number, match.group(), instead, line.strip())


def findings(paths: list[Path]) -> Iterator[Finding]:
    """All findings below some paths."""
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.resolve().relative_to(ROOT).as_posix() in OLD_TEXTS:
                continue
            if file.suffix == ".py":
                text = file.read_text(encoding="utf-8")
                tree = ast.parse(text)
                yield from name_findings(file, tree)
                yield from participle_findings(file, tree)
                if ANY_PROSE.search(text):  # else there is nothing to cut into tokens for
                    yield from prose_findings(file, prose_of(text))
            elif file.suffix == ".md":
                yield from prose_findings(file, iter(enumerate(file.read_text(encoding="utf-8").splitlines(), 1)))


def main() -> None:
    """Print findings below the paths given, or below the package and its documents."""
    paths = [Path(one) for one in sys.argv[1:]] or [ROOT / "tessera", ROOT / "docs", *ROOT.glob("*.md")]
    count = 0
    for finding in findings(paths):
        print(finding)
        count += 1
    print(f"{count} findings")


if __name__ == "__main__":
    main()
