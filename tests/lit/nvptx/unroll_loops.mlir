// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows,nvptx-unroll-loops' | filecheck %s

// A loop over large tiles is left as it is.
// CHECK-LABEL: ttile.kernel @part(
// CHECK:         ttile.for %{{.*}} {step = 2048} ({
ttile.kernel @part(%x: !ttile.buffer<[4096], f32>, %y: !ttile.buffer<[5000], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index %p {names = ["p"], expr = 4096*p} : (!ttile.index) -> !ttile.index
  %hi = ttile.index %p {names = ["p"], expr = min(4096, 4096*p + 4096)} : (!ttile.index) -> !ttile.index
  ttile.for %lo, %hi {step = 2048} ({
  ^bb0(%i: !ttile.index):
    %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[4096], f32>, !ttile.index) -> !ttile.tile<[2048], f32>
    %s = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[2048], f32>, !ttile.tile<[2048], f32>) -> !ttile.tile<[2048], f32>
    ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[2048], f32>, !ttile.buffer<[5000], f32>, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// All iterations over a row that registers hold.
// CHECK-LABEL: ttile.kernel @row(
// CHECK:         ttile.for %{{.*}} {step = 32, nvptx.unroll = 0}
ttile.kernel @row(%x: !ttile.buffer<[64, 256], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
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
// Eight where a thread has one element of each tile.
// CHECK-LABEL: ttile.kernel @any(
// CHECK:         ttile.for %{{.*}} {step = 32, nvptx.unroll = 8}
ttile.kernel @any(%x: !ttile.buffer<[64, 65536], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 65536} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[32], f32>
  %s = ttile.for %lo, %hi, %z {step = 32} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[32], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 65536], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    %b = ttile.elementwise %a, %v {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.yield %b : (!ttile.tile<[32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %r = ttile.reduce %s {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
  ttile.store %r, %y, %p {coords = ["p"], axes = [], map = [p], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
