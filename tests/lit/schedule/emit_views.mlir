// RUN: tessera-opt %s --split -p schedule-form-groups,schedule-emit-tiles | filecheck %s

// Values made from coordinates and sizes, and views: the index map of each load says which element is read.

// Each element its own position along one axis.
// CHECK-LABEL: tsched.module @iota(
// CHECK:       ttile.kernel @{{.*}}writes = [0]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], expr = _p0} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.cast %[[V0]] {rounding = "nearest_even"} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  ttile.store %[[V1]], %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [7]}
tgraph.func @iota() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.iota {shape = [7], axis = 0, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// Ones on a diagonal, zeros elsewhere; rows that are shorter than vectors are walked as one.
// CHECK-LABEL: tsched.module @eye(
// CHECK:       ttile.kernel @{{.*}}writes = [0]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], expr = (_p0 floordiv 5)} : {{.*}} -> !ttile.tile<[40], i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.constant {value = 1} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], expr = (_p0 mod 5)} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V3]] {fn = "eq"}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.select %[[V4]], %[[V1]], %[[V2]]
// CHECK-NEXT:  ttile.store %[[V5]], %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [25]}
tgraph.func @eye() -> !tgraph.tensor<[5, 5], f32> {
  %0 = tgraph.eye {shape = [5, 5], dtype = f32} : () -> !tgraph.tensor<[5, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 5], f32>) -> ()
}
// -----
// Evenly spaced numbers from `start` to `stop`, computed in f64 and rounded once.
// CHECK-LABEL: tsched.module @linspace(
// CHECK:       ttile.kernel @{{.*}}writes = [0]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], expr = _p0} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.cast %[[V0]] {rounding = "nearest_even"} : {{.*}} -> !ttile.tile<{{.*}}, f64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.constant {value = 0.5} : {{.*}} -> !ttile.tile<{{.*}}, f64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.elementwise %[[V1]], %[[V2]] {fn = "mul"}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.constant {value = -1.0} : {{.*}} -> !ttile.tile<{{.*}}, f64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.elementwise %[[V3]], %[[V4]] {fn = "add"}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = ttile.constant {value = 6} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V6]] {fn = "eq"}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = ttile.constant {value = 2.0} : {{.*}} -> !ttile.tile<{{.*}}, f64>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = ttile.select %[[V7]], %[[V8]], %[[V5]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = ttile.cast %[[V9]] {rounding = "nearest_even"} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  ttile.store %[[V10]], %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [7]}
tgraph.func @linspace() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.linspace {start = -1.0, stop = 2.0, num = 7, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// The product of some sizes as an i64 scalar.
// CHECK-LABEL: tsched.module @dim_size(
// CHECK:       ttile.kernel @{{.*}}writes = [0]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = 7} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  ttile.store %[[V0]], %0 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @dim_size() -> !tgraph.tensor<[], i64> {
  %0 = tgraph.dim_size {dims = [7]} : () -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// The elements on and below a diagonal; zeros above it.
// CHECK-LABEL: tsched.module @tril(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N5]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], expr = _p0} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p1"], axes = ["_p1"], expr = _p1} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.elementwise %[[V1]], %[[V2]] {fn = "ge"}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.select %[[V4]], %[[V0]], %[[V3]]
// CHECK-NEXT:  ttile.store %[[V5]], %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N5]}
tgraph.func @tril(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tril %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], f32>) -> ()
}
// -----
// The elements on and above a diagonal; zeros below it.
// CHECK-LABEL: tsched.module @triu(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N5]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], expr = _p0} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_p1"], axes = ["_p1"], expr = _p1} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.elementwise %[[V1]], %[[V2]] {fn = "le"}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.select %[[V4]], %[[V0]], %[[V3]]
// CHECK-NEXT:  ttile.store %[[V5]], %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N5]}
tgraph.func @triu(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.triu %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], f32>) -> ()
}
// -----
// The elements whose indices along two axes are equal; the first of the two axes stays.
// CHECK-LABEL: tsched.module @diagonal(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0, _p0], bounds = [N5]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N5]}
tgraph.func @diagonal(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.diagonal %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5], f32>) -> ()
}
// -----
// Stretched to a shape: trailing dims aligned, dims of 1 repeated.
// CHECK-LABEL: tsched.module @broadcast_to(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [0], bounds = [15]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [15]}
tgraph.func @broadcast_to(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.broadcast_to %x0 {shape = [3, 5]} : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], f32>) -> ()
}
// -----
// Elements moved along axes by shifts; what leaves at one end comes in at the other.
// CHECK-LABEL: tsched.module @roll(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [((_p0 - 2) mod N7)], bounds = [N7]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N7]}
tgraph.func @roll(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.roll %x0 {shifts = [2], axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// The whole repeated along each axis.
// CHECK-LABEL: tsched.module @tile(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [(_p0 mod N5)], bounds = [3*N5]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [3*N5]}
tgraph.func @tile(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tile %x0 {reps = [3]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// Each element several times in a row along one axis.
// CHECK-LABEL: tsched.module @repeat(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [(_p0 floordiv 3)], bounds = [3*N5]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [3*N5]}
tgraph.func @repeat(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.repeat %x0 {repeats = 3, axis = 0} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// One element for each legal index along an axis; other axes broadcast.
// CHECK-LABEL: tsched.module @take_along_legal(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N3]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %[[V0]] {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, t0], bounds = [N3]}
// CHECK-NEXT:  ttile.store %[[V1]], %2, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1"], axes = ["_p1"], map = [_p0, _p1], bounds = [N3]}
tgraph.func @take_along_legal(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_legal %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// Operands of one shape stacked along a new axis.
// CHECK-LABEL: tsched.module @stack(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N3]}
// CHECK-NEXT:  ttile.store %[[V0]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N3]}
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N3]}
// CHECK-NEXT:  ttile.store %[[V0]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [N3 + _p0], bounds = [N3]}
tgraph.func @stack(%x0: !tgraph.tensor<[N3], f32>, %x1: !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.stack %x0, %x1 {axis = 0} : (!tgraph.tensor<[N3], f32>, !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, N3], f32>) -> ()
}
// -----
// The operand with a border of one value.
// CHECK-LABEL: tsched.module @pad(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = 0.0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [2]}
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = 0.0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [N5 + _p0 + 2], bounds = [1]}
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N5]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0 + 2], bounds = [N5]}
tgraph.func @pad(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32> attributes {names = ["x0"]} {
  %0 = tgraph.pad %x0 {low = [2], high = [1]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5 + 3], f32>) -> ()
}
// -----
// The same, each element read where it is wanted: one kernel, which reads the border where the index is out of bounds.
// CHECK-LABEL: tsched.module @pad_gather(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0 - 2], bounds = [N5 + 3], windows = [_p0 - 2, N5], pad = 0.0}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N5 + 3]}
tgraph.func @pad_gather(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32> attributes {names = ["x0"]} {
  %0 = tgraph.pad_gather %x0 {low = [2], high = [1]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5 + 3], f32>) -> ()
}
// -----
// The contraction under conv1d and conv2d: w[G?, O, C, ...] over windows of x[N, G?, C, ...].
// CHECK-LABEL: tsched.module @conv_windows(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<[64, 128], f32>
// CHECK:       %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [_m, (_k mod N2), (_k floordiv N2)], bounds = [N3, N2*N3]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_b0", "_n", "_k"], axes = ["_k", "_n"], map = [_b0, (_k mod N2), (_k floordiv N2) + 2*_n - 1], bounds = [N2*N3, ((-N3 + N8 + 1) floordiv 2) + 1], windows = [(_k floordiv N2) + 2*_n - 1, N8]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.dot %[[V1]], %[[V2]], %{{[a-z0-9]+}}
// CHECK:       ttile.store %{{[a-z0-9]+}}, %2, %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_b0", "_m", "_n"], axes = ["_m", "_n"], map = [_b0, _m, _n], bounds = [N3, ((-N3 + N8 + 1) floordiv 2) + 1]}
tgraph.func @conv_windows(%x0: !tgraph.tensor<[N3, N2, N3], f32>, %x1: !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.conv_windows %x0, %x1 {stride = [2], dilation = [1], low = [1], high = [0]} : (!tgraph.tensor<[N3, N2, N3], f32>, !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>) -> ()
}
// -----
// The sums for weights: K is images and then positions, columns are channels in and taps, zeros outside of the image.
// CHECK-LABEL: tsched.module @conv_weights(
// CHECK:       ttile.kernel @{{.*}}grid = [((N3 + 63) floordiv 64), ((3*N2 + 127) floordiv 128)], writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_m", "_k"], axes = ["_m", "_k"], map = [(_k floordiv N4), _m, (_k mod N4)], bounds = [N3, N2*N4]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_n", "_k"], axes = ["_k", "_n"], map = [(_k floordiv N4), (_n floordiv 3), 2*(_k mod N4) + (_n mod 3) - 1], bounds = [N2*N4, 3*N2], windows = [2*(_k mod N4) + (_n mod 3) - 1, N8]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.dot %[[V0]], %[[V1]], %{{[a-z0-9]+}}
// CHECK:       ttile.store %{{[a-z0-9]+}}, %2, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, (_n floordiv 3), (_n mod 3)], bounds = [N3, 3*N2]}
tgraph.func @conv_weights(%x0: !tgraph.tensor<[N2, N3, N4], f32>, %x1: !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N3, N2, 3], f32> attributes {names = ["x0", "x1"], guards = [[dim<N4>, dim<(N8 floordiv 2)>, "the op's rule"]]} {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3], stride = [2], dilation = [1], low = [1], high = [0]} : (!tgraph.tensor<[N2, N3, N4], f32>, !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N3, N2, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N2, 3], f32>) -> ()
}
// -----
// What windows read, side by side: an element at a sum of steps, zero outside of the operand.
// CHECK-LABEL: tsched.module @unfold(
// CHECK:       ttile.kernel @{{.*}}grid = [5, 3, ((N2 + 4095) floordiv 4096)], writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1", "_p2"], axes = ["_p2"], map = [2*_p0 + _p1 - 1, _p2], bounds = [N2], windows = [2*_p0 + _p1 - 1, 9]}
// CHECK-NEXT:  ttile.store %[[V0]], %1, %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {coords = ["_p0", "_p1", "_p2"], axes = ["_p2"], map = [_p0, _p1, _p2], bounds = [N2]}
tgraph.func @unfold(%x0: !tgraph.tensor<[9, N2], f32>) -> !tgraph.tensor<[5, 3, N2], f32> attributes {names = ["x0"]} {
  %0 = tgraph.unfold %x0 {shape = [5, 3, N2], steps = [2, 1, 0, 0, 0, 1], low = [1, 0]} : (!tgraph.tensor<[9, N2], f32>) -> !tgraph.tensor<[5, 3, N2], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 3, N2], f32>) -> ()
}
// -----
// Parts of a split are views, each shifted by those before it; a part is a kernel of its own.
// CHECK-LABEL: tsched.module @split(
// CHECK:       ttile.kernel @[[FIRST:.*]](%[[X:.*]]: !ttile.buffer<[B, N + 3], f32>, %{{.*}}: !ttile.buffer<[B, 3], f32>)
// CHECK:         ttile.load %[[X]], {{.*}} map = [_p0, _p1], bounds = [3]}
// CHECK:       ttile.kernel @[[SECOND:.*]](%[[Y:.*]]: !ttile.buffer<[B, N + 3], f32>, %{{.*}}: !ttile.buffer<[B, N], f32>)
// CHECK:         ttile.load %[[Y]], {{.*}} map = [_p0, _p1 + 3], bounds = [N]}
tgraph.func @split(%x: !tgraph.tensor<[B, N + 3], f32>) -> (!tgraph.tensor<[B, 3], f32>, !tgraph.tensor<[B, N], f32>) {
  %q, %k = tgraph.split %x {sizes = [3, N], axis = 1} : (!tgraph.tensor<[B, N + 3], f32>) -> (!tgraph.tensor<[B, 3], f32>, !tgraph.tensor<[B, N], f32>)
  tgraph.return %q, %k : (!tgraph.tensor<[B, 3], f32>, !tgraph.tensor<[B, N], f32>) -> ()
}
