// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What was chosen is one of the candidates.
// CHECK: error[T0401]: `chosen` is none of the candidates [(128, 64), (64, 64)], got (32, 32)
tsched.module {
  %a = tsched.fuse @f(%x)
  tsched.tile %a candidates = [[128, 64], [64, 64]] chosen = [32, 32]
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
// CHECK: error[T0401]: `kind` is one of map, row, contraction, assembly, library, got 'loop'
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

// What is brought nearer is brought to a memory that it can go to.
// CHECK: error[T0401]: `tsched.alias`: there is no memory `attic`; there are register, shared
tsched.module @f(%x: !ttile.buffer<[4], f32>) {
  %a = tsched.alias %x {space = "attic"} : !ttile.buffer<[4], f32>
  tsched.return
}

// -----

// A program ends.
// CHECK: error[T0401]: the block of `tsched.module` does not end in a terminator
tsched.module {
  %a = tsched.fuse @f(%x)
}
