// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows,nvptx-rematerialize-rows' | filecheck %s

// No registers hold the row: both loops compute the exponentials, and there is no scratch.
// CHECK-LABEL: ttile.kernel @wide(
// CHECK-SAME:    nvptx.rows = "rematerialized"
// CHECK-NOT:     ttile.scratch
// CHECK:         ttile.for
// CHECK:         %[[E:[a-z0-9_]+]] = ttile.elementwise %{{.*}} {fn = "exp"}
// CHECK-NOT:     ttile.store
// CHECK:         ttile.elementwise %{{.*}}, %[[E]] {fn = "add"}
// CHECK:         ttile.for
// CHECK:         %[[V:[a-z0-9_]+]] = ttile.load %x
// CHECK-NEXT:    %[[F:[a-z0-9_]+]] = ttile.elementwise %[[V]] {fn = "exp"}
// CHECK:         ttile.elementwise %[[F]], %{{.*}} {fn = "div"}
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
// Registers hold the exponentials: they are kept.
// CHECK-LABEL: ttile.kernel @narrow(
// CHECK:         ttile.scratch
// CHECK:         ttile.load %k
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
