// RUN: not tessera-opt %s --split -p nvptx-swizzle-tiles 2>&1 | filecheck %s

// Lines along k are whole ones: a dot reads step after step of them.
// CHECK: error[T0501]: `@split` says what does not fit: k is 32, and a tile along it is made of whole spans
// CHECK: help: leave `swizzle`, `box` out, and what fits is chosen
ttile.kernel @split(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 32} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 128} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 32], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns"} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 32], bf16>) -> !ttile.tile<[128, 32], f32>
    %d = ttile.cast %b : (!ttile.tile<[32, 256], bf16>) -> !ttile.tile<[32, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 32], f32>, !ttile.tile<[32, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Only warpgroups read narrow lines.
// CHECK: error[T0501]: `@threads` says what does not fit: `swizzle` is 64, and lines there are of 128 bytes
// CHECK: help: leave `swizzle`, `box` out, and what fits is chosen
ttile.kernel @threads(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 64} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
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
// A box is a line wide.
// CHECK: error[T0501]: a line of 64 bytes is swizzled, and `box` has 64 elements of bf16 in one
ttile.kernel @both(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows", swizzle = 64, box = [128, 64]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns"} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Rows leave in the widest.
// CHECK: error[T0501]: `@leaving` says what does not fit: rows leave in lines of 128 bytes, and `swizzle` is 64
// CHECK: help: leave `swizzle`, `box` out, and what fits is chosen
ttile.kernel @leaving(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2} {
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
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 64} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `@along` says what does not fit: rows of a thread are neighbours, and instructions have them 8 apart
ttile.kernel @along(%0: !ttile.buffer<[16, 256], bf16>, %1: !ttile.buffer<[128, 256], i8>, %2: !ttile.buffer<[1, 128], f32>, %3: !ttile.buffer<[16, 128], bf16>) attributes {symbols = [], grid = [1, 2], writes = [3], kind = "contraction", warpgroups = 1, row_pairs = true} {
  %4 = ttile.program_id {axis = 0} : () -> !ttile.index
  %5 = ttile.index %4 {names = ["_m"], expr = 16*_m} : (!ttile.index) -> !ttile.index
  %6 = ttile.program_id {axis = 1} : () -> !ttile.index
  %7 = ttile.index %6 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
  %8 = ttile.constant {value = 0} : () -> !ttile.tile<[64, 16], f32>
  %9 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %10 = ttile.load %2, %7 {coords = ["_n"], axes = ["_n"], map = [0, _n], bounds = [128], space = "registers"} : (!ttile.buffer<[1, 128], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  %11 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %12 = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %13, %14 = ttile.for %11, %12, %8, %10 {step = 128} ({
  ^bb0(%15: !ttile.index, %16: !ttile.tile<[64, 16], f32>, %17: !ttile.tile<[64], f32>):
    %18 = ttile.broadcast %17 {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 128], f32>
    %19 = ttile.index %15 {names = ["_k"], expr = ((_k + 128) mod 256)} : (!ttile.index) -> !ttile.index
    %20 = ttile.load %2, %7 {coords = ["_n"], axes = ["_n"], map = [0, _n], bounds = [128], space = "registers"} : (!ttile.buffer<[1, 128], f32>, !ttile.index) -> !ttile.tile<[64], f32>
    %21 = ttile.load %1, %7, %15 {coords = ["_n", "_k"], axes = ["_n", "_k"], map = [_n, _k], bounds = [128, 256], space = "shared", layout = "rows"} : (!ttile.buffer<[128, 256], i8>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], i8>
    %22 = ttile.cast %21 : (!ttile.tile<[64, 128], i8>) -> !ttile.tile<[64, 128], f32>
    %23 = ttile.elementwise %22, %18 {fn = "mul"} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], f32>
    %24 = ttile.cast %23 {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
    %25 = ttile.cast %24 : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
    %26 = ttile.load %0, %5, %15 {coords = ["_m", "_k"], axes = ["_k", "_m"], map = [_m, _k], bounds = [256, 16], space = "shared", layout = "columns"} : (!ttile.buffer<[16, 256], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 16], bf16>
    %27 = ttile.cast %26 : (!ttile.tile<[128, 16], bf16>) -> !ttile.tile<[128, 16], f32>
    %28 = ttile.dot %25, %27, %16 {unit = "wgmma", instruction = [64, 16, 16]} : (!ttile.tile<[64, 128], f32>, !ttile.tile<[128, 16], f32>, !ttile.tile<[64, 16], f32>) -> !ttile.tile<[64, 16], f32>
    ttile.yield %28, %20 : (!ttile.tile<[64, 16], f32>, !ttile.tile<[64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 16], f32>, !ttile.tile<[64], f32>) -> (!ttile.tile<[64, 16], f32>, !ttile.tile<[64], f32>)
  %29 = ttile.cast %13 {rounding = "nearest_even"} : (!ttile.tile<[64, 16], f32>) -> !ttile.tile<[64, 16], bf16>
  ttile.store %29, %3, %5, %7 {coords = ["_m", "_n"], axes = ["_n", "_m"], map = [_m, _n], bounds = [128, 16], space = "registers"} : (!ttile.tile<[64, 16], bf16>, !ttile.buffer<[16, 128], bf16>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
