// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows' | filecheck %s

// One warp has 8 elements of a row to a thread, in registers.
// CHECK-LABEL: ttile.kernel @narrow(
// CHECK-SAME:    nvptx.threads = 32, nvptx.rows = "registers"}
ttile.kernel @narrow(%x: !ttile.buffer<[64, 256], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 256} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[32], f32>
  %s = ttile.for %lo, %hi, %z {step = 32} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[32], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 256], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    %b = ttile.elementwise %a, %v {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.yield %b : (!ttile.tile<[32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %r = ttile.reduce %s {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Eight leaves: eight warps have one each.
// CHECK-LABEL: ttile.kernel @wide(
// CHECK-SAME:    nvptx.threads = 32, nvptx.blocks = 4, nvptx.warps_per_row = 8, nvptx.leaves = 1, nvptx.rows = "registers"}
ttile.kernel @wide(%x: !ttile.buffer<[64, 8192], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 8192} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[1024], f32>
  %s = ttile.for %lo, %hi, %z {step = 1024} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[1024], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 8192], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[1024], f32>
    %b = ttile.elementwise %a, %v {fn = "max"} : (!ttile.tile<[1024], f32>, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
    ttile.yield %b : (!ttile.tile<[1024], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
  %r = ttile.reduce %s {kind = "max", axis = 0} : (!ttile.tile<[1024], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Sixteen leaves: as many warps of a block have one each, and two blocks fill a multiprocessor.
// CHECK-LABEL: ttile.kernel @wider(
// CHECK-SAME:    nvptx.threads = 32, nvptx.blocks = 2, nvptx.warps_per_row = 16, nvptx.leaves = 1, nvptx.rows = "registers"}
ttile.kernel @wider(%x: !ttile.buffer<[64, 16384], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 16384} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[1024], f32>
  %s = ttile.for %lo, %hi, %z {step = 1024} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[1024], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 16384], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[1024], f32>
    %b = ttile.elementwise %a, %v {fn = "max"} : (!ttile.tile<[1024], f32>, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
    ttile.yield %b : (!ttile.tile<[1024], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
  %r = ttile.reduce %s {kind = "max", axis = 0} : (!ttile.tile<[1024], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// More than two leaves for each of sixteen warps in eight blocks: it stays in memory.
// CHECK-LABEL: ttile.kernel @widest(
// CHECK-SAME:    nvptx.threads = 32}
ttile.kernel @widest(%x: !ttile.buffer<[64, 262145], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 262145} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[1024], f32>
  %s = ttile.for %lo, %hi, %z {step = 1024} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[1024], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 262145], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[1024], f32>
    %b = ttile.elementwise %a, %v {fn = "max"} : (!ttile.tile<[1024], f32>, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
    ttile.yield %b : (!ttile.tile<[1024], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
  %r = ttile.reduce %s {kind = "max", axis = 0} : (!ttile.tile<[1024], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// A symbolic width has kernels for rows that begin at multiples of 16 bytes and for all, of few leaves, of more, and of
// those that blocks of a cluster share, beside that for any width, which is as it was.
// CHECK-LABEL: ttile.kernel @any__aligned(
// CHECK-SAME:    nvptx.threads = 32, nvptx.warps_per_row = 8, nvptx.blocks = 4, nvptx.multiple = 4, nvptx.leaves = 1, nvptx.rows = "registers"}
// CHECK-LABEL: ttile.kernel @any__shared(
// CHECK-SAME:    nvptx.threads = 32, nvptx.warps_per_row = 8, nvptx.blocks = 4, nvptx.leaves = 1, nvptx.rows = "registers"}
// CHECK-LABEL: ttile.kernel @any__aligned_wide(
// CHECK-SAME:    nvptx.threads = 32, nvptx.warps_per_row = 18, nvptx.blocks = 2, nvptx.multiple = 4, nvptx.leaves = 1, nvptx.rows = "registers"}
// CHECK-LABEL: ttile.kernel @any__wide(
// CHECK-LABEL: ttile.kernel @any__aligned_cluster(
// CHECK-SAME:    nvptx.threads = 32, nvptx.warps_per_row = 32, nvptx.row_blocks = 4, nvptx.blocks = 1, nvptx.multiple = 4, nvptx.leaves = 1, nvptx.rows = "registers"}
// CHECK-LABEL: ttile.kernel @any__cluster(
// CHECK-LABEL: ttile.kernel @any(
// CHECK-SAME:    nvptx.threads = 32}
ttile.kernel @any(%x: !ttile.buffer<[64, N], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = ["N"], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = N} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[1024], f32>
  %s = ttile.for %lo, %hi, %z {step = 1024} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[1024], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[1024], f32>
    %b = ttile.elementwise %a, %v {fn = "max"} : (!ttile.tile<[1024], f32>, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
    ttile.yield %b : (!ttile.tile<[1024], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[1024], f32>) -> !ttile.tile<[1024], f32>
  %r = ttile.reduce %s {kind = "max", axis = 0} : (!ttile.tile<[1024], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// What reduces nothing has no rows.
// CHECK-LABEL: ttile.kernel @doubled(
// CHECK-SAME:    nvptx.threads = 256}
ttile.kernel @doubled(%x: !ttile.buffer<[4096], f32>, %y: !ttile.buffer<[4096], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index %p {names = ["p"], expr = 4096*p} : (!ttile.index) -> !ttile.index
  %hi = ttile.index %p {names = ["p"], expr = min(4096, 4096*p + 4096)} : (!ttile.index) -> !ttile.index
  ttile.for %lo, %hi {step = 2048} ({
  ^bb0(%i: !ttile.index):
    %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[4096], f32>, !ttile.index) -> !ttile.tile<[2048], f32>
    %s = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[2048], f32>, !ttile.tile<[2048], f32>) -> !ttile.tile<[2048], f32>
    ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[2048], f32>, !ttile.buffer<[4096], f32>, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// A run of 32 leaves of a longer row: sixteen warps have two leaves each.
// CHECK-LABEL: ttile.kernel @run(
// CHECK-SAME:    nvptx.threads = 32, nvptx.warps_per_row = 16, nvptx.leaves = 2, nvptx.rows = "registers"}
ttile.kernel @run(%x: !ttile.buffer<[1000000], f32>, %y: !ttile.buffer<[31], f32>) attributes {symbols = [], grid = [31], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index %p {names = ["s"], expr = 32768*s} : (!ttile.index) -> !ttile.index
  %hi = ttile.index %p {names = ["s"], expr = min(1000000, 32768*s + 32768)} : (!ttile.index) -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[256], f32>
  %s = ttile.for %lo, %hi, %z {step = 1024} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[256], f32>):
    %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [1000000]} : (!ttile.buffer<[1000000], f32>, !ttile.index) -> !ttile.tile<[256], f32>
    %b = ttile.elementwise %a, %v {fn = "max"} : (!ttile.tile<[256], f32>, !ttile.tile<[256], f32>) -> !ttile.tile<[256], f32>
    ttile.yield %b : (!ttile.tile<[256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[256], f32>) -> !ttile.tile<[256], f32>
  %r = ttile.reduce %s {kind = "max", axis = 0} : (!ttile.tile<[256], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[31], f32>, !ttile.index) -> ()
  ttile.return
}
