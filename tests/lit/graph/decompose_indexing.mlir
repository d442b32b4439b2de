// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Indices are counted from the end where negative and made legal before anything is read or written with them.

// x[...] with integer arrays along some axes; negative indices count from the end, and `mode` says what others out of bounds do.
// CHECK-LABEL: tgraph.func @index_get(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.lt %x1, %[[V0]]
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.dim_size {dims = [N5]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.add %x1, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.where %[[V1]], %[[V3]], %x1
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.dim_size {dims = [N5 - 1]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.clamp %[[V4]], %[[V0]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.index_legal %x0, %[[V6]] {axes = [0]}
// CHECK-NEXT:  tgraph.return %[[V7]]
tgraph.func @index_get(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.index_get %x0, %x1 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// Elements or slices named by the last axis of `indices`; negative indices count from the end, and `mode` says what others out of bounds do.
// CHECK-LABEL: tgraph.func @gather(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x1 {start = [0, 0], stop = [4, 1], step = [1, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [4]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x1 {start = [0, 1], stop = [4, 2], step = [1, 1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = [4]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.lt %[[V1]], %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.full {value = 5.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.add %[[V1]], %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.where %[[V5]], %[[V7]], %[[V1]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.full {value = 4.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.clamp %[[V8]], %[[V4]], %[[V9]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.lt %[[V3]], %[[V11]]
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.full {value = 6.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.add %[[V3]], %[[V13]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.where %[[V12]], %[[V14]], %[[V3]]
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.full {value = 5.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.clamp %[[V15]], %[[V11]], %[[V16]]
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.index_legal %x0, %[[V10]], %[[V17]] {axes = [0, 1]}
// CHECK-NEXT:  tgraph.return %[[V18]]
tgraph.func @gather(%x0: !tgraph.tensor<[5, 6], f32>, %x1: !tgraph.tensor<[4, 2], i64>) -> !tgraph.tensor<[4], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gather %x0, %x1 : (!tgraph.tensor<[5, 6], f32>, !tgraph.tensor<[4, 2], i64>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// One element for each index along an axis; other axes broadcast; negative indices count from the end, and `mode` says what others out of bounds do.
// CHECK-LABEL: tgraph.func @take_along_axis(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.lt %x1, %[[V0]]
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.dim_size {dims = [N5]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.add %x1, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.where %[[V1]], %[[V3]], %x1
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.dim_size {dims = [N5 - 1]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.clamp %[[V4]], %[[V0]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.take_along_legal %x0, %[[V6]] {axis = 1}
// CHECK-NEXT:  tgraph.return %[[V7]]
tgraph.func @take_along_axis(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_axis %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// 1 at each index along a new last axis, 0 elsewhere; an out-of-bounds index gives a row of zeros.
// CHECK-LABEL: tgraph.func @one_hot(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.iota {shape = [7], axis = 0, dtype = i32} : {{.*}} -> !tgraph.tensor<[7], i32>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [N4, N5, 1]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.eq %[[V1]], %[[V0]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.cast %[[V2]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[N4, N5, 7], f32>
// CHECK-NEXT:  tgraph.return %[[V3]]
tgraph.func @one_hot(%x0: !tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.one_hot %x0 {depth = [7]} : (!tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N5, 7], f32>) -> ()
}
// -----
// `x` with updates set, added, multiplied, or compared in at indices along some axes, in their order.
// CHECK-LABEL: tgraph.func @index_put(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [1, N5, N4]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %x1 {shape = [1, N9, N4]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.lt %x2, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.dim_size {dims = [N5]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.add %x2, %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.where %[[V3]], %[[V5]], %x2
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.dim_size {dims = [N5]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.lt %[[V6]], %[[V8]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.minimum %[[V6]], %[[V7]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.where %[[V9]], %[[V7]], %[[V10]]
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.reshape %[[V11]] {shape = [N9]}
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.scatter_rows %[[V0]], %[[V1]], %[[V12]] {mode = "set", drops = true}
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.reshape %[[V13]] {shape = [N5, N4]}
// CHECK-NEXT:  tgraph.return %[[V14]]
tgraph.func @index_put(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N9, N4], f32>, %x2: !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.index_put %x0, %x1, %x2 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N9, N4], f32>, !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N4], f32>) -> ()
}
// -----
// An axis in order; stable, NaN last.
// CHECK-LABEL: tgraph.func @sort(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [N4, N17]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]], %[[V2:[a-z0-9]+]] = tgraph.sort_rows %[[V0]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V1]] {shape = [N4, N17]}
// CHECK-NEXT:  tgraph.return %[[V3]]
tgraph.func @sort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], f32>) -> ()
}
// -----
// The positions that sort an axis; equal elements by lowest index, NaN last.
// CHECK-LABEL: tgraph.func @argsort(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [N4, N17]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]], %[[V2:[a-z0-9]+]] = tgraph.sort_rows %[[V0]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = [N4, N17]}
// CHECK-NEXT:  tgraph.return %[[V3]]
tgraph.func @argsort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i64> attributes {names = ["x0"]} {
  %0 = tgraph.argsort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i64>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], i64>) -> ()
}
// -----
// The `k` largest (or smallest) of an axis in order and their positions; ties by lowest index, NaN last.
// CHECK-LABEL: tgraph.func @topk(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [N4, N17]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]], %[[V2:[a-z0-9]+]] = tgraph.sort_rows %[[V0]] {descending = true, keep = 5}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V1]] {shape = [N4, 5]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = [N4, 5]}
// CHECK-NEXT:  tgraph.return %[[V3]], %[[V4]]
tgraph.func @topk(%x0: !tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) attributes {names = ["x0"], guards = [[dim<min(0, N17 - 5)>, dim<0>, "the op's rule"]]} {
  %0, %1 = tgraph.topk %x0 {k = 5} : (!tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) -> ()
}
// -----
// Running sum along one axis; integers in 64 bits.
// CHECK-LABEL: tgraph.func @cumsum(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.cumulative %x0 {kind = "sum", axis = 0}
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @cumsum(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumsum %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// Running product along one axis; integers in 64 bits.
// CHECK-LABEL: tgraph.func @cumprod(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.cumulative %x0 {kind = "prod", axis = 0}
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @cumprod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumprod %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// Running maximum along one axis; NaN propagates from its position on.
// CHECK-LABEL: tgraph.func @cummax(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.cumulative %x0 {kind = "max", axis = 0}
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @cummax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cummax %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
