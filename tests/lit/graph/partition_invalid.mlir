// RUN: not tessera-opt %s --split -p 'graph-partition{mesh = ["dp=2"], arguments = ["[{dp}, {}]"]}' 2>&1 | filecheck %s

// What a sharding asks of a tensor and of the mesh, by the name of the tensor, its dim and the axis.
// CHECK: error[T0301]: `shard` has axes for 1 dims, and `x` is [8, 4] f32 of 2
tgraph.func @rank(%x: !tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32> {
  %0 = tgraph.shard %x {sharding = "[{dp}]"} : (!tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 4], f32>) -> ()
}
// -----
// CHECK: error[T0307]: `x.shape[0] = 7` cannot be cut into 2 equal parts over `dp` 2
tgraph.func @uneven(%x: !tgraph.tensor<[7, 4], f32>) -> !tgraph.tensor<[7, 4], f32> {
  tgraph.return %x : (!tgraph.tensor<[7, 4], f32>) -> ()
}
// -----
// CHECK: error[T0307]: {{.*}} is sharded over mesh axis `tp`, and the mesh has `dp` (2 ranks)
tgraph.func @axis(%x: !tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32> {
  %0 = tgraph.shard %x {sharding = "[{}, {tp}]"} : (!tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 4], f32>) -> ()
}
// -----
// CHECK: error[T0307]: `all_reduce` over mesh axis `dp` is in a program for whole tensors
tgraph.func @collective(%x: !tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32> {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [2]} : (!tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 4], f32>) -> ()
}
