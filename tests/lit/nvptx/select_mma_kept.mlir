// RUN: tessera-opt %s --split -p nvptx-select-mma | filecheck %s

// What a kernel says itself is kept: a quarter of the columns at a time, and one group for all rows.
// CHECK-LABEL: ttile.kernel @written(
// CHECK-SAME:    warpgroups = 1
// CHECK:         ttile.dot {{.*}} {unit = "wgmma", instruction = [64, 32, 32]}
ttile.kernel @written(%x: !ttile.buffer<[256, 256], f8e4m3>, %w: !ttile.buffer<[512, 256], f8e4m3>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [2, 4], writes = [2], kind = "contraction", warpgroups = 1} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 128], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 128} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 128], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 256]} : (!ttile.buffer<[256, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], f8e4m3>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [256, 512]} : (!ttile.buffer<[512, 256], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 128], f8e4m3>
    %c = ttile.cast %a : (!ttile.tile<[128, 128], f8e4m3>) -> !ttile.tile<[128, 128], f32>
    %d = ttile.cast %b : (!ttile.tile<[128, 128], f8e4m3>) -> !ttile.tile<[128, 128], f32>
    %e = ttile.dot %c, %d, %acc {unit = "wgmma", instruction = [64, 32, 32]} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    ttile.yield %e : (!ttile.tile<[128, 128], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 128], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
