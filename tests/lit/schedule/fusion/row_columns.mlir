// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// Where programs have no shared memory for sums of columns, rows and columns of one tensor are two groups.
// CHECK-LABEL: tsched.module @centred(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [1]
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [0]
// CHECK-NEXT:    tsched.return %[[Y]], %[[S]]
tgraph.func @centred(%x: !tgraph.tensor<[M, 2048], f32>) -> (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>) {
  %0 = tgraph.sum %x {axes = [1], keepdims = true} : (!tgraph.tensor<[M, 2048], f32>) -> !tgraph.tensor<[M, 1], f32>
  %1 = tgraph.sub %x, %0 : (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, 2048], f32>
  %2 = tgraph.sum %x {axes = [0]} : (!tgraph.tensor<[M, 2048], f32>) -> !tgraph.tensor<[2048], f32>
  tgraph.return %1, %2 : (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>) -> ()
}
