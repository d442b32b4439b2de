// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// A bias of the columns and an activation follow their contraction element by element, and are its epilogue.
// CHECK-LABEL: tsched.module @bias(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x, %w, %b) {kind = "contraction"
// CHECK-NEXT:    tsched.return %[[Y]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.matmul
// CHECK-NEXT:    tgraph.add
// CHECK-NEXT:    tgraph.tanh
// CHECK-NEXT:    tgraph.return
tgraph.func @bias(%x: !tgraph.tensor<[M, K], f32>, %w: !tgraph.tensor<[K, N], f32>, %b: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  %2 = tgraph.tanh %1 : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %2 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// The transpose of a result is read elsewhere than it is computed: the sum of both is a kernel of its own.
// CHECK-LABEL: tsched.module @transposed(
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x, %w) {kind = "contraction"
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[P]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[Y]]
tgraph.func @transposed(%x: !tgraph.tensor<[N, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[N, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[N, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[N, N], f32>
  %1 = tgraph.transpose %0 {axes = [1, 0]} : (!tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[N, N], f32>
  %2 = tgraph.add %0, %1 : (!tgraph.tensor<[N, N], f32>, !tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[N, N], f32>
  tgraph.return %2 : (!tgraph.tensor<[N, N], f32>) -> ()
}
