// RUN: tessera-opt %s --split -p schedule-form-groups,schedule-emit-tiles | filecheck %s

// A function of one element or two: which function, of which operands in which order, stored as which dtype.

// `|x|`; the smallest signed integer is its own.
// CHECK-LABEL: tsched.module @abs(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "abs"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @abs(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.abs %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// -1, 0 or 1 by the sign of `x`; NaN stays.
// CHECK-LABEL: tsched.module @sign(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "sign"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @sign(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sign %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Largest integer not above `x`.
// CHECK-LABEL: tsched.module @floor(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "floor"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @floor(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.floor %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Smallest integer not below `x`.
// CHECK-LABEL: tsched.module @ceil(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "ceil"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @ceil(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.ceil %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Nearest integer, halves to the even one.
// CHECK-LABEL: tsched.module @round(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "round"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @round(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.round %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x` without its fraction.
// CHECK-LABEL: tsched.module @trunc(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "trunc"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @trunc(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.trunc %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Whether `x` is not a number.
// CHECK-LABEL: tsched.module @isnan(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "isnan"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @isnan(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isnan %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// Whether `x` is infinite.
// CHECK-LABEL: tsched.module @isinf(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "isinf"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @isinf(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isinf %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// 2 to the power `x`.
// CHECK-LABEL: tsched.module @exp2(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "exp2"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @exp2(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.exp2 %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `exp(x) - 1` without cancellation near zero.
// CHECK-LABEL: tsched.module @expm1(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "expm1"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @expm1(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.expm1 %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Natural logarithm; of a negative number NaN.
// CHECK-LABEL: tsched.module @log(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "log"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @log(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Logarithm to base 2.
// CHECK-LABEL: tsched.module @log2(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "log2"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @log2(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log2 %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `log(1 + x)` without cancellation near zero.
// CHECK-LABEL: tsched.module @log1p(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "log1p"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @log1p(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log1p %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Square root.
// CHECK-LABEL: tsched.module @sqrt(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "sqrt"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @sqrt(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sqrt %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// One over the square root.
// CHECK-LABEL: tsched.module @rsqrt(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "rsqrt"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @rsqrt(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.rsqrt %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// One over `x`.
// CHECK-LABEL: tsched.module @reciprocal(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "reciprocal"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @reciprocal(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.reciprocal %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Cosine.
// CHECK-LABEL: tsched.module @cos(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "cos"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @cos(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cos %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Tangent.
// CHECK-LABEL: tsched.module @tan(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "tan"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @tan(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tan %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Angle of the point (`y`, `x`), from -pi to pi: `x` is the ordinate.
// CHECK-LABEL: tsched.module @atan2(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "atan2"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @atan2(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.atan2 %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `1 / (1 + exp(-x))`.
// CHECK-LABEL: tsched.module @sigmoid(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "sigmoid"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @sigmoid(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sigmoid %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Error function.
// CHECK-LABEL: tsched.module @erf(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "erf"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @erf(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.erf %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x * sigmoid(x)`.
// CHECK-LABEL: tsched.module @silu(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "silu"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @silu(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.silu %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `log(1 + exp(x))` without overflow.
// CHECK-LABEL: tsched.module @softplus(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "softplus"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @softplus(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.softplus %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x` times the share of the normal distribution below `x`, exact or by the tanh formula.
// CHECK-LABEL: tsched.module @gelu(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "gelu_erf"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @gelu(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.gelu %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x / y` rounded down; integers by zero give 0.
// CHECK-LABEL: tsched.module @floordiv(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "floordiv"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @floordiv(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.floordiv %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// What `x // y` leaves, with the sign of `y`; integers by zero give 0.
// CHECK-LABEL: tsched.module @mod(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "mod"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @mod(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.mod %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x` to the power `y`; integers wrap.
// CHECK-LABEL: tsched.module @pow(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "pow"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @pow(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.pow %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `x != y`.
// CHECK-LABEL: tsched.module @ne(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "ne"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @ne(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ne %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// `x <= y`.
// CHECK-LABEL: tsched.module @le(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "le"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @le(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.le %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// `x > y`.
// CHECK-LABEL: tsched.module @gt(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "gt"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @gt(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gt %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// `x >= y`.
// CHECK-LABEL: tsched.module @ge(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "ge"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @ge(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ge %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// Whether `x` is false.
// CHECK-LABEL: tsched.module @logical_not(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "not"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @logical_not(%x0: !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0"]} {
  %0 = tgraph.logical_not %x0 : (!tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// All bits inverted; of a bool, its opposite.
// CHECK-LABEL: tsched.module @bitwise_not(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "not"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @bitwise_not(%x0: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitwise_not %x0 : (!tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// Whether both are true.
// CHECK-LABEL: tsched.module @logical_and(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "and"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @logical_and(%x0: !tgraph.tensor<[N], bool>, %x1: !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_and %x0, %x1 : (!tgraph.tensor<[N], bool>, !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// Bits set in both.
// CHECK-LABEL: tsched.module @bitwise_and(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "and"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @bitwise_and(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_and %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// Whether at least one is true.
// CHECK-LABEL: tsched.module @logical_or(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "or"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @logical_or(%x0: !tgraph.tensor<[N], bool>, %x1: !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_or %x0, %x1 : (!tgraph.tensor<[N], bool>, !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// Bits set in either.
// CHECK-LABEL: tsched.module @bitwise_or(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "or"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @bitwise_or(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_or %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// Whether exactly one is true.
// CHECK-LABEL: tsched.module @logical_xor(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "xor"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @logical_xor(%x0: !tgraph.tensor<[N], bool>, %x1: !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_xor %x0, %x1 : (!tgraph.tensor<[N], bool>, !tgraph.tensor<[N], bool>) -> !tgraph.tensor<[N], bool>
  tgraph.return %0 : (!tgraph.tensor<[N], bool>) -> ()
}
// -----
// Bits set in exactly one.
// CHECK-LABEL: tsched.module @bitwise_xor(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "xor"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @bitwise_xor(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_xor %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// `x << y`; counts outside the width give 0.
// CHECK-LABEL: tsched.module @shift_left(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "shl"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @shift_left(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_left %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// `x >> y`, filled with the sign; counts outside the width shift everything out.
// CHECK-LABEL: tsched.module @shift_right(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "shr"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @shift_right(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_right %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// The same bits read as another dtype of the same width.
// CHECK-LABEL: tsched.module @bitcast(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.bitcast %[[V0]] : {{.*}} -> !ttile.tile<{{.*}}, i32>
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @bitcast(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitcast %x0 {dtype = i32, source = f32} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// Products of pairs added one after the other from 0, each sum in the accumulator, rounded once at the end.
// CHECK-LABEL: tsched.module @fma_chain(
// CHECK:       ttile.kernel @{{.*}}writes = [4]
// CHECK:       %[[L0:[a-z0-9]+]] = ttile.load %0,
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = ttile.cast %[[L0]] : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[L1:[a-z0-9]+]] = ttile.load %1,
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.cast %[[L1]] : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[L2:[a-z0-9]+]] = ttile.load %2,
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.cast %[[L2]] : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[L3:[a-z0-9]+]] = ttile.load %3,
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.cast %[[L3]] : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[ZERO:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[S0:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]], %[[ZERO]] {fn = "fma"}
// CHECK-NEXT:  %[[S1:[a-z0-9]+]] = ttile.elementwise %[[V2]], %[[V3]], %[[S0]] {fn = "fma"}
// CHECK-NEXT:  %[[OUT:[a-z0-9]+]] = ttile.cast %[[S1]] {rounding = "nearest_even"} : {{.*}} -> !ttile.tile<{{.*}}, bf16>
// CHECK-NEXT:  ttile.store %[[OUT]], %4,
tgraph.func @fma_chain(%x0: !tgraph.tensor<[N7, N33], bf16>, %x1: !tgraph.tensor<[N33], bf16>, %x2: !tgraph.tensor<[N7, N33], bf16>, %x3: !tgraph.tensor<[N33], bf16>) -> !tgraph.tensor<[N7, N33], bf16> attributes {names = ["x0", "x1", "x2", "x3"]} {
  %0 = tgraph.fma_chain %x0, %x1, %x2, %x3 {accumulate = f32, dtype = bf16} : (!tgraph.tensor<[N7, N33], bf16>, !tgraph.tensor<[N33], bf16>, !tgraph.tensor<[N7, N33], bf16>, !tgraph.tensor<[N33], bf16>) -> !tgraph.tensor<[N7, N33], bf16>
  tgraph.return %0 : (!tgraph.tensor<[N7, N33], bf16>) -> ()
}
// -----
// Angle whose sine is `x`, from -pi/2 to pi/2; NaN beyond 1.
// CHECK-LABEL: tsched.module @asin(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "asin"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @asin(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.asin %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Angle whose cosine is `x`, from 0 to pi; NaN beyond 1.
// CHECK-LABEL: tsched.module @acos(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "acos"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @acos(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.acos %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Angle whose tangent is `x`, from -pi/2 to pi/2.
// CHECK-LABEL: tsched.module @atan(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "atan"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @atan(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.atan %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Hyperbolic sine.
// CHECK-LABEL: tsched.module @sinh(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "sinh"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @sinh(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sinh %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Hyperbolic cosine.
// CHECK-LABEL: tsched.module @cosh(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "cosh"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @cosh(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cosh %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Inverse of the hyperbolic sine.
// CHECK-LABEL: tsched.module @asinh(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "asinh"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @asinh(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.asinh %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Inverse of the hyperbolic cosine; NaN below 1.
// CHECK-LABEL: tsched.module @acosh(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "acosh"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @acosh(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.acosh %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Inverse of the hyperbolic tangent; NaN beyond 1.
// CHECK-LABEL: tsched.module @atanh(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "atanh"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @atanh(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.atanh %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// Logarithm to base 10.
// CHECK-LABEL: tsched.module @log10(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "log10"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @log10(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log10 %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// 1 less the error function, with all digits in its tail.
// CHECK-LABEL: tsched.module @erfc(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "erfc"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @erfc(%x0: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0"]} {
  %0 = tgraph.erfc %x0 : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// `sqrt(x**2 + y**2)` without overflow.
// CHECK-LABEL: tsched.module @hypot(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "hypot"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @hypot(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.hypot %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// The magnitude of `x` with the sign of `y`.
// CHECK-LABEL: tsched.module @copysign(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "copysign"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @copysign(%x0: !tgraph.tensor<[N], f32>, %x1: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.copysign %x0, %x1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
// -----
// How many bits are set; of a negative number in two's complement.
// CHECK-LABEL: tsched.module @population_count(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.elementwise %[[V0]] {fn = "popcount"}
// CHECK-NEXT:  ttile.store %[[V1]], %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @population_count(%x0: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0"]} {
  %0 = tgraph.population_count %x0 : (!tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
// -----
// The greatest common divisor, not negative; of 0 and 0 it is 0.
// CHECK-LABEL: tsched.module @gcd(
// CHECK:       ttile.kernel @{{.*}}writes = [2]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V1]] {fn = "gcd"}
// CHECK-NEXT:  ttile.store %[[V2]], %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N]}
tgraph.func @gcd(%x0: !tgraph.tensor<[N], i32>, %x1: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gcd %x0, %x1 : (!tgraph.tensor<[N], i32>, !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], i32>
  tgraph.return %0 : (!tgraph.tensor<[N], i32>) -> ()
}
