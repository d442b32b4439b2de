// RUN: tessera-opt %s --split -p nvptx-specialize-warps | filecheck %s

// One warp copies, and gives registers that it does not need to those that multiply.
// CHECK-LABEL: ttile.kernel @two(
// CHECK-SAME:    roles = "producer", registers = [40, 232]}
ttile.kernel @two(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// One group has as many as it can use.
// CHECK-LABEL: ttile.kernel @one(
// CHECK-SAME:    warpgroups = 1, roles = "producer"}
ttile.kernel @one(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 1} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// On single warps all copy; four of a group stand side by side, and each reads all its rows and a quarter of the columns.
// CHECK-LABEL: ttile.kernel @threads(
// CHECK-SAME:    roles = "uniform", warps_n = 4}
ttile.kernel @threads(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "mma.sync", instruction = [16, 8, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK-LABEL: ttile.kernel @written(
// CHECK-SAME:    roles = "producer", registers = [56, 224]}
ttile.kernel @written(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", roles = "producer", registers = [56, 224], warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What runs by multiply-adds is left alone.
// CHECK-LABEL: ttile.kernel @plain(
// CHECK-NOT:     roles
ttile.kernel @plain(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
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
    %e = ttile.dot %c, %d, %acc {unit = "multiply-adds"} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What is said is kept: two beside two.
// CHECK-LABEL: ttile.kernel @beside(
// CHECK-SAME:    roles = "uniform", warps_n = 2}
ttile.kernel @beside(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2, warps_n = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows"} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns"} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "mma.sync", instruction = [16, 8, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Forty-eight columns are not shared by warps side by side.
// CHECK-LABEL: ttile.kernel @few(
// CHECK-SAME:    roles = "uniform", warps_n = 1}
ttile.kernel @few(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 11], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 48*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 48], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 48], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows"} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns"} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 48], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 48], bf16>) -> !ttile.tile<[64, 48], f32>
    %e = ttile.dot %c, %d, %acc {unit = "mma.sync", instruction = [16, 8, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 48], f32>, !ttile.tile<[128, 48], f32>) -> !ttile.tile<[128, 48], f32>
    ttile.yield %e : (!ttile.tile<[128, 48], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 48], f32>) -> !ttile.tile<[128, 48], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 48], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Without a producer, where a kernel says so: those that multiply have equal shares of registers.
// CHECK-LABEL: ttile.kernel @alike(
// CHECK-SAME:    warpgroups = 2, roles = "uniform"}
ttile.kernel @alike(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2, roles = "uniform"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// One group with two dots in a loop waits for itself: where its stages are half of the shared memory, two CTAs share a
// multiprocessor, and its registers.
// CHECK-LABEL: ttile.kernel @half(
// CHECK-SAME:    warpgroups = 1, roles = "producer", registers = [40, 216]}
ttile.kernel @half(%0: !ttile.buffer<[1, 2, 64, 64], bf16>, %1: !ttile.buffer<[1, 2, 256, 64], bf16>, %2: !ttile.buffer<[1, 2, 256, 64], bf16>, %3: !ttile.buffer<[1, 2, 64, 64], bf16>) attributes {symbols = [], grid = [1, 2, 1], writes = [3], kind = "library", warpgroups = 1} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.program_id {axis = 2} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_p"], expr = 64*_p} : (!ttile.index) -> !ttile.index
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %0, %4, %5, %7, %9 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], map = [_b, _h, _i, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 64, 64], stages = 2, ring = 0} : (!ttile.buffer<[1, 2, 64, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
  %11 = ttile.cast %10 : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
  %12 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %13 = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %14 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 64], f32>
  %15 = ttile.constant {value = -inf} : () -> !ttile.tile<[64], f32>
  %16 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
  %17, %18, %19 = ttile.for %12, %13, %14, %15, %16 {step = 128, stages = 2, form = "skewed", awaits = [0], releases = [0]} ({
  ^bb0(%20: !ttile.index, %21: !ttile.tile<[64, 64], f32>, %22: !ttile.tile<[64], f32>, %23: !ttile.tile<[64], f32>):
    %24 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 128], f32>
    %25 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %26 = ttile.load %1, %4, %5, %20, %25 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], map = [_b, _g, _j, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 1} : (!ttile.buffer<[1, 2, 256, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %28 = ttile.transpose %27 : (!ttile.tile<[128, 64], f32>) -> !ttile.tile<[64, 128], f32>
    %29 = ttile.dot %11, %28, %24 {unit = "wgmma", instruction = [64, 128, 16], awaits = [1], releases = [1]} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %30 = ttile.reduce %29 {kind = "max", axis = 1} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64], f32>
    %31 = ttile.elementwise %22, %30 {fn = "max"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %32 = ttile.constant {value = -inf} : () -> !ttile.tile<[64], f32>
    %33 = ttile.elementwise %31, %32 {fn = "eq"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], bool>
    %34 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
    %35 = ttile.select %33, %34, %31 : (!ttile.tile<[64], bool>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %36 = ttile.constant {value = 0.18033688011112042} : () -> !ttile.tile<[64], f32>
    %37 = ttile.elementwise %35, %36 {fn = "mul"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %38 = ttile.elementwise %37 {fn = "neg"} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %39 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %40 = ttile.constant {value = 0.18033688011112042} : () -> !ttile.tile<[64, 128], f32>
    %41 = ttile.broadcast %38 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
    %42 = ttile.elementwise %29, %40, %41 {fn = "fma"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %43 = ttile.elementwise %42 {fn = "exp2"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %44 = ttile.elementwise %22, %36, %38 {fn = "fma"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %45 = ttile.elementwise %44 {fn = "exp2"} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %46 = ttile.elementwise %23, %45 {fn = "mul"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %47 = ttile.reduce %43 {kind = "sum", axis = 1} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64], f32>
    %48 = ttile.elementwise %46, %47 {fn = "add"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %49 = ttile.broadcast %45 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
    %50 = ttile.elementwise %21, %49 {fn = "mul"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    %51 = ttile.load %2, %4, %5, %8, %20 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], map = [_b, _g, _j, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 2} : (!ttile.buffer<[1, 2, 256, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %52 = ttile.cast %43 {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
    %53 = ttile.cast %52 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
    %54 = ttile.cast %51 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %55 = ttile.dot %53, %54, %50 {unit = "wgmma", instruction = [64, 64, 16], awaits = [2], releases = [2]} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %55, %31, %48 : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> (!ttile.tile<[64, 64], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>)
  %56 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
  %57 = ttile.elementwise %19, %56 {fn = "eq"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], bool>
  %58 = ttile.constant {value = 1.0} : () -> !ttile.tile<[64], f32>
  %59 = ttile.select %57, %58, %19 : (!ttile.tile<[64], bool>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
  %60 = ttile.broadcast %59 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
  %61 = ttile.elementwise %17, %60 {fn = "div"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %62 = ttile.cast %61 {rounding = "nearest_even"} : (!ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], bf16>
  ttile.store %62, %3, %4, %5, %7, %8 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 64, 64]} : (!ttile.tile<[64, 64], bf16>, !ttile.buffer<[1, 2, 64, 64], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Heads of 128 leave no room for two stages there.
// CHECK-LABEL: ttile.kernel @whole(
// CHECK-SAME:    warpgroups = 1, roles = "producer"}
ttile.kernel @whole(%0: !ttile.buffer<[1, 2, 64, 128], bf16>, %1: !ttile.buffer<[1, 2, 256, 128], bf16>, %2: !ttile.buffer<[1, 2, 256, 128], bf16>, %3: !ttile.buffer<[1, 2, 64, 128], bf16>) attributes {symbols = [], grid = [1, 2, 1], writes = [3], kind = "library", warpgroups = 1} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.program_id {axis = 1} : () -> !ttile.index
  %6 = ttile.program_id {axis = 2} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_p"], expr = 64*_p} : (!ttile.index) -> !ttile.index
  %8 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %0, %4, %5, %7, %9 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], map = [_b, _h, _i, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 64, 64], stages = 1, ring = 0} : (!ttile.buffer<[1, 2, 64, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], bf16>
  %11 = ttile.cast %10 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
  %12 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %13 = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %14 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 128], f32>
  %15 = ttile.constant {value = -inf} : () -> !ttile.tile<[64], f32>
  %16 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
  %17, %18, %19 = ttile.for %12, %13, %14, %15, %16 {step = 128, stages = 3, form = "skewed", awaits = [0], releases = [0]} ({
  ^bb0(%20: !ttile.index, %21: !ttile.tile<[64, 128], f32>, %22: !ttile.tile<[64], f32>, %23: !ttile.tile<[64], f32>):
    %24 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 128], f32>
    %25 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %26 = ttile.load %1, %4, %5, %20, %25 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], map = [_b, _g, _j, _d], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 1} : (!ttile.buffer<[1, 2, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
    %28 = ttile.transpose %27 : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %29 = ttile.dot %11, %28, %24 {unit = "wgmma", instruction = [64, 128, 16], awaits = [1], releases = [1]} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %30 = ttile.reduce %29 {kind = "max", axis = 1} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64], f32>
    %31 = ttile.elementwise %22, %30 {fn = "max"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %32 = ttile.constant {value = -inf} : () -> !ttile.tile<[64], f32>
    %33 = ttile.elementwise %31, %32 {fn = "eq"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], bool>
    %34 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
    %35 = ttile.select %33, %34, %31 : (!ttile.tile<[64], bool>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %36 = ttile.constant {value = 0.12751743082459868} : () -> !ttile.tile<[64], f32>
    %37 = ttile.elementwise %35, %36 {fn = "mul"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %38 = ttile.elementwise %37 {fn = "neg"} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %39 = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %40 = ttile.constant {value = 0.12751743082459868} : () -> !ttile.tile<[64, 128], f32>
    %41 = ttile.broadcast %38 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
    %42 = ttile.elementwise %29, %40, %41 {fn = "fma"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %43 = ttile.elementwise %42 {fn = "exp2"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %44 = ttile.elementwise %22, %36, %38 {fn = "fma"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %45 = ttile.elementwise %44 {fn = "exp2"} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %46 = ttile.elementwise %23, %45 {fn = "mul"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %47 = ttile.reduce %43 {kind = "sum", axis = 1} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64], f32>
    %48 = ttile.elementwise %46, %47 {fn = "add"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
    %49 = ttile.broadcast %45 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
    %50 = ttile.elementwise %21, %49 {fn = "mul"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %51 = ttile.load %2, %4, %5, %8, %20 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], map = [_b, _g, _j, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 128, 64], ring = 2} : (!ttile.buffer<[1, 2, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
    %52 = ttile.cast %43 {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
    %53 = ttile.cast %52 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
    %54 = ttile.cast %51 : (!ttile.tile<[128, 128], bf16>) -> !ttile.tile<[128, 128], f32>
    %55 = ttile.dot %53, %54, %50 {unit = "wgmma", instruction = [64, 128, 16], awaits = [2], releases = [2]} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    ttile.yield %55, %31, %48 : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 128], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> (!ttile.tile<[64, 128], f32>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>)
  %56 = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
  %57 = ttile.elementwise %19, %56 {fn = "eq"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], bool>
  %58 = ttile.constant {value = 1.0} : () -> !ttile.tile<[64], f32>
  %59 = ttile.select %57, %58, %19 : (!ttile.tile<[64], bool>, !ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
  %60 = ttile.broadcast %59 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
  %61 = ttile.elementwise %17, %60 {fn = "div"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
  %62 = ttile.cast %61 {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
  ttile.store %62, %3, %4, %5, %7, %8 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [-1, -1], space = "shared", layout = "rows", swizzle = 128, box = [1, 1, 64, 64]} : (!ttile.tile<[64, 128], bf16>, !ttile.buffer<[1, 2, 64, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
