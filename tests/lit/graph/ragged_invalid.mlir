// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Groups of rows: one offset more than groups, matrices as deep as rows, a number for each block.

// CHECK: error[T0301]: `ragged_dot` has one offset more than groups
tgraph.func @offsets(%x: !tgraph.tensor<[9, 4], f32>, %w: !tgraph.tensor<[2, 4, 6], f32>, %offsets: !tgraph.tensor<[2], i64>) -> !tgraph.tensor<[9, 6], f32> {
  %0 = tgraph.ragged_dot %x, %w, %offsets : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[2, 4, 6], f32>, !tgraph.tensor<[2], i64>) -> !tgraph.tensor<[9, 6], f32>
  tgraph.return %0 : (!tgraph.tensor<[9, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `ragged_outer` pairs rows with rows
tgraph.func @rows(%x: !tgraph.tensor<[9, 4], f32>, %y: !tgraph.tensor<[8, 6], f32>, %offsets: !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[2, 4, 6], f32> {
  %0 = tgraph.ragged_outer %x, %y, %offsets : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[8, 6], f32>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[2, 4, 6], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 4, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `ragged_blocks` needs integer `start`, got f32
tgraph.func @table(%x: !tgraph.tensor<[9, 4], f32>, %w: !tgraph.tensor<[2, 4, 6], f32>, %m: !tgraph.tensor<[3], i64>, %s: !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[9, 6], f32> {
  %0 = tgraph.ragged_blocks %x, %w, %m, %s, %m : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[2, 4, 6], f32>, !tgraph.tensor<[3], i64>, !tgraph.tensor<[3], f32>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[9, 6], f32>
  tgraph.return %0 : (!tgraph.tensor<[9, 6], f32>) -> ()
}
