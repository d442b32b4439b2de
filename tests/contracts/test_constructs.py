"""Every op and every pass has a FileCheck test and an example that runs, and the page that says which is true."""

from __future__ import annotations

import pytest

from scripts.constructs import Row, lit_files, names_it, ops, read_page, runs_passes
from scripts.ops import registry_of
from tessera.ir.base.passes import pass_modules
from tests.contracts.programs import OPTIONS, PROGRAMS, ops_of
from tests.lit.lit_runner import run_lines

ROWS = read_page()
LOWERED = [row for row in ROWS if " on " in row.example]


def test_no_construct_is_without_a_row() -> None:
    assert sorted(row.name for row in ROWS) == sorted((*ops(), *pass_modules())), "run scripts/constructs.py"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_construct_is_in_its_filecheck_test(row: Row) -> None:
    text = lit_files()[row.lit]
    assert names_it(text, row.name)
    assert any("filecheck" in line or "--verify" in line for line in run_lines(text))


NOT_LOWERED = {"tgraph.kernel_call", "ttarget.launch", "ttarget.skip"}
"""Ops that FileCheck tests print back, and no test names as what a pass takes or makes; none may join them."""


def test_an_op_is_in_a_test_that_runs_passes() -> None:
    found = {row.name for row in ROWS if row.name in ops() and not runs_passes(lit_files()[row.lit])}
    assert found == NOT_LOWERED


NOT_REFUSED = {
    *("tsched.while", "tsched.constant", "tsched.guard", "tsched.materialize"),
    *("ttarget.barrier", "ttarget.block_dot", "ttarget.commit_copies", "ttarget.copy_async", "ttarget.fetch"),
    *("ttarget.grow_rows", "ttarget.join_rows", "ttarget.mma_sync"),
    *(
        "ttarget.partial_rows",
        "ttarget.pingpong",
        "ttarget.reduce_rows",
        "ttarget.skip",
        "ttarget.sort",
    ),
    *("ttarget.stage_after", "ttarget.store_rows", "ttarget.tensor_alloc", "ttarget.tensor_commit"),
    *("ttarget.tensor_dealloc", "ttarget.tensor_kernel", "ttarget.tensor_load", "ttarget.tensor_mma"),
    *("ttarget.tensor_release", "ttarget.tensor_wait", "ttarget.wait_copies", "ttarget.warp_kernel"),
}
"""Ops that no FileCheck test refuses (those of GPUs are refused in `tests/backends/nvptx`); none may join them."""


def test_an_op_is_in_a_test_of_refusals() -> None:
    refused = [text for text in lit_files().values() if any("not tessera-opt" in line for line in run_lines(text))]
    assert {name for name in ops() if not any(names_it(text, name) for text in refused)} == NOT_REFUSED


def test_an_op_with_samples_has_them() -> None:
    sampled = {spec.name for spec in registry_of("graph") if spec.samples}
    assert {row.name for row in ROWS if row.example == "sample"} == sampled


@pytest.mark.parametrize("example", sorted({row.example for row in LOWERED}))
def test_an_example_lowers_to_what_it_is_an_example_of(example: str) -> None:
    name, _, backend = example.partition(" on ")
    assert {row.name for row in LOWERED if row.example == example} <= ops_of(name, backend)


def test_what_has_no_program_stands_between_passes_or_is_written_by_hand() -> None:
    alone = {row.name for row in ROWS if row.example == f"`{row.lit}`"}
    between = {"tsched.fuse", "tsched.layout", "tsched.collective", "tsched.pipeline", "tsched.materialize"}
    between |= {"tsched.mesh.region", "tsched.pipeline.region", "tsched.stage", "tsched.func"}
    between |= {
        "tsched.offload",
        "tsched.prefetch",
        "tgraph.checkpoint",
        "tgraph.custom_function",
        "tgraph.custom_linear",
        "tgraph.size_cond",
    }
    by_hand = {"ttile.softmax", "ttile.attend", "ttile.barrier", "ttile.per_block", "ttarget.launch", "ttarget.barrier"}
    by_hand |= {"ttile.all_reduce", "ttile.all_gather", "ttile.reduce_scatter"}  # kernels are split there
    by_choice = {"ttarget.uniform", "ttarget.elect"}  # `matrix.roles`
    assert alone - pass_modules().keys() <= between | by_hand | by_choice


def test_every_program_is_the_example_of_something() -> None:
    assert set(PROGRAMS) <= {row.example.partition(" on ")[0] for row in LOWERED}
    assert set(OPTIONS) == {row.example.partition(" on ")[2] for row in LOWERED}
