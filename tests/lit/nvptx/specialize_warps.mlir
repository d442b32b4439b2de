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
