// RUN: tessera-opt %s --split -p 'cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2"]}' | filecheck %s

// A tile that is too large to be unrolled is gone over in parts, and what is reduced is halved in scratch.
// CHECK-LABEL: ttarget.kernel @columns(
// CHECK:         ttarget.loop %{{.*}} {step = 1}
// CHECK:           ttarget.loop %{{.*}} {step = 32}
// CHECK:             ttarget.load %{{.*}} -> !ttarget.vector<[1, 32], f32>
// CHECK-NEXT:        ttarget.elementwise %{{.*}} {fn = "mul"}
// CHECK-NEXT:        ttarget.store %{{.*}}, %[[SQUARES:.*]], %{{.*}}, %{{.*}} {coords = ["_0", "_1"]
// CHECK:         ttarget.loop %{{.*}} {step = 32}
// CHECK:           ttarget.load %[[SQUARES]], %{{.*}} -> !ttarget.vector<[1, 32], f32>
// CHECK-NEXT:      ttarget.index %{{.*}} {names = ["_by"], expr = _by + 64}
// CHECK-NEXT:      ttarget.load %[[SQUARES]], %{{.*}} -> !ttarget.vector<[1, 32], f32>
// CHECK-NEXT:      ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK:           ttarget.index %{{.*}} {names = ["_by"], expr = _by + 8}
// CHECK:           ttarget.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttarget.vector<[8, 32], f32>) -> !ttarget.vector<[32], f32>
ttile.kernel @columns(%x: !ttile.buffer<[100, 512], f32>, %y: !ttile.buffer<[512], f32>) attributes {symbols = [], grid = [1], writes = [1], schedule = {block = [100, 512]}} {
  %0 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %1 = ttile.load %x, %0, %0 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttile.buffer<[100, 512], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[100, 512], f32>
  %2 = ttile.elementwise %1, %1 {fn = "mul"} : (!ttile.tile<[100, 512], f32>, !ttile.tile<[100, 512], f32>) -> !ttile.tile<[100, 512], f32>
  %3 = ttile.reduce %2 {kind = "sum", axis = 0} : (!ttile.tile<[100, 512], f32>) -> !ttile.tile<[512], f32>
  ttile.store %3, %y, %0 {coords = ["_n"], axes = ["_n"], map = [_n], bounds = [-1]} : (!ttile.tile<[512], f32>, !ttile.buffer<[512], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// A dot of a transposed tile finds both of its operands in scratch, and packs them from there.
// CHECK-LABEL: ttarget.kernel @transposed(
// CHECK:         ttarget.store %{{.*}}, %[[A:.*]], %{{.*}}, %{{.*}} {coords = ["_0", "_1"], axes = ["_0", "_1"], offset = 40*_0 + _1
// CHECK:         ttarget.store %{{.*}}, %[[B:.*]], %{{.*}}, %{{.*}} {coords = ["_0", "_1"], axes = ["_0", "_1"], offset = 56*_0 + _1
// CHECK:         ttarget.block_dot %[[A]], %[[B]], %{{.*}} lhs_offset = 40*_inner_k + _row, rhs_offset = _col + 56*_inner_k, out_stride = 56, is_fresh = true}
ttile.kernel @transposed(%a: !ttile.buffer<[24, 40], f32>, %b: !ttile.buffer<[24, 56], f32>, %y: !ttile.buffer<[40, 56], f32>) attributes {symbols = [], grid = [1], writes = [2], schedule = {block = [40, 56, 24]}} {
  %0 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %1 = ttile.load %a, %0, %0 {coords = ["_k", "_m"], axes = ["_k", "_m"], map = [_k, _m], bounds = [-1, -1]} : (!ttile.buffer<[24, 40], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[24, 40], f32>
  %2 = ttile.transpose %1 : (!ttile.tile<[24, 40], f32>) -> !ttile.tile<[40, 24], f32>
  %3 = ttile.load %b, %0, %0 {coords = ["_k", "_n"], axes = ["_k", "_n"], map = [_k, _n], bounds = [-1, -1]} : (!ttile.buffer<[24, 56], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[24, 56], f32>
  %4 = ttile.constant {value = 0.0} : () -> !ttile.tile<[40, 56], f32>
  %5 = ttile.dot %2, %3, %4 : (!ttile.tile<[40, 24], f32>, !ttile.tile<[24, 56], f32>, !ttile.tile<[40, 56], f32>) -> !ttile.tile<[40, 56], f32>
  ttile.store %5, %y, %0, %0 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttile.tile<[40, 56], f32>, !ttile.buffer<[40, 56], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Rows are sorted in memory of the program: keys and places, each with room to merge into, in lines of their own.
// CHECK-LABEL: ttarget.kernel @sorted(
// CHECK:         %[[END:.*]] = ttarget.index {names = [], expr = s1}
// CHECK-NEXT:    %[[KEYS:.*]] = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[s1], f32>
// CHECK-NEXT:    %[[MERGED:.*]] = ttarget.scratch {offset = 64*((4*s1 + 63) floordiv 64)} : () -> !ttile.buffer<[s1], f32>
// CHECK-NEXT:    %[[AT:.*]] = ttarget.scratch {{.*}} : () -> !ttile.buffer<[s1], i64>
// CHECK-NEXT:    %[[MOVED:.*]] = ttarget.scratch {{.*}} : () -> !ttile.buffer<[s1], i64>
// CHECK:         ttarget.tail
// CHECK:         ttarget.sort %[[KEYS]], %[[AT]], %[[MERGED]], %[[MOVED]], %[[END]] :
// CHECK:         ttarget.load %[[KEYS]],
ttile.kernel @sorted(%0: !ttile.buffer<[s0, s1], f32>, %1: !ttile.buffer<[s0, s1], f32>) attributes {symbols = ["s0", "s1"], grid = [s0], writes = [1], kind = "library"} {
  %2 = ttile.program_id {axis = 0} : () -> !ttile.index
  %3 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %4 = ttile.index {names = [], expr = s1} : () -> !ttile.index
  %5 = ttile.scratch : () -> !ttile.buffer<[s1], f32>
  %6 = ttile.scratch : () -> !ttile.buffer<[s1], f32>
  %7 = ttile.scratch : () -> !ttile.buffer<[s1], i64>
  %8 = ttile.scratch : () -> !ttile.buffer<[s1], i64>
  ttile.for %3, %4 {step = 32} ({
  ^bb0(%9: !ttile.index):
    %10 = ttile.load %0, %2, %9 {coords = ["_i", "_j"], axes = ["_j"], map = [_i, _j], bounds = [s1]} : (!ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    ttile.store %10, %5, %9 {coords = ["_j"], axes = ["_j"], map = [_j], bounds = [s1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[s1], f32>, !ttile.index) -> ()
    %11 = ttile.coordinate %9 {coords = ["_j"], axes = ["_j"], expr = _j} : (!ttile.index) -> !ttile.tile<[32], i64>
    ttile.store %11, %7, %9 {coords = ["_j"], axes = ["_j"], map = [_j], bounds = [s1]} : (!ttile.tile<[32], i64>, !ttile.buffer<[s1], i64>, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.sort %5, %7, %6, %8, %4 : (!ttile.buffer<[s1], f32>, !ttile.buffer<[s1], i64>, !ttile.buffer<[s1], f32>, !ttile.buffer<[s1], i64>, !ttile.index) -> ()
  ttile.for %3, %4 {step = 32} ({
  ^bb0(%12: !ttile.index):
    %13 = ttile.load %5, %12 {coords = ["_j"], axes = ["_j"], map = [_j], bounds = [s1]} : (!ttile.buffer<[s1], f32>, !ttile.index) -> !ttile.tile<[32], f32>
    ttile.store %13, %1, %2, %12 {coords = ["_i", "_j"], axes = ["_j"], map = [_i, _j], bounds = [s1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
