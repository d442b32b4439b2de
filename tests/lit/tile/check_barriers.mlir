// RUN: not tessera-opt %s --split -p tile-check-barriers 2>&1 | filecheck %s

// What was written is read at other indices after a barrier.
// CHECK-NOT: `@waits`
ttile.kernel @waits() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.barrier
  %r = ttile.load %s, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// A worker sees what it wrote itself, and memory that is private is in order.
// CHECK-NOT: `@own`
ttile.kernel @own() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %p = ttile.scratch : () -> !ttile.buffer<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  %r = ttile.load %s, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.store %t, %p, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  %q = ttile.load %p, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// Read after write.
// CHECK: error[T0503]: two workers of `@read_early` write and then read cell [0] of shared memory, and no barrier stands between
// CHECK-NEXT: check_barriers.mlir:[[# @LINE + 10]]:3
// CHECK: note: first {{.*}}check_barriers.mlir:[[# @LINE + 8]]:3 writes at element [0] of a tile [8]
// CHECK-NEXT: note: then {{.*}}check_barriers.mlir:[[# @LINE + 8]]:3 reads at element [7] of a tile [8]
// CHECK-NEXT: note: in program [0], N = 1
// CHECK-NEXT: help: put a barrier between the two
ttile.kernel @read_early() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  %r = ttile.load %s, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// Write after read.
// CHECK: error[T0503]: two workers of `@write_early` read and then write cell [1] of shared memory
// CHECK: note: first {{.*}} reads at element [0] of a tile [8]
// CHECK-NEXT: note: then {{.*}} writes at element [1] of a tile [8]
ttile.kernel @write_early() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.barrier
  %r = ttile.load %s, %z {coords = ["a"], axes = ["a"], map = [(a + 1) mod 8], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.store %r, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Write after write: an index identifies the thread among tiles of one shape only.
// CHECK: error[T0503]: two workers of `@write_twice` both write cell [0] of shared memory
// CHECK: note: first {{.*}} writes at element [0] of a tile [8]
// CHECK-NEXT: note: then {{.*}} writes at element [0] of a tile [4]
ttile.kernel @write_twice() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  %u = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  ttile.store %u, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[4], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Two elements of one store.
// CHECK: error[T0503]: two workers of `@halves` both write cell [0] of shared memory
// CHECK: note: first {{.*}} writes at element [0] of a tile [8]
// CHECK-NEXT: note: then {{.*}} writes at element [1] of a tile [8]
// CHECK: help: let every element write a cell of its own
ttile.kernel @halves() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a floordiv 2], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// One buffer and one barrier: the next step writes what this one still reads.
// CHECK: error[T0503]: two workers of `@around` read and then write cell [0, 7] of shared memory
// CHECK: note: first {{.*}} reads at element [0] of a tile [8], in step [0]
// CHECK-NEXT: note: then {{.*}} writes at element [7] of a tile [8], in step [1]
// CHECK-NEXT: note: in program [0], N = 2
// CHECK-NEXT: help: put a barrier between the two, where the loop goes from one step to the next
ttile.kernel @around() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[2, 8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %e = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %e {step = 1} ({
  ^bb0(%k: !ttile.index):
    ttile.store %t, %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [0, a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> ()
    ttile.barrier
    %r = ttile.load %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [0, 7 - a], bounds = [-1]} : (!ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8], f32>
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Two buffers and one barrier, or one buffer and two barriers.
// CHECK-NOT: `@double`
ttile.kernel @double() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[2, 8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %e = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %e {step = 1} ({
  ^bb0(%k: !ttile.index):
    ttile.store %t, %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [k mod 2, a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> ()
    ttile.barrier
    %r = ttile.load %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [k mod 2, 7 - a], bounds = [-1]} : (!ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8], f32>
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK-NOT: `@single`
ttile.kernel @single() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[2, 8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %e = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %e {step = 1} ({
  ^bb0(%k: !ttile.index):
    ttile.store %t, %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [0, a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> ()
    ttile.barrier
    %r = ttile.load %s, %z, %k {coords = ["a", "k"], axes = ["a"], map = [0, 7 - a], bounds = [-1]} : (!ttile.buffer<[2, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8], f32>
    ttile.barrier
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Partners that differ in one bit are found by running.
// CHECK: error[T0503]: two workers of `@partners` write and then read cell [1] of shared memory
ttile.kernel @partners() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  %a = ttile.coordinate %z {coords = ["a"], axes = ["a"], expr = a} : (!ttile.index) -> !ttile.tile<[8], i64>
  %1 = ttile.constant {value = 1} : () -> !ttile.tile<[8], i64>
  %x = ttile.elementwise %a, %1 {fn = "xor"} : (!ttile.tile<[8], i64>, !ttile.tile<[8], i64>) -> !ttile.tile<[8], i64>
  %r = ttile.load %s, %z, %x {coords = ["a"], axes = ["a"], map = [t0], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index, !ttile.tile<[8], i64>) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// Sums of integers are the same in any order, and are read after a barrier.
// CHECK-NOT: `@sums`
ttile.kernel @sums() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], i32>
  %t = ttile.constant {value = 1} : () -> !ttile.tile<[8], i32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a], bounds = [-1]} : (!ttile.tile<[8], i32>, !ttile.buffer<[8], i32>, !ttile.index) -> ()
  ttile.barrier
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [0], bounds = [-1], mode = "add"} : (!ttile.tile<[8], i32>, !ttile.buffer<[8], i32>, !ttile.index) -> ()
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a floordiv 2], bounds = [-1], mode = "add"} : (!ttile.tile<[8], i32>, !ttile.buffer<[8], i32>, !ttile.index) -> ()
  ttile.barrier
  %r = ttile.load %s, %z {coords = ["a"], axes = ["a"], map = [7 - a], bounds = [-1]} : (!ttile.buffer<[8], i32>, !ttile.index) -> !ttile.tile<[8], i32>
  ttile.return
}
// -----
// Sums of floats are not.
// CHECK: error[T0503]: two workers of `@float_sums` both write cell [0] of shared memory
ttile.kernel @float_sums() attributes {symbols = ["N"], grid = [N], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [0], bounds = [-1], mode = "add"} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.store %t, %s, %z {coords = ["a"], axes = ["a"], map = [a floordiv 2], bounds = [-1], mode = "add"} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.return
}
