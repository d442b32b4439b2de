// RUN: tessera-opt %s --split -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma,nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-pipeline-copies,nvptx-schedule-programs,nvptx-specialize-warps,nvptx-overlap-mma' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s

// A kernel that says it has no producer: the copies of all stages but one come before the loop; in it a stage is
// released one step after it was read, and one thread fills it again, each time if there is such a step.
// CHECK-LABEL: ttarget.matrix_kernel @nt__matrix(
// CHECK-NOT:     registers
// CHECK:         %[[A:.*]] = ttarget.shared_tile {offset = 0, stages = 2}
// CHECK-NEXT:    %[[B:.*]] = ttarget.shared_tile {{.*}} stages = 2}
// CHECK:         %[[RING:.*]] = ttarget.ring %[[A]], %[[B]] {{.*}} stages = 2}
// CHECK-NOT:     ttarget.roles
// CHECK:         ttarget.uniform
// CHECK-NEXT:      %[[READ:.*]] = ttarget.cursor
// CHECK-NEXT:      %[[FILL:.*]] = ttarget.cursor
// CHECK-NEXT:      ttarget.tiles %[[READ]], %[[FILL]] {grid = [4, 8], group = 10}
// CHECK-NEXT:      ^bb0(%{{.*}}, %{{.*}}, %[[R:.*]]: !ttarget.cursor, %[[F:.*]]: !ttarget.cursor):
// CHECK:             %[[LOW:.*]] = ttarget.index {names = [], expr = 0}
// CHECK:             %[[HIGH:.*]] = ttarget.index {names = [], expr = 192}
// CHECK:             %[[F1:.*]] = ttarget.when %[[LOW]], %[[HIGH]], %[[F]] (
// CHECK-NEXT:          ttarget.elect
// CHECK-NEXT:            ttarget.acquire %[[RING]], %[[F]] :
// CHECK:                 ttarget.copy %{{.*}}, %[[RING]], %[[F]], %[[A]],
// CHECK:                 ttarget.copy %{{.*}}, %[[RING]], %[[F]], %[[B]],
// CHECK:               ttarget.advance %[[RING]], %[[F]]
// CHECK:             ttarget.mma_open
// CHECK-NEXT:        ttarget.steps %[[LOW]], %[[HIGH]], %{{.*}}, %[[R]], %[[F1]], %[[R]] {step = 64, is_nonempty = true}
// CHECK-NEXT:        ^bb0(%[[K:.*]]: !ttile.index, %{{.*}}, %[[HERE:.*]]: !ttarget.cursor, %[[NEXT:.*]]: !ttarget.cursor, %[[BEFORE:.*]]: !ttarget.cursor):
// CHECK-NEXT:          ttarget.await %[[RING]], %[[HERE]] :
// CHECK-NEXT:          ttarget.mma_issue %{{.*}}, %[[A]], %[[B]], %[[HERE]], %[[HERE]] :
// CHECK-NEXT:          ttarget.mma_wait {left = 1}
// CHECK-NEXT:          ttarget.release %[[RING]], %[[BEFORE]], %[[LOW]], %[[K]]
// CHECK-NEXT:          %[[LATER:.*]] = ttarget.index %[[K]] {names = ["i"], expr = i + 64}
// CHECK-NEXT:          ttarget.when %[[LATER]], %[[HIGH]], %[[NEXT]] (
// CHECK-NEXT:            ttarget.elect
// CHECK-NEXT:              ttarget.acquire %[[RING]], %[[NEXT]] :
// CHECK:             ttarget.mma_wait %{{.*}} : {{.*}} -> !ttarget.fragment<[64, 64], f32>
// CHECK-NEXT:        ttarget.release %[[RING]],
// CHECK:             ttarget.store_tile
ttile.kernel @nt(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction", roles = "uniform"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64, stages = 2} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[64, 64], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %15 = ttile.cast %13 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %17 = ttile.dot %15, %16, %12 : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %17 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %18 = ttile.cast %10 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  ttile.store %18, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [256, 512]} : (!ttile.tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// The same with a producer, where nobody says so.
// CHECK-LABEL: ttarget.matrix_kernel @plain__matrix(
// CHECK:         ttarget.roles
// CHECK-NOT:     ttarget.elect
ttile.kernel @plain(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64, stages = 2} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[64, 64], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %15 = ttile.cast %13 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %17 = ttile.dot %15, %16, %12 : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %17 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %18 = ttile.cast %10 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  ttile.store %18, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [256, 512]} : (!ttile.tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
