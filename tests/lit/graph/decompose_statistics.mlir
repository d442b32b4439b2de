// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Softmax, norms and statistics, each as the ops that compute it, in order and with what each reads.

// Sum over axes divided by the count; NaN for no elements.
// CHECK-LABEL: tgraph.func @mean(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.sum %x0 {axes = [0]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.dim_size {dims = [N7]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.cast %[[V1]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.div %[[V0]], %[[V2]]
// CHECK-NEXT:  tgraph.return %[[V3]]
tgraph.func @mean(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.mean %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Mean square distance from the mean; the count may be less by a correction.
// CHECK-LABEL: tgraph.func @var(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.sum %x0 {axes = [0], keepdims = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.dim_size {dims = [N7]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.cast %[[V1]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.div %[[V0]], %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.sub %x0, %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.sum %[[V5]] {axes = [0]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.dim_size {dims = [N7]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.cast %[[V7]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.div %[[V6]], %[[V8]]
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @var(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.var %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Square root of the variance.
// CHECK-LABEL: tgraph.func @std(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.sum %x0 {axes = [0], keepdims = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.dim_size {dims = [N7]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.cast %[[V1]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.div %[[V0]], %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.sub %x0, %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.sum %[[V5]] {axes = [0]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.dim_size {dims = [N7]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.cast %[[V7]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.div %[[V6]], %[[V8]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.sqrt %[[V9]]
// CHECK-NEXT:  tgraph.return %[[V10]]
tgraph.func @std(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.std %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Vector norm over axes.
// CHECK-LABEL: tgraph.func @norm(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.abs %x0
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.full {value = 1099511627776.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.gt %[[V0]], %[[V1]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.full {value = 9.094947017729282e-13, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.lt %[[V0]], %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.mul %x0, %x0
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.sum %[[V5]] {axes = [0]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.full {value = 1.3234889800848443e-23, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.mul %x0, %[[V7]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.where %[[V2]], %[[V8]], %[[V9]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.mul %[[V10]], %[[V10]]
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.sum %[[V11]] {axes = [0]}
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.full {value = 1.2379400392853803e+27, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.mul %x0, %[[V13]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.where %[[V4]], %[[V14]], %[[V15]]
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.mul %[[V16]], %[[V16]]
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.sum %[[V17]] {axes = [0]}
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = tgraph.full {value = 8.077935669463161e-28, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = tgraph.lt %[[V6]], %[[V19]]
// CHECK-NEXT:  %[[V21:[a-z0-9]+]] = tgraph.sqrt %[[V18]]
// CHECK-NEXT:  %[[V22:[a-z0-9]+]] = tgraph.full {value = 8.077935669463161e-28, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V23:[a-z0-9]+]] = tgraph.mul %[[V21]], %[[V22]]
// CHECK-NEXT:  %[[V24:[a-z0-9]+]] = tgraph.sqrt %[[V6]]
// CHECK-NEXT:  %[[V25:[a-z0-9]+]] = tgraph.where %[[V20]], %[[V23]], %[[V24]]
// CHECK-NEXT:  %[[V26:[a-z0-9]+]] = tgraph.isinf %[[V6]]
// CHECK-NEXT:  %[[V27:[a-z0-9]+]] = tgraph.sqrt %[[V12]]
// CHECK-NEXT:  %[[V28:[a-z0-9]+]] = tgraph.full {value = 7.555786372591432e+22, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V29:[a-z0-9]+]] = tgraph.mul %[[V27]], %[[V28]]
// CHECK-NEXT:  %[[V30:[a-z0-9]+]] = tgraph.where %[[V26]], %[[V29]], %[[V25]]
// CHECK-NEXT:  tgraph.return %[[V30]]
tgraph.func @norm(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.norm %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// `log(sum(exp(x)))` over axes, -inf for no elements; the largest is taken out first, so finite input gives finite output.
// CHECK-LABEL: tgraph.func @logsumexp(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.max %x0 {axes = [0], keepdims = true, identity = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.isinf %[[V0]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.where %[[V2]], %[[V1]], %[[V0]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.sub %x0, %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.exp %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.sum %[[V5]] {axes = [0], keepdims = true}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.log %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.add %[[V7]], %[[V3]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.squeeze %[[V8]] {axes = [0]}
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @logsumexp(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// log(sum(exp(x))) over axes without overflow, in f32; -inf for no elements, inf where one is inf.
// CHECK-LABEL: tgraph.func @logsumexp_safe(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.max %x0 {axes = [1], keepdims = true, identity = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.full {value = -3.4028234663852886e+38, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.maximum %[[V0]], %[[V1]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.full {value = 3.4028234663852886e+38, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.minimum %[[V2]], %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.sub %x0, %[[V4]]
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.exp %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.sum %[[V6]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.log %[[V7]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.add %[[V4]], %[[V8]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.reshape %[[V9]] {shape = [N4]}
// CHECK-NEXT:  tgraph.return %[[V10]]
tgraph.func @logsumexp_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp_safe %x0 {axes = [1]} : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4], f32>) -> ()
}
// -----
// The same as `softmax`, which is safe already.
// CHECK-LABEL: tgraph.func @softmax_safe(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.max %x0 {axes = [1], keepdims = true, identity = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.full {value = -3.4028234663852886e+38, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.maximum %[[V0]], %[[V1]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.sub %x0, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.exp %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.sum %[[V4]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.full {value = 1.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.maximum %[[V5]], %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.reciprocal %[[V7]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V8]]
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @softmax_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32> attributes {names = ["x0"]} {
  %0 = tgraph.softmax_safe %x0 : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], f32>) -> ()
}
// -----
// Logarithm of softmax without its underflow, in f32 and rounded once; a row of -inf stays -inf.
// CHECK-LABEL: tgraph.func @log_softmax(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.max %x0 {axes = [1], keepdims = true, identity = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.full {value = -3.4028234663852886e+38, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.maximum %[[V0]], %[[V1]]
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.sub %x0, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.exp %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.sum %[[V4]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.full {value = 1.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.maximum %[[V5]], %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.log %[[V7]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.sub %[[V3]], %[[V8]]
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @log_softmax(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log_softmax %x0 : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], f32>) -> ()
}
// -----
// Minus the log of softmax at each row's label; labels outside the classes (padding) count for nothing.
// CHECK-LABEL: tgraph.func @cross_entropy(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.dim_size {dims = [N11]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.lt %x1, %[[V0]]
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = i64} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.ge %x1, %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.logical_and %[[V1]], %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.iota {shape = [N11], axis = 0, dtype = i64} : {{.*}} -> !tgraph.tensor<[N11], i64>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.reshape %x1 {shape = [N7, 1]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.eq %[[V5]], %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.full {value = 1.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.max %x0 {axes = [1], keepdims = true, identity = true}
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.full {value = -3.4028234663852886e+38, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.maximum %[[V10]], %[[V11]]
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.sub %x0, %[[V12]]
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.exp %[[V13]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.sum %[[V14]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.where %[[V7]], %[[V13]], %[[V8]]
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.sum %[[V16]] {axes = [1]}
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.reshape %[[V15]] {shape = [N7]}
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = tgraph.log %[[V18]]
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = tgraph.sub %[[V19]], %[[V17]]
// CHECK-NEXT:  %[[V21:[a-z0-9]+]] = tgraph.where %[[V4]], %[[V20]], %[[V8]]
// CHECK-NEXT:  %[[V22:[a-z0-9]+]] = tgraph.sum %[[V21]] {axes = [0]}
// CHECK-NEXT:  %[[V23:[a-z0-9]+]] = tgraph.where %[[V4]], %[[V9]], %[[V8]]
// CHECK-NEXT:  %[[V24:[a-z0-9]+]] = tgraph.sum %[[V23]] {axes = [0]}
// CHECK-NEXT:  %[[V25:[a-z0-9]+]] = tgraph.full {value = 1.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V26:[a-z0-9]+]] = tgraph.maximum %[[V24]], %[[V25]]
// CHECK-NEXT:  %[[V27:[a-z0-9]+]] = tgraph.div %[[V22]], %[[V26]]
// CHECK-NEXT:  tgraph.return %[[V27]]
tgraph.func @cross_entropy(%x0: !tgraph.tensor<[N7, N11], f32>, %x1: !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cross_entropy %x0, %x1 : (!tgraph.tensor<[N7, N11], f32>, !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// (x - mean) / sqrt(variance + eps) over the last axes, then weight and bias; in f32, rounded once.
// CHECK-LABEL: tgraph.func @layernorm_safe(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.sum %x0 {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.dim_size {dims = [N48]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.cast %[[V1]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.div %[[V0]], %[[V2]]
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.sub %x0, %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.full {value = 2.220446049250313e-16, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V4]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.sum %[[V7]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.dim_size {dims = [N48]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.cast %[[V9]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.div %[[V8]], %[[V10]]
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.mul %[[V6]], %[[V6]]
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.sum %[[V12]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.dim_size {dims = [N48]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.cast %[[V14]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.div %[[V13]], %[[V15]]
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.full {value = 1.0e-05, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.add %[[V11]], %[[V17]]
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = tgraph.rsqrt %[[V18]]
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = tgraph.rsqrt %[[V16]]
// CHECK-NEXT:  %[[V21:[a-z0-9]+]] = tgraph.mul %[[V20]], %[[V5]]
// CHECK-NEXT:  %[[V22:[a-z0-9]+]] = tgraph.isinf %[[V11]]
// CHECK-NEXT:  %[[V23:[a-z0-9]+]] = tgraph.where %[[V22]], %[[V21]], %[[V19]]
// CHECK-NEXT:  %[[V24:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V23]]
// CHECK-NEXT:  tgraph.return %[[V24]]
tgraph.func @layernorm_safe(%x0: !tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32> attributes {names = ["x0"]} {
  %0 = tgraph.layernorm_safe %x0 : (!tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], f32>) -> ()
}
// -----
// x / sqrt(mean(x * x) + eps) over the last axes, then weight; in f32, rounded once.
// CHECK-LABEL: tgraph.func @rmsnorm_safe(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.full {value = 2.220446049250313e-16, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.mul %x0, %[[V0]]
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.mul %x0, %x0
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.sum %[[V2]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.dim_size {dims = [N48]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.cast %[[V4]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.div %[[V3]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.mul %[[V1]], %[[V1]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.sum %[[V7]] {axes = [1], keepdims = true}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.dim_size {dims = [N48]} : {{.*}} -> !tgraph.tensor<[], i64>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.cast %[[V9]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.div %[[V8]], %[[V10]]
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.full {value = 1.0e-05, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.add %[[V6]], %[[V12]]
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.rsqrt %[[V13]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.rsqrt %[[V11]]
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.mul %[[V15]], %[[V0]]
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.isinf %[[V6]]
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.where %[[V17]], %[[V16]], %[[V14]]
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = tgraph.mul %x0, %[[V18]]
// CHECK-NEXT:  tgraph.return %[[V19]]
tgraph.func @rmsnorm_safe(%x0: !tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32> attributes {names = ["x0"]} {
  %0 = tgraph.rmsnorm_safe %x0 : (!tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], f32>) -> ()
}
