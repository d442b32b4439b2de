// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A copy moves what its types have, twice.
// CHECK: error[T0401]: `tsched.copy` says bytes = 16, and it takes 32
// CHECK: run `schedule-annotate-costs`
tsched.module @f(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  tsched.copy %x, %y {flops = 0, bytes = 16, time = 2}
  tsched.return
}

// -----

// Moving bytes between ranks computes nothing.
// CHECK: error[T0401]: `tsched.collective_start` says flops = 1, and it takes 0
tsched.module @f(%x: !ttile.buffer<[3], f32>, %y: !ttile.buffer<[6], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "tp", ranks = 2, flops = 1, bytes = 24, time = 2}
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// A loop takes its body as often as it runs.
// CHECK: error[T0401]: `tsched.for` says flops = 20, and it takes 30
tsched.module @f(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  %r = tsched.for %x, %y {carried = 1, length = 3, trips = 3, flops = 20, bytes = 6, time = 3} ({
  ^bb0(%0: !ttile.buffer<[4], f32>, %1: !ttile.buffer<[4], f32>):
    tsched.call @step(%0, %1) {flops = 10, bytes = 2, time = 1}
    tsched.yield
  }) : !ttile.buffer<[4], f32>
  tsched.return
}

// -----

// As often as it says elsewhere, too.
// CHECK: error[T0401]: `tsched.for` runs 3 iterations by its `length`, and `trips` is 4
tsched.module @f(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  %r = tsched.for %x, %y {carried = 1, length = 3, trips = 4} ({
  ^bb0(%0: !ttile.buffer<[4], f32>, %1: !ttile.buffer<[4], f32>):
    tsched.yield
  }) : !ttile.buffer<[4], f32>
  tsched.return
}

// -----

// The end of a lifetime costs nothing.
// CHECK: error[T0401]: `tsched.free` says bytes = 4, and it takes 0
tsched.module @f() {
  %a = tsched.alloc : !ttile.buffer<[1], f32>
  tsched.free %a {bytes = 4}
  tsched.return
}

// -----

// A program is the sum of its ops.
// CHECK: error[T0401]: `tsched.module` says bytes = 9*B, and it takes 12*B
tsched.module @sum(%x: !ttile.buffer<[B], f32>) attributes {flops = 2*B, bytes = 9*B, time = 2*B} {
  tsched.call @k(%x) {flops = B, bytes = 8*B, time = B}
  tsched.call @k(%x) {flops = B, bytes = 4*B, time = B}
  tsched.return
}
