// RUN: tessera-opt %s --split -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma,nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-pipeline-copies,nvptx-schedule-programs,nvptx-specialize-warps,nvptx-overlap-mma' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s

// K-major operands: a ring of pipeline stages, a producer that fills it and consumers that empty it, one dot in
// flight, and both roles in the same persistent walk through the grid; results leave through shared memory.
// CHECK-LABEL: ttarget.matrix_kernel @nt__matrix(
// CHECK-SAME:    features = ["wgmma", "tma", "setmaxnreg"], consumers = 1
// CHECK:         %[[A:.*]] = ttarget.shared_tile {offset = 0, stages = [[STAGES:[0-9]+]]} : () -> !ttarget.shared_tile<[64, 64], bf16>
// CHECK-NEXT:    %[[B:.*]] = ttarget.shared_tile {{.*}} stages = [[STAGES]]}
// CHECK:         %[[RING:.*]] = ttarget.ring %[[A]], %[[B]] {{.*}} stages = [[STAGES]]}
// CHECK:         ttarget.roles
// CHECK:           ttarget.tiles %{{.*}} {grid = [4, 8], group = 10}
// CHECK:             ttarget.steps %{{.*}} {step = 64}
// CHECK:               ttarget.acquire %[[RING]], %[[AT:.*]] :
// CHECK:               ttarget.copy %{{.*}}, %[[RING]], %[[AT]], %[[A]],
// CHECK:               ttarget.copy %{{.*}}, %[[RING]], %[[AT]], %[[B]],
// CHECK-NEXT:          ttarget.advance %[[RING]], %[[AT]]
// CHECK-NOT:       ttarget.acquire
// CHECK:           ttarget.tiles %{{.*}} {grid = [4, 8], group = 10}
// CHECK:             ttarget.mma_open
// CHECK:             ttarget.steps %{{.*}} {step = 64, is_nonempty = true}
// CHECK:               ttarget.await %[[RING]], %[[HERE:.*]] :
// CHECK-NEXT:          ttarget.mma_issue %{{.*}}, %[[A]], %[[B]], %[[HERE]], %[[HERE]] :
// CHECK-NEXT:          ttarget.mma_wait {left = 1}
// CHECK-NEXT:          ttarget.release %[[RING]]
// CHECK:             ttarget.mma_wait %{{.*}} : {{.*}} -> !ttarget.fragment<[64, 64], f32>
// CHECK:             ttarget.store_tile
// CHECK-NOT:     ttile.dot
ttile.kernel @nt(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64} ({
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
// A B operand whose rows are K is transposed by its descriptor: nothing is copied again.
// CHECK-LABEL: ttarget.matrix_kernel @nn__matrix(
// CHECK-COUNT-2: ttarget.copy
// CHECK-NOT:     ttarget.transpose
// CHECK:         ttarget.mma_issue {{.*}} {rhs_major = "mn"}
ttile.kernel @nn(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[192, 512], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[64, 64], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_k, _n], bounds = [192, 512]} : (!ttile.buffer<[192, 512], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
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
// What hangs over the edge is zeros of TMA inside, and bounds of the store outside.
// CHECK-LABEL: ttarget.matrix_kernel @ragged__matrix(
// CHECK:         ttarget.tiles %{{.*}} {grid = [2, 2], group = 10}
// CHECK-NOT:     ttarget.clip
// CHECK:         ttarget.store_tile {{.*}} bounds = [77, 100]}
ttile.kernel @ragged(%0: !ttile.buffer<[77, 33], bf16>, %1: !ttile.buffer<[100, 33], bf16>, %2: !ttile.buffer<[77, 100], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 33} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[64, 64], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [77, 33]} : (!ttile.buffer<[77, 33], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [33, 100]} : (!ttile.buffer<[100, 33], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %15 = ttile.cast %13 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %17 = ttile.dot %15, %16, %12 : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %17 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %18 = ttile.cast %10 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  ttile.store %18, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [77, 100]} : (!ttile.tile<[64, 64], bf16>, !ttile.buffer<[77, 100], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// An epilogue is arithmetic on fragments, each narrowing where Tile IR has it.
// CHECK-LABEL: ttarget.matrix_kernel @layer__matrix(
// CHECK:         %[[SUM:.*]] = ttarget.mma_wait
// CHECK:         %[[CUT:.*]] = ttarget.cast %[[SUM]] {rounding = "nearest_even"}
// CHECK:         ttarget.fragment_load %{{.*}} map = [_n]
// CHECK:         ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK-NEXT:    ttarget.cast %{{.*}} {rounding = "nearest_even"}
// CHECK:         ttarget.elementwise %{{.*}} {fn = "gelu_tanh"}
// CHECK-NEXT:    %[[OUT:.*]] = ttarget.cast %{{.*}} {rounding = "nearest_even"}
// CHECK-NEXT:    ttarget.store_tile %[[OUT]],
ttile.kernel @layer(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[192, 512], bf16>, %2: !ttile.buffer<[512], bf16>, %3: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [3], kind = "contraction"} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.index %4 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %6 = ttile.program_id {axis = 1} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %8 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %11 = ttile.for %9, %10, %8 {step = 64} ({
  ^bb0(%12: !ttile.index, %13: !ttile.tile<[64, 64], f32>):
    %14 = ttile.load %0, %5, %12 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %15 = ttile.load %1, %7, %12 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_k, _n], bounds = [192, 512]} : (!ttile.buffer<[192, 512], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %16 = ttile.cast %14 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %17 = ttile.cast %15 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %18 = ttile.dot %16, %17, %13 : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %18 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %19 = ttile.cast %11 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  %20 = ttile.cast %19 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
  %21 = ttile.load %2, %5, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [256, 512]} : (!ttile.buffer<[512], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
  %22 = ttile.cast %21 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
  %23 = ttile.elementwise %20, %22 {fn = "add"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %24 = ttile.cast %23 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  %25 = ttile.cast %24 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
  %26 = ttile.elementwise %25 {fn = "gelu_tanh"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %27 = ttile.cast %26 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  ttile.store %27, %3, %5, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [256, 512]} : (!ttile.tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Two dots in one loop: keys and values in rings of their own, and the scores of a step start before the values of the
// step before are added; the A operand of the second is a fragment packed where it stands.
// CHECK-LABEL: ttarget.matrix_kernel @attention__matrix(
// CHECK-COUNT-3: ttarget.ring
// CHECK:         ttarget.roles
// CHECK-COUNT-3:   ttarget.acquire
// CHECK:           ttarget.mma_issue
// CHECK:           %[[P:.*]] = ttarget.pack
// CHECK:           ttarget.steps
// CHECK:             %[[SCORES:.*]] = ttarget.mma_issue
// CHECK:             %[[VALUES:.*]] = ttarget.mma_issue {{.*}} {rhs_major = "mn"}
// CHECK:             ttarget.mma_wait %[[SCORES]] {left = 1}
// CHECK:             ttarget.reduce_rows %{{.*}} {kind = "max"}
// CHECK:             ttarget.mma_wait %[[VALUES]] :
// CHECK:         ttarget.store_tile
ttile.kernel @attention(%0: !ttile.buffer<[1, 2, 256, 64], bf16>, %1: !ttile.buffer<[1, 2, 384, 64], bf16>, %2: !ttile.buffer<[1, 2, 384, 64], bf16>, %3: !ttile.buffer<[1, 2, 256, 64], bf16>) attributes {symbols = [], grid = [1, 2, 2], writes = [3], kind = "library"} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.program_id {axis = 2} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_p"], expr = 192*_p} : (!ttile.index) -> !ttile.index
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %0, %4, %5, %7, %9 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], map = [_b, _h, _i, _d], bounds = [256, -1]} : (!ttile.buffer<[1, 2, 256, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[192, 64], bf16>
  %11 = ttile.cast %10 : (!ttile.tile<[192, 64], bf16>) -> !ttile.tile<[192, 64], f32>
  %12 = ttile.constant {value = 0.0} : () -> !ttile.tile<[192, 64], f32>
  %13 = ttile.constant {value = -inf} : () -> !ttile.tile<[192], f32>
  %14 = ttile.constant {value = 0.0} : () -> !ttile.tile<[192], f32>
  %15 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %16 = ttile.index {names = [], expr = 384} : () -> !ttile.index
  %17, %18, %19 = ttile.for %15, %16, %12, %13, %14 {step = 128} ({
  ^bb0(%20: !ttile.index, %21: !ttile.tile<[192, 64], f32>, %22: !ttile.tile<[192], f32>, %23: !ttile.tile<[192], f32>):
    %24 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %25 = ttile.constant {value = 0.0} : () -> !ttile.tile<[192, 128], f32>
    %26 = ttile.load %1, %4, %5, %20, %24 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], map = [_b, _g, _j, _d], bounds = [-1, -1]} : (!ttile.buffer<[1, 2, 384, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %28 = ttile.transpose %27 : (!ttile.tile<[128, 64], f32>) -> !ttile.tile<[64, 128], f32>
    %29 = ttile.dot %11, %28, %25 : (!ttile.tile<[192, 64], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
    %30 = ttile.reduce %29 {kind = "max", axis = 1} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192], f32>
    %31 = ttile.elementwise %22, %30 {fn = "max"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %32 = ttile.constant {value = -inf} : () -> !ttile.tile<[192], f32>
    %33 = ttile.elementwise %31, %32 {fn = "eq"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], bool>
    %34 = ttile.constant {value = 0.0} : () -> !ttile.tile<[192], f32>
    %35 = ttile.select %33, %34, %31 : (!ttile.tile<[192], bool>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %36 = ttile.constant {value = 0.18033688011112042} : () -> !ttile.tile<[192], f32>
    %37 = ttile.elementwise %35, %36 {fn = "mul"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %38 = ttile.elementwise %37 {fn = "neg"} : (!ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %39 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %40 = ttile.constant {value = 0.18033688011112042} : () -> !ttile.tile<[192, 128], f32>
    %41 = ttile.broadcast %38 {axes = [0]} : (!ttile.tile<[192], f32>) -> !ttile.tile<[192, 128], f32>
    %42 = ttile.elementwise %29, %40, %41 {fn = "fma"} : (!ttile.tile<[192, 128], f32>, !ttile.tile<[192, 128], f32>, !ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
    %43 = ttile.elementwise %42 {fn = "exp2"} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
    %44 = ttile.elementwise %22, %36, %38 {fn = "fma"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %45 = ttile.elementwise %44 {fn = "exp2"} : (!ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %46 = ttile.elementwise %23, %45 {fn = "mul"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %47 = ttile.reduce %43 {kind = "sum", axis = 1} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192], f32>
    %48 = ttile.elementwise %46, %47 {fn = "add"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
    %49 = ttile.broadcast %45 {axes = [0]} : (!ttile.tile<[192], f32>) -> !ttile.tile<[192, 64], f32>
    %50 = ttile.elementwise %21, %49 {fn = "mul"} : (!ttile.tile<[192, 64], f32>, !ttile.tile<[192, 64], f32>) -> !ttile.tile<[192, 64], f32>
    %51 = ttile.load %2, %4, %5, %8, %20 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], map = [_b, _g, _j, _e], bounds = [-1, -1]} : (!ttile.buffer<[1, 2, 384, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %52 = ttile.cast %43 {rounding = "nearest_even"} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], bf16>
    %53 = ttile.cast %52 : (!ttile.tile<[192, 128], bf16>) -> !ttile.tile<[192, 128], f32>
    %54 = ttile.cast %51 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %55 = ttile.dot %53, %54, %50 : (!ttile.tile<[192, 128], f32>, !ttile.tile<[128, 64], f32>, !ttile.tile<[192, 64], f32>) -> !ttile.tile<[192, 64], f32>
    ttile.yield %55, %31, %48 : (!ttile.tile<[192, 64], f32>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[192, 64], f32>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> (!ttile.tile<[192, 64], f32>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>)
  %56 = ttile.constant {value = 0.0} : () -> !ttile.tile<[192], f32>
  %57 = ttile.elementwise %19, %56 {fn = "eq"} : (!ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], bool>
  %58 = ttile.constant {value = 1.0} : () -> !ttile.tile<[192], f32>
  %59 = ttile.select %57, %58, %19 : (!ttile.tile<[192], bool>, !ttile.tile<[192], f32>, !ttile.tile<[192], f32>) -> !ttile.tile<[192], f32>
  %60 = ttile.broadcast %59 {axes = [0]} : (!ttile.tile<[192], f32>) -> !ttile.tile<[192, 64], f32>
  %61 = ttile.elementwise %17, %60 {fn = "div"} : (!ttile.tile<[192, 64], f32>, !ttile.tile<[192, 64], f32>) -> !ttile.tile<[192, 64], f32>
  %62 = ttile.cast %61 {rounding = "nearest_even"} : (!ttile.tile<[192, 64], f32>) -> !ttile.tile<[192, 64], bf16>
  ttile.store %62, %3, %4, %5, %7, %8 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [256, -1]} : (!ttile.tile<[192, 64], bf16>, !ttile.buffer<[1, 2, 256, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Sums of 8-bit floats are added up outside of the tensor cores after each step.
// CHECK-LABEL: ttarget.matrix_kernel @e4m3__matrix(
// CHECK:         ttarget.shared_tile {{.*}} : () -> !ttarget.shared_tile<[64, 128], f8e4m3>
// CHECK:         ttarget.steps %{{.*}} {step = 128, is_nonempty = true}
// CHECK:           ttarget.mma_add
// CHECK-NEXT:      ttarget.release
ttile.kernel @e4m3(%0: !ttile.buffer<[256, 256], f8e4m3>, %1: !ttile.buffer<[512, 256], f8e4m3>, %2: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 128} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[64, 64], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [256, 256]} : (!ttile.buffer<[256, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], f8e4m3>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [256, 512]} : (!ttile.buffer<[512, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], f8e4m3>
    %15 = ttile.cast %13 : (!ttile.tile<[64, 128], f8e4m3>) -> !ttile.tile<[64, 128], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[128, 64], f8e4m3>) -> !ttile.tile<[128, 64], f32>
    %17 = ttile.dot %15, %16, %12 : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %17 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %10, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [256, 512]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What multiplies nothing runs on plain threads.
// CHECK-LABEL: ttarget.kernel @doubled(
// CHECK-NOT:     ttarget.roles
ttile.kernel @doubled(%x: !ttile.buffer<[128], f32>, %y: !ttile.buffer<[128], f32>) attributes {symbols = [], grid = [4], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[128], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  %s = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
  ttile.return
}
