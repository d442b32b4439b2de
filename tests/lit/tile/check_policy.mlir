// RUN: not tessera-opt %s --split -p tile-check-policy 2>&1 | filecheck %s

// A rounding that says how, before the conversion that stores it.
// CHECK-NOT: `@rounds`
ttile.kernel @rounds() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = bf16, rounding = "toward_zero"}} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %1 = ttile.elementwise %0 {fn = "neg"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %2 = ttile.round %1 {format = "bf16", rounding = "toward_zero"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %3 = ttile.cast %2 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], bf16>
  ttile.return
}
// -----
// CHECK: error[T0107]: `ttile.cast` makes bf16 of what `ttile.elementwise` gives by the plain rounding, and kernel `@cuts` keeps `storage(bf16) @ round_toward_zero`
// CHECK: = help: round before it by a `ttile.round` that says how, or leave `tessera.numerics.policy` out
ttile.kernel @cuts() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = bf16, rounding = "toward_zero"}} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %1 = ttile.elementwise %0 {fn = "neg"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %2 = ttile.cast %1 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], bf16>
  ttile.return
}
// -----
// What only has to stop at the ends of its format may be held at them, and cast.
// CHECK-NOT: `@held`
ttile.kernel @held() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = f16, saturation = "saturate"}} {
  %in = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %0 = ttile.elementwise %in {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %1 = ttile.constant {value = -65504.0} : () -> !ttile.tile<[32], f32>
  %2 = ttile.constant {value = 65504.0} : () -> !ttile.tile<[32], f32>
  %3 = ttile.elementwise %0, %1 {fn = "max"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %4 = ttile.elementwise %3, %2 {fn = "min"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %5 = ttile.cast %4 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f16>
  ttile.return
}
// -----
// One end, or ends that lie further out, are not enough.
// CHECK: error[T0107]: `ttile.cast` makes f16 of what `ttile.elementwise` gives by the plain rounding, and kernel `@below` keeps `storage(f16) @ saturate`
ttile.kernel @below() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = f16, saturation = "saturate"}} {
  %in = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %0 = ttile.elementwise %in {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %1 = ttile.constant {value = 65504.0} : () -> !ttile.tile<[32], f32>
  %2 = ttile.elementwise %0, %1 {fn = "min"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %3 = ttile.cast %2 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f16>
  ttile.return
}
// -----
// CHECK: error[T0107]: `ttile.cast` makes f16 of what `ttile.elementwise` gives by the plain rounding, and kernel `@beyond` keeps `storage(f16) @ saturate`
ttile.kernel @beyond() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = f16, saturation = "saturate"}} {
  %in = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %0 = ttile.elementwise %in {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %1 = ttile.constant {value = -65520.0} : () -> !ttile.tile<[32], f32>
  %2 = ttile.constant {value = 65520.0} : () -> !ttile.tile<[32], f32>
  %3 = ttile.elementwise %0, %1 {fn = "max"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %4 = ttile.elementwise %3, %2 {fn = "min"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %5 = ttile.cast %4 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f16>
  ttile.return
}
// -----
// Held is not rounded toward zero.
// CHECK: error[T0107]: {{.*}} kernel `@otherwise` keeps `storage(f16) @ round_toward_zero @ saturate`
ttile.kernel @otherwise() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = f16, saturation = "saturate", rounding = "toward_zero"}} {
  %in = ttile.constant {value = 1.5} : () -> !ttile.tile<[32], f32>
  %0 = ttile.elementwise %in {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %1 = ttile.constant {value = -65504.0} : () -> !ttile.tile<[32], f32>
  %2 = ttile.constant {value = 65504.0} : () -> !ttile.tile<[32], f32>
  %3 = ttile.elementwise %0, %1 {fn = "max"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %4 = ttile.elementwise %3, %2 {fn = "min"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %5 = ttile.cast %4 {rounding = "nearest_even"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f16>
  ttile.return
}
// -----
// What is chosen among numbers of the format is one of them, and has nothing to round.
// CHECK-NOT: `@chosen`
ttile.kernel @chosen() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = bf16, rounding = "toward_zero"}} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[32, 16], bf16>
  %1 = ttile.cast %0 : (!ttile.tile<[32, 16], bf16>) -> !ttile.tile<[32, 16], f32>
  %2 = ttile.reduce %1 {kind = "max", axis = 0} : (!ttile.tile<[32, 16], f32>) -> !ttile.tile<[16], f32>
  %3 = ttile.cast %2 {rounding = "nearest_even"} : (!ttile.tile<[16], f32>) -> !ttile.tile<[16], bf16>
  ttile.return
}
// -----
// CHECK: error[T0107]: `ttile.cast` makes bf16 of what `ttile.elementwise` gives by the plain rounding, and kernel `@computed` keeps `storage(bf16) @ round_toward_zero`
ttile.kernel @computed() attributes {symbols = [], grid = [1], writes = [], tessera.numerics.policy = {storage = bf16, rounding = "toward_zero"}} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[32, 16], f32>
  %1 = ttile.elementwise %0 {fn = "exp"} : (!ttile.tile<[32, 16], f32>) -> !ttile.tile<[32, 16], f32>
  %2 = ttile.reduce %1 {kind = "max", axis = 0} : (!ttile.tile<[32, 16], f32>) -> !ttile.tile<[16], f32>
  %3 = ttile.cast %2 {rounding = "nearest_even"} : (!ttile.tile<[16], f32>) -> !ttile.tile<[16], bf16>
  ttile.return
}
