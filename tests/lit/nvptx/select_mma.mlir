// RUN: tessera-opt %s --split -p nvptx-select-mma | filecheck %s
// RUN: tessera-opt %s --split -p 'nvptx-select-mma{machine = "sm_80"}' | filecheck %s --check-prefix=WARPS
// RUN: tessera-opt %s --split -p 'nvptx-select-mma{machine = "sm_100a"}' | filecheck %s --check-prefix=TENSORS

// Each machine has its instruction: of so many rows, all columns or eight, and 32 bytes of k.
// CHECK-LABEL: ttile.kernel @product(
// CHECK-SAME:    warpgroups = 2
// CHECK:         ttile.dot {{.*}} {unit = "wgmma", instruction = [64, 256, 16]}
// WARPS-LABEL: ttile.kernel @product(
// WARPS-SAME:    warpgroups = 2
// WARPS:         ttile.dot {{.*}} {unit = "mma.sync", instruction = [16, 8, 16]}
// TENSORS-LABEL: ttile.kernel @product(
// TENSORS-SAME:    warpgroups = 2
// TENSORS:         ttile.dot {{.*}} {unit = "tcgen05", instruction = [128, 256, 16]}
ttile.kernel @product(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Sums of 8-bit floats are added up outside, half of the columns at a time; where no units do so, they are no dot of units.
// CHECK-LABEL: ttile.kernel @narrow(
// CHECK:         ttile.dot {{.*}} {unit = "wgmma", instruction = [64, 128, 32]}
// WARPS-LABEL: ttile.kernel @narrow(
// WARPS:         ttile.dot {{.*}} {unit = "multiply-adds"}
// TENSORS-LABEL: ttile.kernel @narrow(
// TENSORS:         ttile.dot {{.*}} {unit = "multiply-adds"}
ttile.kernel @narrow(%x: !ttile.buffer<[256, 256], f8e4m3>, %w: !ttile.buffer<[512, 256], f8e4m3>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 128} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 256]} : (!ttile.buffer<[256, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], f8e4m3>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [256, 512]} : (!ttile.buffer<[512, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 256], f8e4m3>
    %c = ttile.cast %a : (!ttile.tile<[128, 128], f8e4m3>) -> !ttile.tile<[128, 128], f32>
    %d = ttile.cast %b : (!ttile.tile<[128, 256], f8e4m3>) -> !ttile.tile<[128, 256], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Rows that tensor memory does not take go to single warps of the same machine.
// CHECK-LABEL: ttile.kernel @low(
// CHECK-SAME:    warpgroups = 1
// TENSORS-LABEL: ttile.kernel @low(
// TENSORS:         ttile.dot {{.*}} {unit = "mma.sync", instruction = [16, 8, 16]}
ttile.kernel @low(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [4, 8], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %c = ttile.cast %a : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %e : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What multiplies nothing is left alone.
// CHECK-LABEL: ttile.kernel @doubled(
// CHECK-NOT:     warpgroups
// CHECK-NOT:     unit
ttile.kernel @doubled(%x: !ttile.buffer<[128], f32>, %y: !ttile.buffer<[128], f32>) attributes {symbols = [], grid = [4], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[128], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  %s = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
  ttile.return
}
