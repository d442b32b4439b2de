// RUN: tessera-opt %s --split -p nvptx-schedule-programs | filecheck %s
// RUN: tessera-opt %s --split -p 'nvptx-schedule-programs{multicast = "always"}' | filecheck %s --check-prefix=MULTICAST

// Persistent CTAs take programs that share rows and columns together; clusters need enough of them.
// CHECK-LABEL: ttile.kernel @few(
// CHECK-SAME:    scheduler = "persistent", group = 16}
// MULTICAST-LABEL: ttile.kernel @few(
// MULTICAST-SAME:    scheduler = "persistent", group = 16, multicast = true}
ttile.kernel @few(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
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
// CHECK-LABEL: ttile.kernel @many(
// CHECK-SAME:    scheduler = "persistent", group = 16, multicast = true}
ttile.kernel @many(%x: !ttile.buffer<[8192, 192], bf16>, %w: !ttile.buffer<[8192, 192], bf16>, %y: !ttile.buffer<[8192, 8192], f32>) attributes {symbols = [], grid = [64, 32], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [8192, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[8192, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 8192], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[8192, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [8192, 8192], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[8192, 8192], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// The last pair of an odd number of rows of blocks has one program that is wholly outside.
// MULTICAST-LABEL: ttile.kernel @odd(
// MULTICAST-SAME:    grid = [4, 2]
// MULTICAST-SAME:    scheduler = "persistent", group = 16, multicast = true}
ttile.kernel @odd(%x: !ttile.buffer<[384, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[384, 512], f32>) attributes {symbols = [], grid = [3, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 4} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [384, 192], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[384, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns", swizzle = 128, box = [256, 64]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [384, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[384, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Programs that take unequally long are given out as CTAs get done, the longest first, and have no pairs.
// CHECK-LABEL: ttile.kernel @uneven(
// CHECK-SAME:    scheduler = "dynamic", group = 16, descending = true}
// MULTICAST-LABEL: ttile.kernel @uneven(
// MULTICAST-SAME:    scheduler = "dynamic", group = 16, descending = true}
ttile.kernel @uneven(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index %1 {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
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
// A CTA of single warps does one program.
// CHECK-LABEL: ttile.kernel @threads(
// CHECK-SAME:    scheduler = "once", group = 16}
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
// What a kernel says is kept, pairs that it does not name included.
// MULTICAST-LABEL: ttile.kernel @written(
// MULTICAST-SAME:    scheduler = "dynamic", group = 4}
ttile.kernel @written(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", scheduler = "dynamic", group = 4, warpgroups = 2} {
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
// CHECK-NOT:     walk
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
// Programs are passed over that store nothing, where memory says how far they store; below each other they may read one matrix.
// CHECK-LABEL: ttile.kernel @blocks(
// CHECK-SAME:    scheduler = "persistent", group = 10, skips = true}
ttile.kernel @blocks(%0: !ttile.buffer<[300, 64], bf16>, %1: !ttile.buffer<[3, 64, 128], bf16>, %2: !ttile.buffer<[6], i64>, %3: !ttile.buffer<[6], i64>, %4: !ttile.buffer<[6], i64>, %5: !ttile.buffer<[300, 128], bf16>) attributes {symbols = [], grid = [6, 1], writes = [5], kind = "library", warpgroups = 2} {
  %6 = ttile.program_id {axis = 0} : () -> !ttile.index
  %7 = ttile.fetch %2, %6 {coords = ["_p"], map = [_p]} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
  %8 = ttile.fetch %3, %6 {coords = ["_p"], map = [_p]} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
  %9 = ttile.fetch %4, %6 {coords = ["_p"], map = [_p]} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
  %10 = ttile.index %7 {names = ["_matrix"], expr = max(0, _matrix)} : (!ttile.index) -> !ttile.index
  %11 = ttile.program_id {axis = 1} : () -> !ttile.index
  %12 = ttile.index %11 {names = ["_j"], expr = 128*_j} : (!ttile.index) -> !ttile.index
  %13 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %14 = ttile.index {names = [], expr = 64} : () -> !ttile.index
  %15 = ttile.constant {value = 0} : () -> !ttile.tile<[128, 128], f32>
  %16 = ttile.for %13, %14, %15 {step = 64, stages = 6} ({
  ^bb0(%17: !ttile.index, %18: !ttile.tile<[128, 128], f32>):
    %19 = ttile.load %0, %8, %17 {coords = ["_i", "_k"], axes = ["_i", "_k"], map = [_i, _k], bounds = [300, 64], space = "shared", layout = "rows", swizzle = 128, box = [128, 64]} : (!ttile.buffer<[300, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %20 = ttile.cast %19 : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %21 = ttile.load %1, %10, %12, %17 {coords = ["_g", "_j", "_k"], axes = ["_k", "_j"], map = [_g, _k, _j], bounds = [64, 128], space = "shared", layout = "rows", swizzle = 128, box = [1, 64, 64]} : (!ttile.buffer<[3, 64, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], bf16>
    %22 = ttile.cast %21 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
    %23 = ttile.dot %20, %22, %18 {unit = "wgmma", instruction = [64, 128, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    ttile.yield %23 : (!ttile.tile<[128, 128], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
  %24 = ttile.cast %16 {rounding = "nearest_even"} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], bf16>
  %25 = ttile.clip %24, %7, %8, %12 {coords = ["_matrix", "_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = 128*min(1, _matrix + 1), identity = 0} : (!ttile.tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], bf16>
  ttile.store %25, %5, %8, %9, %12 {coords = ["_i", "_end", "_j"], axes = ["_i", "_j"], map = [_i, _j], bounds = [min(300, _end), 128], space = "shared", layout = "rows", swizzle = 128, box = [64, 64]} : (!ttile.tile<[128, 128], bf16>, !ttile.buffer<[300, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
