// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// Pointwise ops that follow each other are one kernel, with a result for each value that someone wants.
// CHECK-LABEL: tsched.module @chain(
// CHECK-NEXT:    %[[E:[a-z0-9]+]], %[[S:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "map"
// CHECK-NEXT:    tsched.return %[[S]], %[[E]]
tgraph.func @chain(%x: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.sin %0 : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1, %0 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) -> ()
}

// A value that is both kept and read transposed is computed once, and read from memory.
// CHECK-LABEL: tsched.module @transposed(
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "map"
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[E]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[S]], %[[E]]
tgraph.func @transposed(%x: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[N, M], f32>, !tgraph.tensor<[M, N], f32>) {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.transpose %0 {axes = [1, 0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N, M], f32>
  %2 = tgraph.sin %1 : (!tgraph.tensor<[N, M], f32>) -> !tgraph.tensor<[N, M], f32>
  tgraph.return %2, %0 : (!tgraph.tensor<[N, M], f32>, !tgraph.tensor<[M, N], f32>) -> ()
}
