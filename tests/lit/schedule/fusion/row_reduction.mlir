// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// Two reductions of one tensor over the same axes need each other in nothing, and are one pass over it.
// CHECK-LABEL: tsched.module @siblings(
// CHECK-NEXT:    %[[S:[a-z0-9]+]], %[[M:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[S]], %[[M]]
tgraph.func @siblings(%x: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M], f32>, !tgraph.tensor<[M], f32>) {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  %1 = tgraph.max %x {axes = [1], identity = true} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[M], f32>, !tgraph.tensor<[M], f32>) -> ()
}

// Over other axes, or of tensors that share nothing, they are two.
// CHECK-LABEL: tsched.module @strangers(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [1]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [0]
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @{{.*}}(%y) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[A]], %[[B]], %[[C]]
tgraph.func @strangers(%x: !tgraph.tensor<[M, N], f32>, %y: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M], f32>, !tgraph.tensor<[N], f32>, !tgraph.tensor<[M], f32>) {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  %1 = tgraph.sum %x {axes = [0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N], f32>
  %2 = tgraph.sum %y {axes = [1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[M], f32>, !tgraph.tensor<[N], f32>, !tgraph.tensor<[M], f32>) -> ()
}
