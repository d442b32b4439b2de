"""Hostile text to `tessera-opt`: a small part of the trial, and each kind of text that was once not answered well."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.trials import hostile_text
from tests.trials.mutate_text import ROOT, load_seeds, mutate

T = "!tgraph.tensor<[A], f32>"
FUNCTION = f"tgraph.func @f(%x: {T}) -> {T} {{\n  tgraph.return %x : ({T}) -> ()\n}}\n"


def outcome_of(text: str, *arguments: str) -> str:
    """The code of the error that a text is refused with, or `ok`; fails where it does what it must not."""
    kind, fault = hostile_text.judge_text(text, arguments)
    assert fault == ""
    return kind


@pytest.mark.slow
def test_no_text_of_a_small_campaign_hangs_crashes_or_blames_the_compiler() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.trials.hostile_text",
        "400",
        "--seed",
        "7",
        "--jobs",
        "1",
        "--commands",
        "2",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].startswith("400 texts, 2 commands, 0 faults")


def test_seeds_are_many_and_a_mutation_is_the_same_wherever_it_is_drawn() -> None:
    assert len(load_seeds()) > 500
    assert hostile_text.draw(17, 3) == hostile_text.draw(17, 3)
    assert mutate.__doc__


@pytest.mark.parametrize("letter", ["a", "\\", "é", "0"])
@pytest.mark.parametrize("before", ["", "builtin.module attributes {", f"{FUNCTION}%0 = "])
def test_a_quote_that_nothing_closes_is_refused_in_linear_time(before: str, letter: str) -> None:
    started = time.process_time()
    assert outcome_of(before + '"' + letter * 50_000) == "T0304"
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "builtin.module {" * 5000,
        f"{FUNCTION.replace('[A]', '[' + '(' * 3000 + 'A' + ')' * 3000 + ']')}",
        FUNCTION.replace("-> ()", "-> " + "(" * 3000),
        FUNCTION.replace("{\n", "attributes {names = " + "[" * 3000 + "]" * 3000 + "} {\n"),
        "// " + "(" * 3000 + "\n" + '"' + "(" * 3000 + '"',
    ],
)
def test_nesting_deeper_than_the_stack_is_refused_at_its_bracket(text: str) -> None:
    assert outcome_of(text) == "T0304"


def test_nesting_as_deep_as_is_read_is_printed_and_verified() -> None:
    assert outcome_of("builtin.module {" * 100 + "}" * 100, "--verify") == "ok"
    assert outcome_of(FUNCTION.replace("[A]", "[" + "(" * 60 + "A" + ")" * 60 + "]")) == "ok"


@pytest.mark.parametrize(
    "dim",
    [
        "9" * 5000,
        "9223372036854775808",
        "4611686018427387904 * 4 * A",
        " * ".join(["A"] * 3000),
        " floordiv ".join(["A"] * 3000),
        " * ".join(f"(A + B{number})" for number in range(40)),
        "- " * 5000 + "A +",
        "²",
        "٣",
    ],
)
def test_a_dim_of_more_than_any_size_is_refused(dim: str) -> None:
    started = time.process_time()
    assert outcome_of(FUNCTION.replace("[A]", f"[{dim}]")) == "T0304"
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "value",
    [
        "0x",
        "0x123",
        '"\\FF"',
        "9" * 5000,
        "18446744073709551616",
        f"1 : i{'9' * 300}",
        "1 : si16777216",
        "array<f32, [-1], [1.0]>",
        "array<i8, [1], [300]>",
        "array<i8, [1], [1.5]>",
        "array<bool, [1], [nan]>",
        "array<f32, [3], [1.0]>",
        "array<f32, [2], 0x00>",
        "array<f32, [1], 0x0>",
        "array<f32, [1], [none]>",
    ],
)
def test_a_value_that_is_none_of_its_kind_is_refused_where_it_stands(value: str) -> None:
    assert outcome_of(FUNCTION.replace("{\n", f"attributes {{a.b = {value}}} {{\n", 1)) == "T0304"


@pytest.mark.parametrize("value", ["inf", "1.5", '"1"', "[1]", "true", "none"])
def test_an_integer_is_not_converted_from_anything_else(value: str) -> None:
    text = f"tgraph.func @f(%x: {T}) -> {T} {{\n  %0 = tgraph.softmax %x {{axis = {value}}} : ({T}) -> {T}\n"
    assert outcome_of(f"{text}  tgraph.return %0 : ({T}) -> ()\n}}\n") in ("T0304", "T0301")


@pytest.mark.parametrize("body", ["", "\n^a:\n^b:\n"])
@pytest.mark.parametrize("head", ["tgraph.func @f()", "builtin.module", "tsched.module", "ttile.kernel @k()"])
def test_a_body_of_no_or_two_blocks_is_refused(head: str, body: str) -> None:
    assert outcome_of(f"{head} {{{body}}}\n") in ("T0304", "T0301", "T0401", "T0501", "ok")
    assert outcome_of(f'"{head.split()[0]}"() ({{{body}}}) : () -> ()\n') != "fault"


@pytest.mark.parametrize("name", ["symbol", "names", "guards"])
@pytest.mark.parametrize("value", ["[[0]]", "{}", "bf16", '"text"', "#tessera.value<none>", "#tessera.value<[none]>"])
def test_generic_properties_of_any_kind_are_refused_by_the_form_of_the_op(name: str, value: str) -> None:
    text = f'"tgraph.func"() <{{{name} = {value}}}> ({{\n^bb0(%x: {T}):\n  "tgraph.return"(%x) : ({T}) -> ()\n}})'
    assert outcome_of(f"{text} : () -> ()\n") == "T0301"


@pytest.mark.parametrize(
    "attribute",
    [
        "tessera.donated = 1",
        "tessera.donated = [3]",
        "tessera.effects = true",
        "numerics.bounded = 3",
        "nvptx.threads = [1]",
    ],
)
def test_attributes_that_passes_read_are_of_their_kind(attribute: str) -> None:
    text = FUNCTION.replace("{\n", f"attributes {{{attribute}}} {{\n", 1)
    assert outcome_of(text, "-p", "nvptx-plan-threads") == "T0301"


def test_passes_over_groups_after_their_bodies_became_kernels_say_what_to_run_before() -> None:
    text = FUNCTION.replace("  tgraph", f"  %0 = tgraph.neg %x : ({T}) -> {T}\n  tgraph", 1).replace("n %x", "n %0")
    chain = "schedule-form-groups,schedule-emit-tiles"
    assert outcome_of(text, "-p", chain) == "ok"
    for late in ("schedule-emit-tiles", "schedule-deduplicate", "schedule-choose-tiles"):
        assert outcome_of(text, "-p", f"{chain},{late}") in ("T0401", "ok")
    assert outcome_of(text, "-p", f"{chain},schedule-emit-tiles") == "T0401"


def test_a_schedule_counts_warps_by_a_number() -> None:
    text = "ttile.kernel @k() attributes {symbols = [], grid = [1], writes = [], schedule = {warps = [4]}} {\n"
    assert outcome_of(f"{text}  ttile.return\n}}\n", "-p", "nvptx-plan-threads") == "T0501"
    assert outcome_of(f"{text.replace('[4]', '4')}  ttile.return\n}}\n", "-p", "nvptx-plan-threads") == "ok"


def test_bytes_that_are_no_text_are_refused_by_the_command() -> None:
    command = [sys.executable, "-m", "tessera.cli.opt"]
    for data, status in ((b"\xff\x00", 2), (b"\x00" * 10, 1), (b'"' + b"a" * 5000, 1)):
        done = subprocess.run(command, input=data, capture_output=True, cwd=ROOT, check=False, timeout=60)
        assert done.returncode == status
        assert b"Traceback" not in done.stderr


def test_a_kernel_of_more_warpgroups_than_there_are_is_no_fault_of_the_compiler() -> None:
    (seed,) = (one for one in load_seeds() if one.name == "overlap_mma.mlir:3")
    text = seed.text.replace("warpgroups = 1", "warpgroups = 31").replace("warpgroups = 2", "warpgroups = 31")
    assert "warpgroups = 31" in text
    assert outcome_of(text, "-p", "nvptx-overlap-mma").startswith(("ok", "T05", "T06"))
