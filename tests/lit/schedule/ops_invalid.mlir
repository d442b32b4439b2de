// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What was chosen is one of the candidates.
// CHECK: error[T0401]: `chosen` is none of the candidates [(128, 64), (64, 64)], got (32, 32)
tsched.module {
  %a = tsched.fuse @f(%x)
  tsched.tile %a candidates = [[128, 64], [64, 64]] chosen = [32, 32]
  tsched.return %a
}

// -----

// Candidates are a list.
// CHECK: error[T0401]: `candidates` are a list, as in [32, 64], got 64
tsched.module {
  %a = tsched.fuse @f(%x)
  tsched.tile %a candidates = 64 chosen = 64
  tsched.return %a
}

// -----

// A layout names a mesh axis for each dim that it cuts.
// CHECK: error[T0401]: `partition` names 2 dims and `mesh_axes` 1 axes of the mesh
tsched.module {
  tsched.layout %x {partition = ["batch", "head"], mesh_axes = ["dp"]}
  tsched.return
}

// -----

// A pipeline has stages.
// CHECK: error[T0401]: `stages` must be at least 1, got 0
tsched.pipeline @train {axis = "pp", stages = 0, microbatch = 8}

// -----

// A group is of a kind that can be made into kernels.
// CHECK: error[T0401]: `kind` is one of assembly, contraction, library, map, row, got 'loop'
tsched.module {
  %a = tsched.fuse @f(%x) {kind = "loop"}
  tsched.return %a
}

// -----

// A branch is decided by one bool.
// CHECK: error[T0401]: the condition of `tsched.if` is one bool, got !ttile.buffer<[B], bool>
tsched.module @f(%p: !ttile.buffer<[B], bool>) {
  tsched.if %p ({
    tsched.yield
  }, {
    tsched.yield
  })
  tsched.return
}

// -----

// The same memory has the same elements.
// CHECK: error[T0401]: `tsched.alias` gives the same elements in another shape, not !ttile.buffer<[4], i32> of !ttile.buffer<[2, 2], f32>
tsched.module @f(%x: !ttile.buffer<[2, 2], f32>) {
  %a = tsched.alias %x : !ttile.buffer<[4], i32>
  tsched.return
}

// -----

// A prefetch names a memory that can be prefetched to.
// CHECK: error[T0401]: `tsched.alias`: there is no memory `attic`; there are register, shared
tsched.module @f(%x: !ttile.buffer<[4], f32>) {
  %a = tsched.alias %x {space = "attic"} : !ttile.buffer<[4], f32>
  tsched.return
}

// -----

// Only what was donated, or made here, is written over.
// CHECK: error[T0401]: `tsched.fuse` writes over operand 0, which is neither donated by the caller nor made here
// CHECK: help: name its argument in `tessera.donated`, or leave `in_place` out
tsched.module @kept(%x: !tgraph.tensor<[4], f32>, %y: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.donated = [1]} {
  %a = tsched.fuse @k(%x) {in_place = [0]} : !tgraph.tensor<[4], f32>
  tsched.return %a
}

// -----

// What a body captures is there for the next iteration.
// CHECK: error[T0401]: `tsched.fuse` writes over operand 0, which is neither donated by the caller nor made here
tsched.module @captured(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.donated = [0]} {
  %r = tsched.for %x {carried = 1, length = 3} ({
  ^bb0(%i: !tgraph.tensor<[4], f32>):
    %a = tsched.fuse @k(%x) {in_place = [0]} : !tgraph.tensor<[4], f32>
    tsched.yield %a
  }) : !tgraph.tensor<[4], f32>
  tsched.return %r
}

// -----

// A loop is in the memory of an operand from its first iteration to its last, or it has its own.
// CHECK: error[T0401]: `tsched.for` writes over operand 0, and its body does not leave result 0 in that memory
tsched.module @moved(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.donated = [0]} {
  %r = tsched.for %x {carried = 1, length = 3, in_place = [0]} ({
  ^bb0(%i: !tgraph.tensor<[4], f32>):
    %a = tsched.fuse @k(%i) : !tgraph.tensor<[4], f32>
    tsched.yield %a
  }) : !tgraph.tensor<[4], f32>
  tsched.return %r
}

// -----

// What is written over is not read later, in another shape either.
// CHECK: error[T0401]: `tsched.fuse` writes over operand 0, which `tsched.fuse` reads later
tsched.module @f(%x: !tgraph.tensor<[4], f32>) -> (!tgraph.tensor<[4], f32>, !tgraph.tensor<[2, 2], f32>) attributes {tessera.donated = [0]} {
  %a = tsched.fuse @k(%x) {in_place = [0]} : !tgraph.tensor<[4], f32>
  %b = tsched.alias %x : !tgraph.tensor<[2, 2], f32>
  %c = tsched.fuse @g(%b) : !tgraph.tensor<[2, 2], f32>
  tsched.return %a, %c
}

// -----

// Nor is it read by the group itself, as something else.
// CHECK: error[T0401]: `tsched.fuse` writes over operand 0, and reads it as another one too
tsched.module @f(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.donated = [0]} {
  %a = tsched.fuse @k(%x, %x) {in_place = [0]} : !tgraph.tensor<[4], f32>
  tsched.return %a
}

// -----

// Memory is that of the same type.
// CHECK: error[T0401]: `in_place` is the number of an operand with the type of result 0, got 0
tsched.module @f(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[2], f32> attributes {tessera.donated = [0]} {
  %a = tsched.fuse @k(%x) {in_place = [0]} : !tgraph.tensor<[2], f32>
  tsched.return %a
}

// -----

// An argument is returned without a copy only where it was donated.
// CHECK: error[T0401]: argument 0 is returned without a copy, and its caller has not donated it
tsched.module @f(%x: !ttile.buffer<[4], f32>) -> !ttile.buffer<[4], f32> attributes {workspace = 0} {
  tsched.return %x
}

// -----

// And once: two results are two memories.
// CHECK: error[T0401]: an argument is returned twice without a copy: two results would be one memory
tsched.module @f(%x: !ttile.buffer<[4], f32>) -> (!ttile.buffer<[4], f32>, !ttile.buffer<[4], f32>) attributes {workspace = 0, tessera.donated = [0]} {
  tsched.return %x, %x
}

// -----

// What is donated is there.
// CHECK: error[T0401]: `tessera.donated` names arguments [1], and there are 1
tsched.module @f(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.donated = [1]} {
  tsched.return %x
}

// -----

// A program ends.
// CHECK: error[T0401]: the block of `tsched.module` does not end in a terminator
tsched.module {
  %a = tsched.fuse @f(%x)
}
