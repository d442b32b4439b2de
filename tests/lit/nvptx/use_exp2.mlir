// RUN: tessera-opt %s -p nvptx-use-exp2 | filecheck %s

// Scaled scores: maxima are of what is not scaled, and the factor goes into the multiply-add of a power of two; the
// power that rescales what was summed before takes the same shift.
// CHECK-LABEL: ttile.kernel @online(
// CHECK:         %[[X:[a-z0-9]+]] = ttile.constant {value = 3.0} : () -> !ttile.tile<[8, 16], f32>
// CHECK:         %[[OLD:[a-z0-9]+]] = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
// CHECK-NOT:     fn = "exp"}
// CHECK:         %[[TOP:[a-z0-9]+]] = ttile.reduce %[[X]] {kind = "max", axis = 1}
// CHECK:         %[[NEW:[a-z0-9]+]] = ttile.elementwise %[[TOP]], %{{[a-z0-9]+}} {fn = "mul"}
// CHECK:         %[[BASE:[a-z0-9]+]] = ttile.elementwise %[[NEW]], %{{[a-z0-9]+}} {fn = "mul"}
// CHECK:         %[[LOW:[a-z0-9]+]] = ttile.elementwise %[[BASE]] {fn = "neg"}
// CHECK:         ttile.elementwise %[[OLD]], %{{[a-z0-9]+}}, %[[LOW]] {fn = "fma"}
// CHECK:         %[[WIDE:[a-z0-9]+]] = ttile.broadcast %[[LOW]] {axes = [0]}
// CHECK:         ttile.constant {value = 0.18033688011112042}
// CHECK:         %[[IN:[a-z0-9]+]] = ttile.elementwise %[[X]], %{{[a-z0-9]+}}, %[[WIDE]] {fn = "fma"}
// CHECK:         ttile.elementwise %[[IN]] {fn = "exp2"}
ttile.kernel @online() attributes {symbols = [], grid = [], writes = []} {
  %x = ttile.constant {value = 3.0} : () -> !ttile.tile<[8, 16], f32>
  %old = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %c = ttile.constant {value = 0.125} : () -> !ttile.tile<[8, 16], f32>
  %s = ttile.elementwise %x, %c {fn = "mul"} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %t = ttile.reduce %s {kind = "max", axis = 1} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8], f32>
  %r = ttile.elementwise %old, %t {fn = "sub"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %k = ttile.elementwise %r {fn = "exp"} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %w = ttile.broadcast %t {axes = [0]} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8, 16], f32>
  %d = ttile.elementwise %s, %w {fn = "sub"} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %p = ttile.elementwise %d {fn = "exp"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %n = ttile.cast %p {rounding = "nearest_even"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], bf16>
  %q = ttile.constant {value = 1.0} : () -> !ttile.tile<[16, 16], bf16>
  %o = ttile.dot %n, %q, %x {unit = "wgmma"} : (!ttile.tile<[8, 16], bf16>, !ttile.tile<[16, 16], bf16>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  ttile.return
}

// Powers that somebody sees in f32 stay as they are, and so does what they are of.
// CHECK-LABEL: ttile.kernel @seen(
// CHECK-NOT:     exp2
ttile.kernel @seen() attributes {symbols = [], grid = [], writes = []} {
  %x = ttile.constant {value = 3.0} : () -> !ttile.tile<[8, 16], f32>
  %t = ttile.reduce %x {kind = "max", axis = 1} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8], f32>
  %w = ttile.broadcast %t {axes = [0]} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8, 16], f32>
  %d = ttile.elementwise %x, %w {fn = "sub"} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %p = ttile.elementwise %d {fn = "exp"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %y = ttile.elementwise %p, %x {fn = "mul"} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %n = ttile.cast %p {rounding = "nearest_even"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], bf16>
  %q = ttile.constant {value = 1.0} : () -> !ttile.tile<[16, 16], bf16>
  %o = ttile.dot %n, %q, %x {unit = "wgmma"} : (!ttile.tile<[8, 16], bf16>, !ttile.tile<[16, 16], bf16>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  ttile.return
}

// Kernels that no tensor cores take keep their exponentials.
// CHECK-LABEL: ttile.kernel @threads(
// CHECK-NOT:     exp2
ttile.kernel @threads() attributes {symbols = [], grid = [], writes = []} {
  %x = ttile.constant {value = 3.0} : () -> !ttile.tile<[8, 16], f32>
  %t = ttile.reduce %x {kind = "max", axis = 1} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8], f32>
  %w = ttile.broadcast %t {axes = [0]} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8, 16], f32>
  %d = ttile.elementwise %x, %w {fn = "sub"} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %p = ttile.elementwise %d {fn = "exp"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  %n = ttile.cast %p {rounding = "nearest_even"} : (!ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], bf16>
  ttile.return
}
