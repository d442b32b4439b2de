// RUN: tessera-opt %s --split -p 'graph-decompose,schedule-form-groups,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2"], is_checked = true}' | filecheck %s

// What ops become on a CPU; each kernel is compared with its tile kernel as it is lowered.

// Bits are taken as they are.
// CHECK-LABEL: tsched.module @bitcast(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttarget.bitcast %[[V0]] : {{.*}} -> !ttarget.vector<{{.*}}, i32>
// CHECK-NEXT:  ttarget.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4}
tgraph.func @bitcast(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitcast %x0 {dtype = i32, source = f32} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// Coordinates are made of the program's index, and rounded once.
// CHECK-LABEL: tsched.module @iota(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.coordinate %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], expr = _p0} : {{.*}} -> !ttarget.vector<{{.*}}, i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttarget.cast %[[V0]] {rounding = "nearest_even"} : {{.*}} -> !ttarget.vector<{{.*}}, f32>
tgraph.func @iota() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.iota {shape = [7], axis = 0, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// Rows of positions beside rows of values, reduced together.
// CHECK-LABEL: tsched.module @argmax(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.elementwise %[[BEST:[a-z0-9]+]], %[[BEST]] {fn = "eq"}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttarget.elementwise %{{[a-z0-9]+}} {fn = "not"}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttarget.elementwise %[[V1]], %[[V0]] {fn = "and"}
// CHECK:       %[[V3:[a-z0-9]+]] = ttarget.arg_reduce %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {kind = "argmax", axis = 0} : {{.*}} -> !ttarget.vector<[], i64>
// CHECK:       %[[V4:[a-z0-9]+]] = ttarget.elementwise %[[V3]], %{{[a-z0-9]+}} {fn = "eq"}
tgraph.func @argmax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmax %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// What a row has once is broadcast over it.
// CHECK-LABEL: tsched.module @softmax_safe(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.reduce %{{[a-z0-9]+}} {kind = "max", axis = 0} : {{.*}} -> !ttarget.vector<[], f32>
// CHECK:       %[[V1:[a-z0-9]+]] = ttarget.elementwise %[[V0]], %{{[a-z0-9]+}} {fn = "max"}
// CHECK:       %[[V2:[a-z0-9]+]] = ttarget.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_r"], axes = ["_r"], offset = N16*_p0 + _r, pattern = "contiguous", align = 4}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttarget.broadcast %[[V1]] {axes = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttarget.elementwise %[[V2]], %[[V3]] {fn = "sub"}
tgraph.func @softmax_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32> attributes {names = ["x0"]} {
  %0 = tgraph.softmax_safe %x0 : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], f32>) -> ()
}
// -----
// An index that is one for a whole row is fetched, and the row loaded from there.
// CHECK-LABEL: tsched.module @index_legal(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.fetch %1, %{{[a-z0-9]+}} {coords = ["_p0"], offset = _p0}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttarget.load %0, %{{[a-z0-9]+}}, %[[V0]] {coords = ["_p1", "_t0"], axes = ["_p1"], offset = N4*_t0 + _p1, pattern = "contiguous", align = 4}
tgraph.func @index_legal(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.index_legal %x0, %x1 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// Rounded by the bits that it is given.
// CHECK-LABEL: tsched.module @round_stochastic(
// CHECK:       ttarget.kernel @
// CHECK:       %[[V0:[a-z0-9]+]] = ttarget.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttarget.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttarget.round %[[V0]], %[[V1]] {format = "bf16", rounding = "stochastic"}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttarget.cast %[[V2]] {rounding = "nearest_even"} : {{.*}} -> !ttarget.vector<{{.*}}, bf16>
tgraph.func @round_stochastic(%x0: !tgraph.tensor<[N323], f32>, %x1: !tgraph.tensor<[N323], u32>) -> !tgraph.tensor<[N323], bf16> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.round_stochastic %x0, %x1 {format = "bf16"} : (!tgraph.tensor<[N323], f32>, !tgraph.tensor<[N323], u32>) -> !tgraph.tensor<[N323], bf16>
  tgraph.return %0 : (!tgraph.tensor<[N323], bf16>) -> ()
}
// -----
// A leaf of a tensor beyond the caches is touched in order, before it is read far apart.
// CHECK-LABEL: tsched.module @leaves(
// CHECK:       ttarget.loop
// CHECK:       ttarget.prefetch %0, {{.*}}elements = 1024, ahead = 4096}
// CHECK-NEXT:  ttarget.loop
tgraph.func @leaves(%x0: !tgraph.tensor<[4096, 4096], f32>) -> !tgraph.tensor<[4096], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sum %x0 {axes = [1], accumulate = f32} : (!tgraph.tensor<[4096, 4096], f32>) -> !tgraph.tensor<[4096], f32>
  tgraph.return %0 : (!tgraph.tensor<[4096], f32>) -> ()
}
