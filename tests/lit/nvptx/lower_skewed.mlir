// RUN: tessera-opt %s --split -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s

// Skewed attention: what a row has so far is kept in parts, one a thread, and joined behind the loop; two groups of warps
// take turns at the tensor cores, each with both dots of a step, and whole blocks of the mask are not clipped.
// CHECK-LABEL: ttarget.matrix_kernel @skewed__matrix(
// CHECK:         ttarget.when
// CHECK-NEXT:      %[[EMPTY:.*]] = ttarget.partial_rows : () -> !ttarget.partial_rows<[128], f32>
// CHECK:           ttarget.clip
// CHECK:           %[[FIRST:.*]] = ttarget.grow_rows %[[EMPTY]], %{{.*}}, %{{.*}} :
// CHECK:           ttarget.steps %{{.*}}, %[[FIRST]],
// CHECK:             ttarget.pingpong {mode = "take"}
// CHECK-NEXT:        %[[SCORES:.*]] = ttarget.mma_issue
// CHECK:             %[[VALUES:.*]] = ttarget.mma_issue {{.*}} {rhs_major = "mn"}
// CHECK-NEXT:        ttarget.pingpong {mode = "pass"}
// CHECK-NEXT:        ttarget.mma_wait %[[SCORES]] {left = 1}
// CHECK-NOT:         ttarget.clip
// CHECK:             ttarget.grow_rows
// CHECK:             ttarget.mma_wait %[[VALUES]] :
// CHECK:           ttarget.steps
// CHECK:             ttarget.pingpong {mode = "take"}
// CHECK:             ttarget.pingpong {mode = "pass"}
// CHECK:             ttarget.clip
// CHECK:           %[[SUM:.*]] = ttarget.join_rows %{{.*}} : (!ttarget.partial_rows<[128], f32>) -> !ttarget.row_vector<[128], f32>
// CHECK:         ttarget.store_tile
ttile.kernel @skewed(%0: !ttile.buffer<[1, 1, 256, 128], bf16>, %1: !ttile.buffer<[1, 1, 256, 128], bf16>, %2: !ttile.buffer<[1, 1, 256, 128], bf16>, %3: !ttile.buffer<[1, 1, 256, 128], bf16>) attributes {symbols = [], grid = [1, 1, 2], writes = [3], kind = "library", warpgroups = 2, scheduler = "dynamic", group = 16, descending = true, roles = "producer", registers = [24, 240], epilogue = "after"} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.program_id {axis = 2} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %0, %4, %5, %7, %9 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], map = [_b, _h, _i, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], stages = 2, ring = 0} : (!ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
  %11 = ttile.cast %10 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
  %12 = ttile.constant {value = 0.0} : () -> !ttile.tile<[128, 128], f32>
  %13 = ttile.constant {value = -inf} : () -> !ttile.tile<[128], f32>
  %14 = ttile.constant {value = 0.0} : () -> !ttile.tile<[128], f32>
  %15 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %16 = ttile.index %7 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
  %17, %18, %19 = ttile.for %15, %16, %12, %13, %14 {step = 128, stages = 2, form = "skewed", pingpong = true, awaits = [0], releases = [0]} ({
  ^bb0(%20: !ttile.index, %21: !ttile.tile<[128, 128], f32>, %22: !ttile.tile<[128], f32>, %23: !ttile.tile<[128], f32>):
    %24 = ttile.constant {value = 0.0} : () -> !ttile.tile<[128, 128], f32>
    %25 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %26 = ttile.load %1, %4, %5, %20, %25 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], map = [_b, _g, _j, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 1} : (!ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
    %28 = ttile.transpose %27 : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %29 = ttile.dot %11, %28, %24 {unit = "wgmma", instruction = [64, 128, 16], awaits = [1], releases = [1]} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %30 = ttile.clip %29, %7, %20 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttile.tile<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], f32>
    %31 = ttile.reduce %30 {kind = "max", axis = 1} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128], f32>
    %32 = ttile.elementwise %22, %31 {fn = "max"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %33 = ttile.constant {value = -inf} : () -> !ttile.tile<[128], f32>
    %34 = ttile.elementwise %32, %33 {fn = "eq"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], bool>
    %35 = ttile.constant {value = 0.0} : () -> !ttile.tile<[128], f32>
    %36 = ttile.select %34, %35, %32 : (!ttile.tile<[128], bool>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %37 = ttile.constant {value = 0.12751743082459868} : () -> !ttile.tile<[128], f32>
    %38 = ttile.elementwise %36, %37 {fn = "mul"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %39 = ttile.elementwise %38 {fn = "neg"} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %40 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %41 = ttile.constant {value = 0.12751743082459868} : () -> !ttile.tile<[128, 128], f32>
    %42 = ttile.broadcast %39 {axes = [0]} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128, 128], f32>
    %43 = ttile.elementwise %30, %41, %42 {fn = "fma"} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %44 = ttile.elementwise %43 {fn = "exp2"} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %45 = ttile.elementwise %22, %37, %39 {fn = "fma"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %46 = ttile.elementwise %45 {fn = "exp2"} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %47 = ttile.elementwise %23, %46 {fn = "mul"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %48 = ttile.reduce %44 {kind = "sum", axis = 1} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128], f32>
    %49 = ttile.elementwise %47, %48 {fn = "add"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    %50 = ttile.broadcast %46 {axes = [0]} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128, 128], f32>
    %51 = ttile.elementwise %21, %50 {fn = "mul"} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %52 = ttile.load %2, %4, %5, %8, %20 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], map = [_b, _g, _j, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 2} : (!ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
    %53 = ttile.cast %44 {rounding = "nearest_even"} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], bf16>
    %54 = ttile.cast %53 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
    %55 = ttile.cast %52 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
    %56 = ttile.dot %54, %55, %51 {unit = "wgmma", instruction = [64, 128, 16], awaits = [2], releases = [2]} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    ttile.yield %56, %32, %49 : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 128], f32>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> (!ttile.tile<[128, 128], f32>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>)
  %57 = ttile.constant {value = 0.0} : () -> !ttile.tile<[128], f32>
  %58 = ttile.elementwise %19, %57 {fn = "eq"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], bool>
  %59 = ttile.constant {value = 1.0} : () -> !ttile.tile<[128], f32>
  %60 = ttile.select %58, %59, %19 : (!ttile.tile<[128], bool>, !ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
  %61 = ttile.broadcast %60 {axes = [0]} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128, 128], f32>
  %62 = ttile.elementwise %17, %61 {fn = "div"} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
  %63 = ttile.cast %62 {rounding = "nearest_even"} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], bf16>
  ttile.store %63, %3, %4, %5, %7, %8 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 64, 64]} : (!ttile.tile<[128, 128], bf16>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Consumers of 8-bit floats set out one after the other, so that one adds up while another multiplies; results that TMA
// cannot take leave from registers.
// CHECK-LABEL: ttarget.matrix_kernel @eighths__matrix(
// CHECK:         ttarget.roles
// CHECK:           ttarget.acquire
// CHECK:           ttarget.lag %[[RING:.*]], %{{.*}} : (!ttarget.ring, !ttarget.cursor) -> ()
// CHECK:           ttarget.await %[[RING]],
// CHECK-NEXT:      ttarget.mma_add
// CHECK:           ttarget.elementwise %{{.*}} {fn = "relu"}
// CHECK-NEXT:      %[[OUT:.*]] = ttarget.cast %{{.*}} -> !ttarget.fragment<[192, 128], f8e4m3>
// CHECK-NEXT:      ttarget.fragment_store %[[OUT]], %2,
// CHECK-NOT:     ttarget.store_tile
ttile.kernel @eighths(%0: !ttile.buffer<[8192, 4096], f8e4m3>, %1: !ttile.buffer<[8192, 4096], f8e4m3>, %2: !ttile.buffer<[8192, 8192], f8e4m3>) attributes {symbols = [], grid = [43, 64], writes = [2], kind = "contraction", warpgroups = 3, scheduler = "persistent", group = 8, roles = "producer", registers = [24, 160], epilogue = "after", lag = 1} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 192*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[192, 128], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 4096} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 128, stages = 5, form = "ordered"} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[192, 128], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [8192, 4096], space = "shared", layout = "rows", swizzle = 128, box = [192, 128], ring = 0} : (!ttile.buffer<[8192, 4096], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[192, 128], f8e4m3>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [4096, 8192], space = "shared", layout = "columns", swizzle = 128, box = [128, 128], ring = 0} : (!ttile.buffer<[8192, 4096], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], f8e4m3>
    %15 = ttile.cast %13 : (!ttile.tile<[192, 128], f8e4m3>) -> !ttile.tile<[192, 128], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[128, 128], f8e4m3>) -> !ttile.tile<[128, 128], f32>
    %17 = ttile.dot %15, %16, %12 {unit = "wgmma", instruction = [64, 128, 32], awaits = [0], releases = [0]} : (!ttile.tile<[192, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
    ttile.yield %17 : (!ttile.tile<[192, 128], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
  %18 = ttile.cast %10 {rounding = "nearest_even"} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f8e4m3>
  %19 = ttile.cast %18 : (!ttile.tile<[192, 128], f8e4m3>) -> !ttile.tile<[192, 128], f32>
  %20 = ttile.elementwise %19 {fn = "relu"} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f32>
  %21 = ttile.cast %20 {rounding = "nearest_even"} : (!ttile.tile<[192, 128], f32>) -> !ttile.tile<[192, 128], f8e4m3>
  ttile.store %21, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [8192, 8192], space = "registers"} : (!ttile.tile<[192, 128], f8e4m3>, !ttile.buffer<[8192, 8192], f8e4m3>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// A product that no tensor core takes is a dot of vectors, in whole steps and in a tail that is guarded.
// CHECK-LABEL: ttarget.kernel @threads(
// CHECK:         ttarget.loop
// CHECK:           %[[A:.*]] = ttarget.load %0,
// CHECK-NEXT:      %[[B:.*]] = ttarget.load %1,
// CHECK-NEXT:      ttarget.dot %[[A]], %[[B]], %{{.*}} :
// CHECK:         ttarget.tail
// CHECK:           ttarget.load %0, {{.*}} guarded =
// CHECK:           ttarget.dot
ttile.kernel @threads(%0: !ttile.buffer<[4, 8], f32>, %1: !ttile.buffer<[8, 16], f32>, %2: !ttile.buffer<[16], f32>, %3: !ttile.buffer<[4, 16], f32>) attributes {symbols = [], grid = [1, 1], writes = [3], kind = "contraction", reasons = ["wgmma: there is no `wgmma` of f32 by f32 into f32"], nvptx.threads = 256} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.index %4 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
  %6 = ttile.program_id {axis = 1} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %8 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.index {names = [], expr = 8} : () -> !ttile.index
  %11 = ttile.for %9, %10, %8 {step = 64} ({
  ^bb0(%12: !ttile.index, %13: !ttile.tile<[64, 64], f32>):
    %14 = ttile.load %0, %5, %12 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [4, 8]} : (!ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f32>
    %15 = ttile.load %1, %7, %12 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_k, _n], bounds = [8, 16]} : (!ttile.buffer<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f32>
    %16 = ttile.dot %14, %15, %13 {unit = "multiply-adds"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %16 : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %17 = ttile.load %2, %5, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [4, 16]} : (!ttile.buffer<[16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f32>
  %18 = ttile.elementwise %11, %17 {fn = "add"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %18, %3, %5, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [4, 16]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[4, 16], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What follows the dots of a program is left to the next: its pieces are finished between the dots of that one.
// CHECK-LABEL: ttarget.matrix_kernel @beside__matrix(
// CHECK:         ttarget.mma_open
// CHECK:         ttarget.steps
// CHECK:         %[[SUM:.*]] = ttarget.mma_wait
// CHECK:         %[[CUT:.*]] = ttarget.cast %[[SUM]] {rounding = "nearest_even"}
// CHECK-NEXT:    ttarget.epilogue %[[CUT]] {pieces = 4}
// CHECK:           ttarget.elementwise %{{.*}} {fn = "relu"}
// CHECK:           ttarget.store_tile
ttile.kernel @beside(%0: !ttile.buffer<[8192, 4096], bf16>, %1: !ttile.buffer<[8192, 4096], bf16>, %2: !ttile.buffer<[8192, 8192], bf16>) attributes {symbols = [], grid = [64, 32], writes = [2], kind = "contraction", warpgroups = 2, scheduler = "persistent", group = 16, multicast = true, roles = "producer", registers = [40, 232], epilogue = "beside"} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index %3 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.index %5 {names = ["_n"], expr = 256*_n} : (!ttile.index) -> !ttile.index
  %7 = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 4096} : () -> !ttile.index
  %10 = ttile.for %8, %9, %7 {step = 64, stages = 4, form = "sum"} ({
  ^bb0(%11: !ttile.index, %12: !ttile.tile<[128, 256], f32>):
    %13 = ttile.load %0, %4, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, _k], bounds = [8192, 4096], space = "shared", layout = "rows", swizzle = 128, box = [128, 64], ring = 0} : (!ttile.buffer<[8192, 4096], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %14 = ttile.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [_n, _k], bounds = [4096, 8192], space = "shared", layout = "columns", swizzle = 128, box = [256, 64], ring = 0} : (!ttile.buffer<[8192, 4096], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %15 = ttile.cast %13 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %16 = ttile.cast %14 : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %17 = ttile.dot %15, %16, %12 {unit = "wgmma", instruction = [64, 256, 16], awaits = [0], releases = [0]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %17 : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  %18 = ttile.cast %10 {rounding = "nearest_even"} : (!ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], bf16>
  %19 = ttile.cast %18 : (!ttile.tile<[128, 256], bf16>) -> !ttile.tile<[128, 256], f32>
  %20 = ttile.elementwise %19 {fn = "relu"} : (!ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  %21 = ttile.cast %20 {rounding = "nearest_even"} : (!ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], bf16>
  ttile.store %21, %2, %4, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [8192, 8192], space = "shared", layout = "rows", swizzle = 128, box = [64, 64]} : (!ttile.tile<[128, 256], bf16>, !ttile.buffer<[8192, 8192], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
