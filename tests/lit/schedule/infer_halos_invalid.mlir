// RUN: not tessera-opt %s --split -p schedule-infer-halos 2>&1 | filecheck %s

// Results of a window without padding are fewer, and ranks do not divide them.
// CHECK: error[T0401]: dim `2`: the result of a stencil has 30 elements, which 4 ranks do not divide
// CHECK: help: pad it to 32
tsched.module @uneven(%w: !tgraph.tensor<[8, 4, 3], f32>, %x: !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32> attributes {mesh = {sp = 4}} {
  tsched.layout %x {partition = ["2"], mesh_axes = ["sp"]}
  %a = tsched.fuse @conv(%w, %x) : !tgraph.tensor<[2, 8, 30], f32>
  tsched.return %a
}
tgraph.func @conv(%w: !tgraph.tensor<[8, 4, 3], f32>, %x: !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32> {
  %0 = tgraph.conv_windows %w, %x {stride = [1], low = [0], high = [0], dilation = [1]} : (!tgraph.tensor<[8, 4, 3], f32>, !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 8, 30], f32>) -> ()
}

// -----

// Without a mesh nobody knows the blocks.
// CHECK: error[T0401]: nobody says how many ranks `sp` has
tsched.module @unknown(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> {
  tsched.layout %x {partition = ["0"], mesh_axes = ["sp"]}
  %a = tsched.fuse @half(%x) : !tgraph.tensor<[8], f32>
  tsched.return %a
}
tgraph.func @half(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> {
  %0 = tgraph.neg %x : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}
