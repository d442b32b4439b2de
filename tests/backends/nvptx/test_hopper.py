"""Matrix kernels that break a rule of the machine are refused with the reason, and others come back from their text."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tests.backends.nvptx.matrices import attention_text, dot_text

DOT = {
    "features": ('["wgmma", "tma", "setmaxnreg"]', '["tma"]', "and the target lacks wgmma, setmaxnreg"),
    "registers": ("registers = [40, 232]", "registers = [40, 233]", "multiples of 8 from 24 to 240"),
    "too many registers": ("registers = [40, 232]", "registers = [168, 240]", "take 82944, and there are 65536"),
    "consumers": ("consumers = 2", "consumers = 4", "a CTA has 1 to 3 consumers, got 4"),
    "shares": (
        "consumers = 2, registers = [40, 232]",
        "consumers = 3, registers = [40, 152]",
        "rows are not shared by 3 consumers in blocks of 64",
    ),
    "shared": ("shared = 229440", "shared = 250000", "at most 232448 bytes of shared memory, got 250000"),
    "beyond shared": ("shared = 229440", "shared = 229400", "and the kernel has 229400 shared bytes"),
    "overlap": ("offset = 65536, stages = 4", "offset = 64512, stages = 4", "overlap"),
    "alignment": ("offset = 65536, stages = 4", "offset = 65600, stages = 4", "begins at a multiple of 1024 bytes"),
    "stages": ("{offset = 0, stages = 4}", "{offset = 0, stages = 9}", "there are 1 to 8 stages, got 9"),
    "stages of a ring": (
        "stages = 4} : (!ttarget.s",
        "stages = 3} : (!ttarget.s",
        "a ring of 3 stages has a tile of 4",
    ),
    "box": ("box = [128, 64]", "box = [128, 32]", "a row of a swizzled box is 128 bytes, got 32 of bf16"),
    "long box": ("box = [256, 64]", "box = [257, 64]", "has 1 to 256 elements along each, got [257, 64]"),
    "rank of a box": ("box = [256, 64]", "box = [1, 256, 64]", "a box of 2 dims"),
    "short box": (
        "box = [128, 64]",
        "box = [64, 64]",
        "40960 bytes are copied to a stage, and its barrier counts 49152",
    ),
    "writes": ("writes = [2]", "writes = [2, 3]", "`writes` names arguments 0..2, got [2, 3]"),
    "not declared": ("writes = [2]", "writes = [1]", "`ttarget.store_tile` writes argument 2 of"),
    "empty loop": (
        "step = 64, is_nonempty = true",
        "step = 64",
        "a loop that carries dots in flight has a first step",
    ),
    "step": ("step = 64, is_nonempty", "step = 0, is_nonempty", "`step` must be positive, got 0"),
    "group": ("group = 16", "group = 0", "`group` is at least 1, got 0"),
    "negative wait": ("{left = 1}", "{left = -1}", "`left` counts dots, got -1"),
}


def check_text(text: str) -> None:
    """Raises OpError for a text that breaks a rule."""
    load_dialects()
    verify(parse_module(text))


@pytest.mark.parametrize("name", list(DOT))
def test_a_dot_that_breaks_a_rule_is_refused(name: str) -> None:
    old, new, message = DOT[name]
    text = dot_text()
    assert old in text, f"{old} is not in the kernel"
    with pytest.raises(OpError) as caught:
        check_text(text.replace(old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_kernels_come_back_from_their_text(text: Callable[[], str]) -> None:
    written = text()
    check_text(written)
    assert print_module(parse_module(written)).strip() == written.strip()


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if name in line]


def test_an_accumulator_in_flight_is_not_read() -> None:
    """The type of what is in flight is not one that arithmetic takes (ptxas C7514)."""
    text = dot_text()
    (wait,) = _lines(text, "= ttarget.mma_wait %")
    result, pending = wait.split(" = ")[0].strip(), wait.split("ttarget.mma_wait ")[1].split(" ")[0]
    (cast,) = [line for line in _lines(text, "ttarget.cast") if result in line]
    broken = cast.replace(f"cast {result} ", f"cast {pending} ").replace("(!ttarget.fragment", "(!ttarget.pending")
    with pytest.raises(OpError, match=r"works on blocks, got !ttarget\.pending"):
        check_text(text.replace(cast, broken))


def test_an_a_operand_is_not_made_while_a_dot_is_in_flight() -> None:
    """The A operand of the second dot, made after the first was issued, serializes both (ptxas C7513)."""
    text = attention_text()
    blocks = text.split("ttarget.steps")
    inner = next(block for block in blocks if block.count("ttarget.mma_issue") >= 2)
    issues = _lines(inner, "ttarget.mma_issue")
    second = issues[1]
    left = second.split("ttarget.mma_issue ")[1].split(", ")[1]
    operand = "!ttarget.operand<[128, 128], bf16>"
    constant = "%fresh = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], bf16>"
    pack = f"%packed = ttarget.pack %fresh : (!ttarget.fragment<[128, 128], bf16>) -> {operand}"
    broken = second.replace(f", {left}, ", ", %packed, ")
    changed = inner.replace(second, f"{constant}\n{pack}\n{broken}")
    with pytest.raises(OpError, match="makes a register operand of the next dot while this is in flight"):
        check_text(text.replace(inner, changed))


def test_the_producer_only_copies() -> None:
    text = dot_text()
    acquire = _lines(text, "ttarget.acquire")[0]
    extra = "%junk = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 256], f32>"
    with pytest.raises(OpError, match="the producer is one thread that only copies"):
        check_text(text.replace(acquire, f"{acquire}\n{extra}"))


def test_consumers_do_not_copy() -> None:
    text = dot_text()
    acquire, wait = _lines(text, "ttarget.acquire")[0], _lines(text, "ttarget.await")[0]
    cursor = wait.split(", ")[1].split(" ")[0]
    moved = acquire.replace(acquire.split(", ")[1].split(" ")[0], cursor, 1)
    with pytest.raises(OpError, match="belongs to the producer"):
        check_text(text.replace(wait, f"{moved}\n{wait}"))


def test_order_is_for_two() -> None:
    text = attention_text()
    assert "ttarget.pingpong" in text
    with pytest.raises(OpError, match="two consumers start dots in order, and there are 3"):
        check_text(text.replace("consumers = 2, registers = [24, 240]", "consumers = 3, registers = [24, 160]"))


ASYNC = (
    "ttarget.acquire",
    "ttarget.copy",
    "ttarget.await",
    "ttarget.release",
    "ttarget.mma_wait {",
    "ttarget.pingpong",
)


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_a_sequence_that_lacks_one_step_is_refused(text: Callable[[], str]) -> None:
    """Each wait, copy, release and ping-pong, left out alone, would be a race or a hang; all are found."""
    lines = text().splitlines()
    steps = [at for at, line in enumerate(lines) if line.strip().startswith(ASYNC)]
    assert len(steps) > 5
    for at in steps:
        with pytest.raises(OpError):
            check_text("\n".join(lines[:at] + lines[at + 1 :]))


@pytest.mark.parametrize("text", [dot_text, attention_text])
@pytest.mark.parametrize("name", ["ttarget.acquire", "ttarget.release", "ttarget.copy", "ttarget.pingpong"])
def test_a_step_that_is_taken_twice_is_refused(text: Callable[[], str], name: str) -> None:
    """A barrier would count what nobody waits for, and open too early, or never."""
    lines = text().splitlines()
    for at in [at for at, line in enumerate(lines) if line.strip().startswith(f"{name} ")]:
        with pytest.raises(OpError):
            check_text("\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]))


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_what_a_kernel_declares_to_write_is_written(text: Callable[[], str]) -> None:
    lines = text().splitlines()
    for at in [at for at, line in enumerate(lines) if "ttarget.store_tile" in line or "ttarget.fragment_store" in line]:
        with pytest.raises(OpError, match="declares that it writes argument"):
            check_text("\n".join(lines[:at] + lines[at + 1 :]))


def test_consumers_have_two_staging_buffers_each() -> None:
    lines = dot_text().splitlines()
    (stored,) = [line.split(", ")[2] for line in lines if "ttarget.store_tile" in line]
    (at,) = [at for at, line in enumerate(lines) if line.strip().startswith(f"{stored} = ttarget.shared_tile")]
    fewer = re.sub(r"stages = (\d+)", lambda found: f"stages = {int(found[1]) - 1}", lines[at])
    with pytest.raises(OpError, match="2 consumers have two staging buffers each, and there are 3"):
        check_text("\n".join([*lines[:at], fewer, *lines[at + 1 :]]))


def _places(issue: str) -> list[str]:
    """The cursors of rings that a dot reads; an A operand in registers has none."""
    given = issue.split("mma_issue ")[1].split(" :")[0].split(" {")[0].split(", ")
    return given[4:] if "!ttarget.operand" in issue else given[3:]


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_a_stage_is_not_left_while_it_is_read(text: Callable[[], str]) -> None:
    """A release moved before the wait that ends the dot which reads the stage."""
    lines = text().splitlines()
    found = 0
    for at, line in enumerate(lines):
        if not line.strip().startswith("ttarget.release"):
            continue
        cursor = line.split(", ")[1].split(" ")[0]
        reads = [n for n in range(at) if "mma_issue" in lines[n] and cursor in _places(lines[n])]
        if reads:
            found += 1
            moved = [*lines[: reads[-1] + 1], line, *lines[reads[-1] + 1 : at], *lines[at + 1 :]]
            with pytest.raises(OpError, match="while a dot in flight reads it"):
                check_text("\n".join(moved))
    assert found or text is dot_text
