// RUN: not tessera-opt %s --split -p nvptx-specialize-warps 2>&1 | filecheck %s

// CHECK: error[T0501]: `@all` says what does not fit: without a producer a stage is copied while another one is read, and a loop says 1
// CHECK: help: leave `roles`, `registers`, `warps_n` out, and what fits is chosen
ttile.kernel @all(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", roles = "uniform", warpgroups = 2} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64, stages = 1} ({
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
// CHECK: error[T0501]: `@threads` says what does not fit: kernels on mma.sync copy by all threads, and `roles` is producer
ttile.kernel @threads(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", roles = "producer", warpgroups = 2} {
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
// CHECK: error[T0501]: `@many` says what does not fit: a producer and 2 consumers with [72, 240] registers take 70656 of 65536
ttile.kernel @many(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", roles = "producer", registers = [72, 240], warpgroups = 2} {
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
// CHECK: error[T0501]: registers of a thread are multiples of 8 from 24 to 240, for both roles, got [20, 240]
ttile.kernel @few(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", roles = "producer", registers = [20, 240], warpgroups = 2} {
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
// CHECK: error[T0501]: `registers` are those of a producer's and a consumer's threads, and there is no producer
ttile.kernel @nobody(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", registers = [40, 232], warpgroups = 2} {
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
// CHECK: error[T0501]: `@three` says what does not fit: 1, 2, 4 warps stand side by side, not 3
ttile.kernel @three(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2, warps_n = 3} {
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
// CHECK: error[T0501]: `@narrow` says what does not fit: 4 warps side by side have multiples of 64 columns each, and there are 64
ttile.kernel @narrow(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 8], writes = [2], kind = "contraction", warpgroups = 2, warps_n = 4} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 64], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192], space = "shared", layout = "rows"} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512], space = "shared", layout = "columns"} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 64], bf16>) -> !ttile.tile<[64, 64], f32>
    %e = ttile.dot %c, %d, %acc {unit = "mma.sync", instruction = [16, 8, 16]} : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 64], f32>, !ttile.tile<[128, 64], f32>) -> !ttile.tile<[128, 64], f32>
    ttile.yield %e : (!ttile.tile<[128, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 64], f32>) -> !ttile.tile<[128, 64], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 64], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `@groups` says what does not fit: kernels on wgmma have warps that share rows by fours, and `warps_n` is 2
ttile.kernel @groups(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction", warpgroups = 2, warps_n = 2} {
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
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512], space = "shared", layout = "rows"} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
