// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows,nvptx-place-scratch' | filecheck %s

// In registers with the row.
// CHECK-LABEL: ttile.kernel @narrow(
// CHECK:         ttile.scratch {nvptx.space = "registers"}
ttile.kernel @narrow(%x: !ttile.buffer<[64, 1024], f32>, %y: !ttile.buffer<[64, 1024], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 1024} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[32], f32>
  %k = ttile.scratch : () -> !ttile.buffer<[1024], f32>
  %s = ttile.for %lo, %hi, %z {step = 32} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[32], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 1024], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    %e = ttile.elementwise %v {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.store %e, %k, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[1024], f32>, !ttile.index) -> ()
    %b = ttile.elementwise %a, %e {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.yield %b : (!ttile.tile<[32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %r = ttile.reduce %s {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
  ttile.for %lo, %hi {step = 32} ({
  ^bb0(%i: !ttile.index):
    %e = ttile.load %k, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[1024], f32>, !ttile.index) -> !ttile.tile<[32], f32>
    %t = ttile.broadcast %r {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[32], f32>
    %q = ttile.elementwise %e, %t {fn = "div"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.store %q, %y, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[64, 1024], f32>, !ttile.index, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Four warps of a block divide 96 KB: 256 KB for each are in global memory, which is what no attribute says.
// CHECK-LABEL: ttile.kernel @wide(
// CHECK:         ttile.scratch : ()
ttile.kernel @wide(%x: !ttile.buffer<[64, 65536], f32>, %y: !ttile.buffer<[64, 65536], f32>) attributes {symbols = [], grid = [64], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %lo = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %hi = ttile.index {names = [], expr = 65536} : () -> !ttile.index
  %z = ttile.constant {value = 0.0} : () -> !ttile.tile<[32], f32>
  %k = ttile.scratch : () -> !ttile.buffer<[65536], f32>
  %s = ttile.for %lo, %hi, %z {step = 32} ({
  ^bb0(%i: !ttile.index, %a: !ttile.tile<[32], f32>):
    %v = ttile.load %x, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.buffer<[64, 65536], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32>
    %e = ttile.elementwise %v {fn = "exp"} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.store %e, %k, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[65536], f32>, !ttile.index) -> ()
    %b = ttile.elementwise %a, %e {fn = "add"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.yield %b : (!ttile.tile<[32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %r = ttile.reduce %s {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
  ttile.for %lo, %hi {step = 32} ({
  ^bb0(%i: !ttile.index):
    %e = ttile.load %k, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[65536], f32>, !ttile.index) -> !ttile.tile<[32], f32>
    %t = ttile.broadcast %r {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[32], f32>
    %q = ttile.elementwise %e, %t {fn = "div"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.store %q, %y, %p, %i {coords = ["p", "i"], axes = ["i"], map = [p, i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[64, 65536], f32>, !ttile.index, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// In shared memory where it is small.
// CHECK-LABEL: ttile.kernel @through(
// CHECK:         ttile.scratch {nvptx.space = "shared"}
ttile.kernel @through(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch : () -> !ttile.buffer<[64], f32>
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %v, %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  %w = ttile.load %s, %z {coords = ["i"], axes = ["i"], map = [-i + 63], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %w, %y, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
