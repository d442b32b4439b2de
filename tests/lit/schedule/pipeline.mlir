// RUN: tessera-opt %s --split -p schedule-emit-tiles | filecheck %s --check-prefix TILE
// RUN: tessera-opt %s --split -p 'schedule-emit-tiles,nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma,nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-pipeline-copies,nvptx-schedule-programs,nvptx-specialize-warps,nvptx-overlap-mma' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s --check-prefix HOPPER

// A group that is to be double buffered has two buffers for each tile that its loop loads, one of them prefetched.
// TILE-LABEL: tsched.module @twice(
// TILE:         ttile.for %{{.*}} {step = 64, prefetch = 1, buffers = 2}
// TILE:           ttile.dot
// HOPPER-LABEL: tsched.module @twice(
// HOPPER:         ttarget.shared_tile {{.*}} stages = 2}
// HOPPER:         ttarget.ring {{.*}} stages = 2}
tsched.module @twice(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %a = tsched.fuse @twice_1(%x, %w) {kind = "contraction", pipeline = {double_buffer = true}} : !tgraph.tensor<[256, 256], bf16>
  tsched.return %a
}
tgraph.func @twice_1(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[256, 256], bf16>, !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[256, 256], bf16>) -> ()
}
// -----
// Three stages are three buffers.
// TILE-LABEL: tsched.module @thrice(
// TILE:         ttile.for %{{.*}} {step = 64, prefetch = 2, buffers = 3}
// HOPPER-LABEL: tsched.module @thrice(
// HOPPER:         ttarget.ring {{.*}} stages = 3}
tsched.module @thrice(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %a = tsched.fuse @thrice_1(%x, %w) {kind = "contraction", pipeline = {stages = 3}} : !tgraph.tensor<[256, 256], bf16>
  tsched.return %a
}
tgraph.func @thrice_1(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[256, 256], bf16>, !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[256, 256], bf16>) -> ()
}
// -----
// By default the loop says nothing, and the machine takes as many as fit.
// TILE-LABEL: tsched.module @free(
// TILE:         ttile.for %{{.*}} {step = 64}
// HOPPER-LABEL: tsched.module @free(
// HOPPER:         ttarget.ring {{.*}} stages = {{[4-8]}}}
tsched.module @free(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %a = tsched.fuse @free_1(%x, %w) {kind = "contraction"} : !tgraph.tensor<[256, 256], bf16>
  tsched.return %a
}
tgraph.func @free_1(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[256, 256], bf16>, !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[256, 256], bf16>) -> ()
}
// -----
// An annotation of values says it of the groups that read all of them, and is gone then.
// TILE-LABEL: tsched.module @annotated(
// TILE-NOT:     tessera.schedule.pipeline
// TILE:         ttile.for %{{.*}} {step = 64, prefetch = 1, buffers = 2}
// HOPPER-LABEL: tsched.module @annotated(
// HOPPER:         ttarget.ring {{.*}} stages = 2}
tsched.module @annotated(%A: !tgraph.tensor<[256, 256], bf16>, %B: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %0 = "tessera.schedule.pipeline"(%A, %B) {double_buffer=true}
  %a = tsched.fuse @annotated_1(%A, %B) {kind = "contraction"} : !tgraph.tensor<[256, 256], bf16>
  tsched.return %a
}
tgraph.func @annotated_1(%x: !tgraph.tensor<[256, 256], bf16>, %w: !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[256, 256], bf16>, !tgraph.tensor<[256, 256], bf16>) -> !tgraph.tensor<[256, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[256, 256], bf16>) -> ()
}
