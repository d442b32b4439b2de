"""Every pass has a property that holds for many programs: of what it changes, or of what it lets through."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.api.compilation import lower_traced
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.options import Options
from tessera.ir.base.passes import find_pass, pass_modules
from tessera.ir.base.text import parse_module, print_module, stamp
from tessera.ir.graph.passes.state_accumulators import StateAccumulators
from tessera.ir.target.pipeline import check_kernels
from tests.backends.cpu.bodies import kernels_of
from tests.backends.cpu.random_bodies import Sample, boxes, contractions, maps, rows
from tests.oracles.nvptx_backend import NvptxBackend
from tests.policy.programs import POLICIES, random_program

ROOT = Path(__file__).parents[2]
GRAPH, MATRIX = "tests/ir/graph/test_passes.py", "tests/backends/nvptx/test_mma_passes.py"
SAME = f"{MATRIX}::test_the_interpreter_gives_the_same_before_and_after"
PLAN = "tests/schedule/test_meaning.py::test_a_plan_gives_what_the_graph_gives"
NVPTX = "tests/backends/nvptx"
PLANNING = "tests/schedule/planning"
HERE = "tests/contracts/test_properties.py"
CHECKED = f"{HERE}::test_checks_let_through_what_the_line_makes_and_change_nothing"
ROWS_ON_TARGET = f"{NVPTX}/test_row_passes.py::test_what_is_decided_on_target_ir_changes_attributes_alone_and_fits"
PROPERTIES = {
    "graph-apply-policy": "tests/policy/test_execution.py::test_the_pass_and_the_trace_mean_the_same",
    "graph-canonicalize": f"{GRAPH}::test_canonicalize_keeps_every_bit_and_leaves_no_pair_of_transposes",
    "graph-check-effects": CHECKED,
    "graph-check-numerics": CHECKED,
    "graph-check-placement": CHECKED,
    "graph-check-policy": "tests/policy/test_passthrough.py::test_what_is_traced_under_a_policy_keeps_it",
    "graph-check-ranges": "tests/policy/test_verify.py::test_every_value_lies_in_its_interval",
    "graph-check-rules": "tests/effects/test_order.py::test_who_may_decide_over_a_collective",
    "graph-keep-score-gradients": "tests/graph/test_keep_score_gradients.py"
    "::test_gradients_are_the_same_where_scores_are_kept",
    "graph-choose-segments": "tests/graph/test_choose_segments.py::test_what_is_neutral_changes_no_bit_beside_it",
    "graph-recognize-attention": "tests/graph/test_recognize_attention.py"
    "::test_attention_of_any_batch_is_the_reference_of_the_op",
    "graph-reduce-transposed": "tests/graph/test_reduce_transposed.py"
    "::test_meaning_is_kept_and_sources_are_reduced_in_the_same_order",
    "graph-chunk-collective-matmuls": "tests/graph/test_collective_chunks.py"
    "::test_f6_drawn_programs_in_chunks_have_the_bits_of_the_whole",
    "graph-chunk-contractions": "tests/transforms/test_chunk_contractions.py::test_chunks_change_no_bit",
    "graph-decompose": f"{GRAPH}::test_decompose_keeps_the_meaning_and_leaves_only_what_has_a_lowering",
    "graph-eliminate-common": f"{GRAPH}::test_eliminate_common_keeps_every_bit_and_leaves_no_two_equal_ops",
    "graph-fold-constants": f"{GRAPH}::test_fold_constants_keeps_every_bit_and_computes_what_it_can",
    "graph-infer-effects": "tests/effects/test_inference.py::test_a_composite_has_the_union_of_its_parts",
    "graph-inline-checkpoints": (
        "tests/transforms/test_checkpoint.py::test_values_and_gradients_have_the_bits_that_they_have_without"
    ),
    "graph-merge-collectives": "tests/effects/test_order.py::test_merging_keeps_meaning_and_order",
    "graph-inline-custom": "tests/transforms/test_custom.py::test_the_derivative_is_used_and_is_the_central_difference",
    "graph-jvp": "tests/transforms/test_every_op.py::test_tangents_are_central_differences",
    "graph-linearize": "tests/transforms/test_every_op.py::test_tangents_are_central_differences",
    "graph-unfold-windows": "tests/graph/test_unfold_windows.py::test_meaning_is_kept_bit_for_bit",
    "schedule-choose-layouts": "tests/schedule/test_choose_layouts.py::test_meaning_and_bits_are_kept_in_every_order",
    "schedule-form-mesh-regions": "tests/schedule/test_mesh_regions.py"
    "::test_meaning_is_kept_and_regions_are_those_of_the_scopes",
    "graph-partition": "tests/graph/test_shard_partition.py::test_a_partitioned_program_gives_the_whole",
    "graph-vjp": "tests/features/test_graph.py::test_G2_the_adjoint_of_a_text_computes_the_gradient",
    "graph-vmap": "tests/transforms/test_vmap.py::test_a_batch_of_an_op_is_the_op_of_each",
    "graph-resolve-placeholders": "tests/graph/test_resolve_placeholders.py"
    "::test_a_program_means_what_it_does_with_the_values_written_out",
    "schedule-read-plan": "tests/compiler/test_plan_text.py"
    "::test_a_drawn_program_keeps_its_bits_under_a_plan_of_other_groups",
    "graph-rematerialize": (
        "tests/transforms/test_rematerialize.py::test_whatever_is_kept_a_gradient_has_the_same_bits_and_no_residual"
    ),
    "graph-split-collectives": "tests/schedule/test_overlap.py::test_splitting_keeps_what_every_rank_gets",
    "graph-state-accumulators": f"{HERE}::test_every_sum_states_its_accumulator_and_one_that_does_keeps_it",
    "graph-split-contractions": "tests/graph/test_segments.py::test_bits_are_those_of_the_recipe",
    "nvptx-choose-vectors": ROWS_ON_TARGET,
    "nvptx-schedule-rows": ROWS_ON_TARGET,
    "nvptx-insert-barriers": f"{NVPTX}/test_row_passes.py::test_meaning_is_kept_by_all_passes_together",
    "nvptx-place-scratch": f"{NVPTX}/test_row_passes.py::test_meaning_is_kept_by_all_passes_together",
    "nvptx-plan-rows": f"{NVPTX}/test_row_passes.py::test_meaning_is_kept_by_all_passes_together",
    "nvptx-plan-matmuls": f"{NVPTX}/test_thread_matmuls.py::test_text_computes_the_product",
    "nvptx-plan-threads": f"{NVPTX}/test_row_passes.py::test_meaning_is_kept_by_all_passes_together",
    "nvptx-unroll-loops": f"{NVPTX}/test_row_passes.py::test_what_registers_hold_is_unrolled_and_nothing_else_is_there",
    "nvptx-lower-kernels": f"{HERE}::test_kernels_of_random_bodies_have_code_for_a_gpu",
    "nvptx-add-fallbacks": f"{NVPTX}/test_prune_fallbacks.py::test_a_dot_of_nothing_is_what_follows_it",
    "nvptx-prune-fallbacks": f"{NVPTX}/test_prune_fallbacks.py::test_a_dot_of_nothing_is_what_follows_it",
    "schedule-branch-on-rows": "tests/schedule/test_branch_on_rows.py::test_meaning_is_kept",
    "schedule-attach-choices": (
        f"{PLANNING}/test_passes.py::test_choices_are_written_on_the_groups_that_are_meant_and_nowhere_else"
    ),
    "schedule-check-effects": CHECKED,
    "schedule-check-policy": CHECKED,
    "schedule-choose-tiles": "tests/determinism/test_bits.py::test_any_schedule_gives_the_same_bits",
    "schedule-deduplicate": PLAN,
    "schedule-emit-tiles": PLAN,
    "schedule-expand-pipelines": f"{PLANNING}/test_passes.py::test_expanded_pipelines_run_as_their_schedule_says",
    "schedule-form-groups": PLAN,
    "schedule-infer-halos": f"{PLANNING}/test_stencils.py::test_windows_behind_slices",
    "schedule-materialize-groups": (
        f"{PLANNING}/test_passes.py::test_functions_have_the_groups_that_are_materialized_and_the_plan_stays"
    ),
    "schedule-merge-launches": "tests/schedule/test_merge_launches.py::test_meaning_is_kept",
    "schedule-overlap-collectives": (
        "tests/schedule/test_overlap.py::test_overlapping_keeps_every_bit_and_the_order_of_starts"
    ),
    "schedule-place-buffers": "tests/schedule/test_meaning.py::test_a_host_program_gives_what_the_graph_gives",
    "schedule-plan-collectives": (
        f"{PLANNING}/test_passes.py::test_what_is_written_on_a_collective_is_the_fastest_plan"
    ),
    "schedule-plan-memory": "tests/schedule/test_memory.py::test_buffers_that_live_at_one_time_are_apart_for_all_sizes",
    "schedule-reorder-launches": (
        "tests/schedule/test_launch_order.py::test_random_programs_run_in_any_order_and_are_written_down_in_it"
    ),
    "schedule-update-in-place": "tests/schedule/test_in_place.py::test_what_is_written_over_nobody_misses",
    "schedule-watch-positions": (
        "tests/schedule/test_watch_positions.py::test_watching_changes_nothing_but_what_is_outside"
    ),
    "target-check-effects": CHECKED,
    "target-check-kernels": CHECKED,
    "target-check-features": f"{NVPTX}/test_ampere.py::test_a_kernel_goes_to_machines_that_have_what_it_needs",
    "target-check-policy": CHECKED,
    "nvptx-hoist-descriptors": "tests/backends/nvptx/test_layout_passes.py::test_maps_are_made_once_wherever_they_were",
    "nvptx-place-shared": "tests/backends/nvptx/test_layout_passes.py::test_parts_lie_apart_and_placed_ones_stay",
    "tile-check-barriers": "tests/tile/test_check_barriers.py::test_proofs_and_refutations_agree_with_running",
    "tile-check-blocks": ("tests/kernel/test_block_sizes.py::test_kernels_that_pass_give_one_result_for_all_blocks"),
    "tile-check-bounds": "tests/tile/test_check_bounds.py::test_proofs_and_refutations_agree_with_running",
    "tile-check-effects": CHECKED,
    "tile-check-policy": CHECKED,
    "tile-check-races": "tests/tile/test_clean_suite.py::test_no_report",
    "nvptx-choose-spaces": SAME,
    "tile-drop-bounds": "tests/schedule/test_known_multiples.py::test_bounds_that_are_dropped_were_never_reached",
    "tile-expand-softmax": "tests/tile/test_softmax_ops.py::test_rows_mean_the_same_when_written_out",
    "nvptx-fit-steps": "tests/backends/nvptx/test_fit_steps.py::test_dots_in_other_steps_are_the_same_to_the_last_bit",
    "nvptx-use-exp2": "tests/backends/nvptx/test_use_exp2.py::test_the_meaning_is_kept",
    "tile-fuse-multiply-adds": (
        "tests/policy/test_fast_math.py::test_what_is_fused_differs_by_the_rounding_of_the_product_alone"
    ),
    "nvptx-orient-operands": f"{NVPTX}/test_orient_operands.py::test_threads_give_the_bits_of_the_cpu",
    "nvptx-overlap-mma": SAME,
    "nvptx-pipeline-copies": SAME,
    "nvptx-place-barriers": (
        f"{NVPTX}/test_place_barriers.py::test_any_rings_that_a_kernel_says_are_kept_and_change_nothing"
    ),
    "nvptx-schedule-programs": f"{MATRIX}::test_any_order_of_programs_gives_the_same",
    "nvptx-select-mma": SAME,
    "nvptx-specialize-warps": SAME,
    "nvptx-broadcast-scalars": (
        "tests/backends/nvptx/test_broadcast_scalars.py::test_what_is_broadcast_is_the_same_for_each_element"
    ),
    "nvptx-broadcast-loads": f"{NVPTX}/test_broadcast_loads.py::test_what_is_loaded_for_each_element_means_the_same",
    "nvptx-separate-vectors": f"{NVPTX}/test_separate_vectors.py::test_rows_and_columns_have_vectors_of_their_own",
    "nvptx-swizzle-tiles": SAME,
    "cpu-check-accesses": "tests/target/test_check_accesses.py::test_lowering_keeps_the_accesses_of_random_bodies",
    "cpu-compare-accesses": "tests/target/test_mutations.py::test_kernels_without_faults_pass",
    "schedule-offload-values": "tests/schedule/test_offload.py::test_meaning_is_kept_whatever_is_offloaded",
    "schedule-annotate-costs": "tests/features/test_lowering.py::test_C6_a_cost_that_does_not_add_up_is_refused",
    "cpu-lower-kernels": "tests/backends/cpu/test_lower.py::test_pointwise_bodies",
}
"""Of each pass, the test that holds it to its property, on programs that are drawn or on all that are listed."""

CHECKS = {
    "graph": ("graph-check-effects", "graph-check-numerics", "graph-check-placement", "graph-check-policy"),
    "schedule": ("schedule-check-effects", "schedule-check-policy"),
    "tile": ("tile-check-effects", "tile-check-policy"),
    "target": ("target-check-effects", "target-check-kernels", "target-check-policy"),
}
SEEDS = (*range(0, len(POLICIES), 3), 263)
"""Of random programs under policies; the last has the largest of values that a policy rounded."""


def test_no_pass_is_without_a_property() -> None:
    assert sorted(PROPERTIES) == sorted(pass_modules())


@pytest.mark.parametrize("node", sorted(set(PROPERTIES.values())))
def test_a_property_is_one_of_many_programs(node: str) -> None:
    """The test is there, and draws what it runs on, or runs on all of a list."""
    file, _, name = node.partition("::")
    functions = [one for one in ast.parse((ROOT / file).read_text()).body if isinstance(one, ast.FunctionDef)]
    (found,) = [one for one in functions if one.name == name]
    marks = {ast.unparse(item.func) for item in found.decorator_list if isinstance(item, ast.Call)}
    assert marks & {"given", "pytest.mark.parametrize"}


@cache
def _texts(seed: int) -> Any:
    program = random_program(seed)
    return lower_traced(ts.jit(program).trace(*program.arrays()), Options())


@pytest.mark.parametrize("seed", SEEDS)
def test_checks_let_through_what_the_line_makes_and_change_nothing(seed: int) -> None:
    texts = _texts(seed)
    for level, names in CHECKS.items():
        module = parse_module(getattr(texts, level))
        before = print_module(module)
        for name in names:
            find_pass(name)().run(module)
        assert print_module(module) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_every_sum_states_its_accumulator_and_one_that_does_keeps_it(seed: int) -> None:
    module = parse_module(_texts(seed).graph)
    StateAccumulators().run(module)
    once = print_module(module)
    find_pass("graph-check-numerics")().run(module)
    StateAccumulators().run(module)
    assert print_module(module) == once


@settings(max_examples=40)
@given(maps() | rows() | contractions() | boxes())
def test_kernels_of_random_bodies_have_code_for_a_gpu(sample: Sample) -> None:
    """They pass the door, come back from their text, store to all that the tile kernel stores to, and have code."""
    machine = GPUS["sm_90a"]
    for kernel in kernels_of(sample.body, machine):
        target = NvptxBackend(machine).lower(kernel)
        check_kernels([target], machine)
        module = ModuleOp([target.clone()])
        stamp(module)
        text = print_module(module)
        assert print_module(parse_module(text)) == text
        assert stored_to(target, "ttarget.store") == stored_to(kernel, "ttile.store")
        code = NvptxBackend(machine).code(target)
        assert 1 <= code.threads <= machine.lanes * 32


def stored_to(kernel: Any, store: str) -> set[int]:
    """The arguments that a kernel writes, by number."""
    block = kernel.regions[0].block
    written = {op.operands[1] for op in kernel.walk() if op.name == store}
    return {number for number, argument in enumerate(block.args) if argument in written}
