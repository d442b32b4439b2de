// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// A barrier computes nothing: what reads it reads `%e`, in a group of its own that runs once `%y` is computed.
// CHECK-LABEL: tsched.module @late(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @group0(%[[X]])
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @group1(%[[E]])
// CHECK-NEXT:    %[[L:[a-z0-9]+]] = tsched.fuse @group2(%[[E]])
// CHECK-NEXT:    tsched.return %[[Y]], %[[L]]
tgraph.func @late(%x: !tgraph.tensor<[8, 8], f32>) -> (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) {
  %e = tgraph.exp %x : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %y = tgraph.matmul %e, %e {accumulate = f32} : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %b = tgraph.optimization_barrier %e, %y : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %l = tgraph.sin %b : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %y, %l : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> ()
}

// Without one, the op is fused with what it reads.
// CHECK-LABEL: tsched.module @early(
// CHECK-NEXT:    %[[E:[a-z0-9]+]], %[[L:[a-z0-9]+]] = tsched.fuse @group3
tgraph.func @early(%x: !tgraph.tensor<[8, 8], f32>) -> (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) {
  %e = tgraph.exp %x : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %y = tgraph.matmul %e, %e {accumulate = f32} : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %l = tgraph.sin %e : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %y, %l : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> ()
}
