// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// An offloaded value is read by a prefetch alone.
// CHECK: error[T0401]: `tsched.fuse` reads an offloaded value, which is in host memory
// CHECK: read the result of a `tsched.prefetch` of it
tsched.module @unprefetched(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %h = tsched.offload %x : !tgraph.tensor<[4], f32>
  %y = tsched.fuse @k(%h) : !tgraph.tensor<[4], f32>
  tsched.return %y
}

// -----

// What was not offloaded is not prefetched.
// CHECK: error[T0401]: `tsched.prefetch` takes what a `tsched.offload` gives
tsched.module @here(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %y = tsched.prefetch %x : !tgraph.tensor<[4], f32>
  tsched.return %y
}

// -----

// The tensor stays the same.
// CHECK: error[T0401]: `tsched.offload` gives the same tensor in another memory
tsched.module @other(%x: !tgraph.tensor<[4], f32>) {
  %h = tsched.offload %x : !tgraph.tensor<[5], f32>
  tsched.return
}

// -----

// No kernel reaches a buffer in host memory.
// CHECK: error[T0401]: `tsched.call` uses a buffer in host memory, which copies to and from the device alone reach
// CHECK: copy it to a buffer of the workspace, and use that
tsched.module @called(%x: !ttile.buffer<[4], f32>) {
  %h = tsched.alloc {space = "host"} : !ttile.buffer<[4], f32>
  tsched.call @k(%x, %h)
  tsched.return
}

// -----

// Nor does a copy leave host memory that stays there.
// CHECK: error[T0401]: `tsched.copy` uses a buffer in host memory
tsched.module @both() {
  %h = tsched.alloc {space = "host"} : !ttile.buffer<[4], f32>
  %i = tsched.alloc {space = "host"} : !ttile.buffer<[4], f32>
  tsched.copy %h, %i
  tsched.return
}

// -----

// A result is in memory of the caller, and there are no other spaces.
// CHECK: error[T0401]: a buffer is in the workspace, or in `host` and no result, and this one is in `host`, and is result 0
tsched.module @result() -> !ttile.buffer<[4], f32> {
  %h = tsched.alloc {output = 0, space = "host"} : !ttile.buffer<[4], f32>
  tsched.return %h
}

// -----

// CHECK: error[T0401]: a buffer is in the workspace, or in `host` and no result, and this one is in `shared`
tsched.module @elsewhere() {
  %h = tsched.alloc {space = "shared"} : !ttile.buffer<[4], f32>
  tsched.return
}
