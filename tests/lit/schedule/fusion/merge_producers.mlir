// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// The sum of two maps takes both of them in, and a reduction of it all three; what is wanted outside is a result too.
// CHECK-LABEL: tsched.module @diamond(
// CHECK-NEXT:    %[[H:[a-z0-9]+]], %[[R:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x, %y) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[R]], %[[H]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.exp
// CHECK-NEXT:    tgraph.sin
// CHECK-NEXT:    tgraph.add
// CHECK-NEXT:    tgraph.sum
// CHECK-NEXT:    tgraph.return
tgraph.func @diamond(%x: !tgraph.tensor<[M, N], f32>, %y: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M], f32>, !tgraph.tensor<[M, N], f32>) {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.sin %y : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %2 = tgraph.add %0, %1 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %3 = tgraph.sum %2 {axes = [1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  tgraph.return %3, %2 : (!tgraph.tensor<[M], f32>, !tgraph.tensor<[M, N], f32>) -> ()
}

// A reduction of everything runs on one thread: a map that others want too keeps its own kernel.
// CHECK-LABEL: tsched.module @everything(
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "map"
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[E]]) {kind = "row", axes = [0, 1]
// CHECK-NEXT:    tsched.return %[[R]], %[[E]]
tgraph.func @everything(%x: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[M, N], f32>) {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.sum %0 {axes = [0, 1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %1, %0 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[M, N], f32>) -> ()
}
