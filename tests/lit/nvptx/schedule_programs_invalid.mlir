// RUN: not tessera-opt %s --split -p nvptx-schedule-programs 2>&1 | filecheck %s

// CHECK: error[T0501]: `@odd` says what does not fit: clusters need an even number of rows of blocks, and there are 3
// CHECK: help: leave `scheduler`, `group`, `multicast` out, and what fits is chosen
ttile.kernel @odd(%x: !ttile.buffer<[384, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[384, 512], f32>) attributes {symbols = [], grid = [3, 2], writes = [2], kind = "contraction", scheduler = "persistent", group = 2, multicast = true, warpgroups = 2} {
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
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[384, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `@once` says what does not fit: on wgmma the scheduler is persistent or dynamic, not once
ttile.kernel @once(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", scheduler = "once", warpgroups = 2} {
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
// CHECK: error[T0501]: `@tensors` says what does not fit: clusters are for wgmma
ttile.kernel @tensors(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", scheduler = "persistent", group = 2, multicast = true, warpgroups = 2} {
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
    %e = ttile.dot %c, %d, %acc {unit = "tcgen05", instruction = [128, 256, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows", swizzle = 128, box = [64, 32]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: the programs of a pair are neighbours in time: `scheduler` is persistent, and `group` even
ttile.kernel @apart(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", scheduler = "persistent", group = 3, multicast = true, warpgroups = 2} {
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
// CHECK: error[T0501]: `scheduler` is one of once, persistent, dynamic, got backwards
ttile.kernel @backwards(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", scheduler = "backwards", warpgroups = 2} {
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
// CHECK: error[T0501]: `@whole` says what does not fit: programs are passed over that store nothing, and nobody knows which
ttile.kernel @whole(%0: !ttile.buffer<[300, 64], bf16>, %1: !ttile.buffer<[3, 64, 128], bf16>, %2: !ttile.buffer<[6], i64>, %3: !ttile.buffer<[6], i64>, %4: !ttile.buffer<[6], i64>, %5: !ttile.buffer<[300, 128], bf16>) attributes {symbols = [], grid = [6, 1], writes = [5], kind = "library", warpgroups = 2, scheduler = "persistent", skips = true} {
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
  ttile.store %25, %5, %8, %9, %12 {coords = ["_i", "_end", "_j"], axes = ["_i", "_j"], map = [_i, _j], bounds = [300, 128], space = "shared", layout = "rows", swizzle = 128, box = [64, 64]} : (!ttile.tile<[128, 128], bf16>, !ttile.buffer<[300, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `skips` is of programs that each CTA takes in order: `scheduler` is persistent, without multicast
ttile.kernel @given(%0: !ttile.buffer<[300, 64], bf16>, %1: !ttile.buffer<[3, 64, 128], bf16>, %2: !ttile.buffer<[6], i64>, %3: !ttile.buffer<[6], i64>, %4: !ttile.buffer<[6], i64>, %5: !ttile.buffer<[300, 128], bf16>) attributes {symbols = [], grid = [6, 1], writes = [5], kind = "library", warpgroups = 2, scheduler = "dynamic", skips = true} {
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
