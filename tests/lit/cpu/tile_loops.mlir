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
