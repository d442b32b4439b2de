// RUN: tessera-opt %s --split -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma,nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-pipeline-copies,nvptx-schedule-programs,nvptx-specialize-warps,nvptx-overlap-mma' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s

// A dequantized weight: its bytes are copied beside the other operand, threads read them from the stage and compute the
// A operand, with scales that the step before has loaded, while the dot of the step before is in flight. Two steps have
// registers of their own; the result is that of the weight by columns, and is stored transposed.
// CHECK-LABEL: ttarget.matrix_kernel @dequantized__matrix(
// CHECK:         %[[X:.*]] = ttarget.shared_tile {{.*}} -> !ttarget.shared_tile<[8, 128], bf16>
// CHECK-NEXT:    %[[W:.*]] = ttarget.shared_tile {{.*}} -> !ttarget.shared_tile<[64, 128], i8>
// CHECK-NEXT:    %[[RING:.*]] = ttarget.ring %[[X]], %[[W]]
// CHECK:         ttarget.copy %{{.*}}, %[[RING]], %[[AT:.*]], %[[X]],
// CHECK:         ttarget.copy %{{.*}}, %[[RING]], %[[AT]], %[[W]],
// CHECK:         ttarget.steps {{.*}} {step = 128, is_nonempty = true, copies = 2}
// CHECK:           ttarget.broadcast {{.*}} : (!ttarget.row_vector<[64], f32>) -> !ttarget.fragment<[64, 128], f32>
// CHECK:           ttarget.fragment_load {{.*}} -> !ttarget.row_vector<[64], f32>
// CHECK-NEXT:      ttarget.await %[[RING]], %[[HERE:.*]] :
// CHECK-NEXT:      %[[Q:.*]] = ttarget.fragment_read %[[W]], %[[HERE]] : {{.*}} -> !ttarget.fragment<[64, 128], i8>
// CHECK-NEXT:      ttarget.cast %[[Q]]
// CHECK:           %[[A:.*]] = ttarget.pack
// CHECK:           ttarget.mma_issue %{{.*}}, %[[A]], %[[X]], %[[HERE]], %[[HERE]]
// CHECK-NEXT:      ttarget.mma_wait {left = 1}
// CHECK-NEXT:      ttarget.release
// CHECK:         ttarget.fragment_store {{.*}} axes = ["_n", "_m"], map = [_m, _n]
ttile.kernel @dequantized(%0: !ttile.buffer<[8, 256], bf16>, %1: !ttile.buffer<[128, 256], i8>, %2: !ttile.buffer<[128, 1, 2, 1], f32>, %3: !ttile.buffer<[8, 128], bf16>) attributes {symbols = [], grid = [1, 2], writes = [3], kind = "contraction"} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.index %4 {names = ["_m"], expr = 8*_m} : (!ttile.index) -> !ttile.index
  %6 = ttile.program_id {axis = 1} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %8 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 8], f32>
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %2, %7, %9 {coords = ["_n", "_k"], axes = ["_n"], map = [_n, 0, (_k floordiv 128), 0], bounds = [128]} : (!ttile.buffer<[128, 1, 2, 1], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64], f32>
  %11 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %12 = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %13, %14 = ttile.for %11, %12, %8, %10 {step = 128} ({
  ^bb0(%15: !ttile.index, %16: !ttile.tile<[64, 8], f32>, %17: !ttile.tile<[64], f32>):
    %18 = ttile.broadcast %17 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
    %19 = ttile.index %15 {names = ["_k"], expr = ((_k + 128) mod 256)} : (!ttile.index) -> !ttile.index
    %20 = ttile.load %2, %7, %19 {coords = ["_n", "_k"], axes = ["_n"], map = [_n, 0, (_k floordiv 128), 0], bounds = [128]} : (!ttile.buffer<[128, 1, 2, 1], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64], f32>
    %21 = ttile.load %1, %7, %15 {coords = ["_n", "_k"], axes = ["_n", "_k"], map = [_n, _k], bounds = [128, 256]} : (!ttile.buffer<[128, 256], i8>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], i8>
    %22 = ttile.cast %21 : (!ttile.tile<[64, 128], i8>) -> !ttile.tile<[64, 128], f32>
    %23 = ttile.elementwise %22, %18 {fn = "mul"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %24 = ttile.cast %23 {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
    %25 = ttile.cast %24 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
    %26 = ttile.load %0, %5, %15 {coords = ["_m", "_k"], axes = ["_k", "_m"], map = [_m, _k], bounds = [256, 8]} : (!ttile.buffer<[8, 256], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 8], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 8], bf16>) -> !ttile.tile<[128, 8], f32>
    %28 = ttile.dot %25, %27, %16 : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 8], f32>, !ttile.tile<[64, 8], f32>) -> !ttile.tile<[64, 8], f32>
    ttile.yield %28, %20 : (!ttile.tile<[64, 8], f32>, !ttile.tile<[64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 8], f32>, !ttile.tile<[64], f32>) -> (!ttile.tile<[64, 8], f32>, !ttile.tile<[64], f32>)
  %29 = ttile.cast %13 {rounding = "nearest_even"} : (!ttile.tile<[64, 8], f32>) -> !ttile.tile<[64, 8], bf16>
  ttile.store %29, %3, %5, %7 {coords = ["_m", "_n"], axes = ["_n", "_m"], map = [_m, _n], bounds = [128, 8]} : (!ttile.tile<[64, 8], bf16>, !ttile.buffer<[8, 128], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
