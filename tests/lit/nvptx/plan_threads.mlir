// RUN: tessera-opt %s --split -p nvptx-plan-threads | filecheck %s

// Eight elements of a tile to a thread.
// CHECK-LABEL: ttile.kernel @doubled(
// CHECK-SAME:    nvptx.threads = 256
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
// A row, 32 elements at a time, is one warp's.
// CHECK-LABEL: ttile.kernel @row(
// CHECK-SAME:    nvptx.threads = 32
ttile.kernel @row(%x: !ttile.buffer<[64, 8192], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 8192} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[32], f32>
  %s = ttile.for %lo, %hi, %z {step = 32} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[32], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 8192], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    %b = ttile.elementwise %a, %v {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.yield %b : (!ttile.tile<[32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %r = ttile.reduce %s {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// What the author asks for is kept.
// CHECK-LABEL: ttile.kernel @asked(
// CHECK-SAME:    nvptx.threads = 128, nvptx.most_neighbours = 2
ttile.kernel @asked(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1], schedule = {warps = 4, vector = 2}} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.barrier
  ttile.store %v, %y, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Single elements have one thread, and no attribute.
// CHECK-LABEL: ttile.kernel @one(
// CHECK-NOT:     nvptx.threads
ttile.kernel @one(%x: !ttile.buffer<[1], f32>, %y: !ttile.buffer<[1], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %v = ttile.load %x, %z {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.buffer<[1], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.barrier
  ttile.store %v, %y, %z {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Windows of two rows share what threads load of rows below each other, and have four of them; so there are fewer threads.
// CHECK-LABEL: ttile.kernel @windows(
// CHECK-SAME:    nvptx.near_rows = 4, nvptx.threads = 128
ttile.kernel @windows(%x: !ttile.buffer<[16777216], f32>, %y: !ttile.buffer<[16777216], f32>) attributes {symbols = [], grid = [8192], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %a = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [64*i + j], bounds = [-1, -1]} : (!ttile.buffer<[16777216], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 64], f32>
  %b = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [64*i + j + 64], bounds = [-1, -1], windows = [i + 1, 262144]} : (!ttile.buffer<[16777216], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 64], f32>
  %c = ttile.elementwise %a, %b {fn = "add"} : (!ttile.tile<[32, 64], f32>, !ttile.tile<[32, 64], f32>) -> !ttile.tile<[32, 64], f32>
  ttile.store %c, %y, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [64*i + j], bounds = [-1, -1]} : (!ttile.tile<[32, 64], f32>, !ttile.buffer<[16777216], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
