// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What is started is waited for.
// CHECK: error[T0401]: collective 0 is never waited for
// CHECK: put a `tsched.collective_wait` behind it, in its block
tsched.module @unwaited(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.return
}

// -----

// What was not started is not waited for.
// CHECK: error[T0401]: collective 0 is waited for, and was not started before in this block
tsched.module @unstarted(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>) {
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// A branch has nothing in flight at its end: a wait inside does not end what began before it.
// CHECK: error[T0401]: `tsched.collective_wait` uses the buffer that collective 0 still fills
tsched.module @elsewhere(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>, %p: !ttile.buffer<[], bool>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.if %p ({
    tsched.collective_wait %x, %y {number = 0}
    tsched.yield
  }, {
    tsched.yield
  })
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// What comes may not be read before it is there, by whatever name.
// CHECK: error[T0401]: `tsched.copy` uses the buffer that collective 0 still fills
// CHECK: put the `tsched.collective_wait` of it before this
tsched.module @read_early(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>, %z: !ttile.buffer<[2, 4], f32>) {
  %v = tsched.alias %y : !ttile.buffer<[2, 4], f32>
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.copy %v, %z
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// What is sent may be read, and not be written.
// CHECK: error[T0401]: `tsched.copy` writes what collective 0 sends
tsched.module @written_early(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>, %z: !ttile.buffer<[4], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.copy %x, %z
  tsched.copy %z, %x
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// Its memory may not be freed while it is in flight.
// CHECK: error[T0401]: `tsched.collective_wait` uses a buffer that was freed
tsched.module @let_go(%y: !ttile.buffer<[8], f32>) {
  %x = tsched.alloc : !ttile.buffer<[4], f32>
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.free %x
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// All ranks run them in one order, that of their numbers.
// CHECK: error[T0401]: collective 0 starts behind collective 1, and ranks match them by their numbers
tsched.module @out_of_order(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>, %z: !ttile.buffer<[8], f32>) {
  tsched.collective_start %x, %y {number = 1, call = "all_gather", axis = "dp", ranks = 2}
  tsched.collective_start %x, %z {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.collective_wait %x, %z {number = 0}
  tsched.collective_wait %x, %y {number = 1}
  tsched.return
}

// -----

// A wait ends what it was started with.
// CHECK: error[T0401]: collective 0 is waited for with other values than it was started with
tsched.module @other_values(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[8], f32>, %z: !ttile.buffer<[8], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 2}
  tsched.collective_wait %x, %z {number = 0}
  tsched.return
}

// -----

// In a plan nobody uses what comes but the wait.
// CHECK: error[T0401]: `tsched.fuse` uses the result of collective 0 before it was waited for
tsched.module @used_early(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32> {
  %s = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %a = tsched.fuse @k(%s) : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %x, %s {number = 0} : !tgraph.tensor<[8], f32>
  tsched.return %a
}

// -----

// One rank alone exchanges nothing.
// CHECK: error[T0401]: a collective has at least 2 ranks, got 1
tsched.module @alone(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_gather", axis = "dp", ranks = 1}
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}

// -----

// Reductions are kernels: a collective moves bytes.
// CHECK: error[T0401]: `call` is one of all_gather, all_to_all, got 'all_reduce'
tsched.module @folded(%x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  tsched.collective_start %x, %y {number = 0, call = "all_reduce", axis = "dp", ranks = 2}
  tsched.collective_wait %x, %y {number = 0}
  tsched.return
}
