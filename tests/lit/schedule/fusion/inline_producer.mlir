// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// A cheap vector is computed for each row of its only reader, in place of being written and read again.
// CHECK-LABEL: tsched.module @cheap(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x, %v) {kind = "map"
// CHECK-NEXT:    tsched.return %[[Y]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.neg
// CHECK-NEXT:    tgraph.mul
// CHECK-NEXT:    tgraph.return
tgraph.func @cheap(%x: !tgraph.tensor<[M, N], f32>, %v: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.neg %v : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  %1 = tgraph.mul %x, %0 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// An expensive one is not: it would be computed for every row.
// CHECK-LABEL: tsched.module @expensive(
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @{{.*}}(%v) {kind = "map"
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x, %[[E]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[Y]]
tgraph.func @expensive(%x: !tgraph.tensor<[M, N], f32>, %v: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.exp %v : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  %1 = tgraph.mul %x, %0 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, N], f32>) -> ()
}
