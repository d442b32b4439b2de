// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: ttile.kernel @round_to_f4f2a3cc8b(
// CHECK: ttile.round{{.*}} {format = "bf16"}
ttile.kernel @round_to_f4f2a3cc8b(%0: !ttile.buffer<[], f32>, %1: !ttile.buffer<[], bf16>) attributes {symbols = [], grid = [1], writes = [1]} {
  %2 = ttile.load %0 {coords = [], axes = [], map = [], bounds = []} : (!ttile.buffer<[], f32>) -> !ttile.tile<[], f32>
  %3 = ttile.round %2 {format = "bf16"} : (!ttile.tile<[], f32>) -> !ttile.tile<[], f32>
  %4 = ttile.cast %3 {rounding = "nearest_even"} : (!ttile.tile<[], f32>) -> !ttile.tile<[], bf16>
  ttile.store %4, %1 {coords = [], axes = [], map = [], bounds = []} : (!ttile.tile<[], bf16>, !ttile.buffer<[], bf16>) -> ()
  ttile.return
}
