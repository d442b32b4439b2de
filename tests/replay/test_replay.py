"""Replay: the final LLVM text of every case is what it was, names aside; moving and renaming code must not move it.

Hashes are in `hashes/`, a file for each machine. `pytest tests/replay -k sm_90a` or `-k matmul` runs a part. After a
change that is meant to alter code, look at what moved and run `pytest tests/replay --update`.
"""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.replay.case import EVERYWHERE
from tests.replay.cases import FAMILIES, cases_of
from tests.replay.lowering import MACHINES, lowered_texts
from tests.replay.normalize import digest, normalize
from tests.target.samples import NAMES

FOLDER = Path(__file__).with_name("hashes")
HELP = """\
code changed on {machine}: {moved}
To see it, run `python -m tests.replay.show "{first}" {machine}` here and in a checkout from before, and compare.
If it was meant to change, run this test with --update."""


def hashes_of(machine: str) -> dict[str, str]:
    """What is kept of a machine, by `family/case`."""
    file = FOLDER / f"{machine}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def replayed(family: str, machine: str) -> dict[str, str]:
    """The hashes of a family as the code is now."""
    gc.disable()  # a third of the time: what programs leave is collected once for all of them
    try:
        return {
            f"{family}/{name}": digest(lowered_texts(case, machine))
            for name, case in cases_of(family).items()
            if machine in case.machines
        }
    finally:
        gc.enable()


def moved_cases(found: dict[str, str], kept: dict[str, str]) -> list[str]:
    """Cases whose code changed; one that only has another name now is found by its hash, and did not."""
    moved = [name for name, hash in found.items() if name in kept and kept[name] != hash]
    new = [name for name in found if name not in kept]
    gone = [name for name in kept if name not in found]
    renamed = Counter(found[name] for name in new) == Counter(kept[name] for name in gone)
    return moved if renamed else [*moved, *new, *gone]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("machine", MACHINES)
def test_code_has_not_moved(machine: str, family: str, update: bool) -> None:
    found, kept = replayed(family, machine), hashes_of(machine)
    if update:
        others = {name: hash for name, hash in kept.items() if not name.startswith(f"{family}/")}
        kept = dict(sorted({**others, **found}.items()))
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{machine}.json").write_text(json.dumps(kept, indent=1) + "\n")
    own = {name: hash for name, hash in kept.items() if name.startswith(f"{family}/")}
    moved = moved_cases(found, own)
    assert not moved, HELP.format(machine=machine, moved=", ".join(moved), first=moved[0])


@pytest.mark.parametrize("machine", MACHINES)
def test_only_families_that_there_are_are_kept(machine: str) -> None:
    assert {name.split("/")[0] for name in hashes_of(machine)} <= FAMILIES.keys()


def test_machines_of_cases_are_those_there_are() -> None:
    assert tuple(MACHINES) == EVERYWHERE


@pytest.mark.parametrize("machine", ["cpu-avx2", "cpu-avx512"])
def test_lowering_twice_gives_the_same_text(machine: str) -> None:
    for name in NAMES:
        case = cases_of("samples")[name]
        assert lowered_texts(case, machine) == lowered_texts(case, machine)


def renamed_texts(texts: list[str]) -> list[str]:
    """The texts with other names for everything that is ours, in a way that turns their order around."""

    def new(name: re.Match[str]) -> str:
        if name[0].startswith(('"', "@llvm.", "@Py")):
            return name[0]
        word = name[0].strip("@%:\n")
        return name[0].replace(word, other(word))

    def other(word: str) -> str:
        return f"z{1000 - len(word)}.{word[::-1]}"

    def spelled(text: str) -> str:
        return ", ".join(f"i8 {byte}" for byte in f"{text}\0".encode())

    for kernel in (name for text in texts for name in re.findall(r"^define.*?@([-\w$.]+)", text, re.MULTILINE)):
        old, name = (f"[{len(text) + 1} x i8] [{spelled(text)}]" for text in (kernel, other(kernel)))
        texts = [text.replace(old, name) for text in texts]
    return [re.sub(r'"[^"]*"|[@%][-\w$.]+|^[-\w$.]+:', new, text, flags=re.MULTILINE) for text in texts]


@pytest.mark.parametrize("machine", MACHINES)
def test_names_do_not_count(machine: str) -> None:
    texts = lowered_texts(cases_of("builds")["kernel matmul debug"], machine)
    other = renamed_texts(texts)
    assert all(text != new for text, new in zip(texts, other, strict=True))
    assert digest(texts) == digest(other)
    assert digest(texts) == digest([f"; ModuleID = 'x'\nsource_filename = \"x\"\n\n{text}" for text in texts])
    assert digest(texts) == digest([re.sub(r"$", " ; said", text, flags=re.MULTILINE) for text in texts])


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_else_counts(machine: str) -> None:
    texts = lowered_texts(cases_of("builds")["kernel matmul debug"], machine)
    host, kernel = texts[0], texts[1]
    changes = {
        "instruction": kernel.replace(" add ", " sub ", 1),
        "number": re.sub(r"\bi64 (\d+)", r"i64 1\1", kernel, count=1),
        "type": kernel.replace(" i32 ", " i16 ", 1),
        "attribute": kernel.replace("nounwind", "noreturn", 1),
        "metadata": kernel.replace("!0 =", "!7 =", 1),
        "order": "\n".join(reversed(kernel.splitlines())),
    }
    if machine.startswith("gpu"):
        changes["assembly"] = re.sub(r'asm sideeffect "', 'asm sideeffect "nop; ', kernel, count=1)
    for what, changed in changes.items():
        assert digest([host, changed, *texts[2:]]) != digest(texts), what
    assert digest(texts[1:]) != digest(texts)


def test_a_name_for_another_counts() -> None:
    text = "define i64 @f(i64 %a, i64 %b) {\nentry:\n  %c = sub i64 %a, %b\n  br label %done\ndone:\n  ret i64 %c\n}\n"
    assert normalize([text]) == normalize([text.replace("done", "end").replace("%a", "%left").replace("@f", "@g")])
    assert normalize([text]) != normalize([text.replace("sub i64 %a, %b", "sub i64 %b, %a")])
    assert normalize([text, text]) != normalize([text, text.replace("@f", "@g")])


def test_cases_that_are_renamed_have_not_moved() -> None:
    assert moved_cases({"a/new": "1", "a/kept": "2"}, {"a/old": "1", "a/kept": "2"}) == []
    assert moved_cases({"a/kept": "3"}, {"a/kept": "2"}) == ["a/kept"]
    assert moved_cases({"a/new": "1"}, {}) == ["a/new"]
    assert moved_cases({}, {"a/old": "1"}) == ["a/old"]
