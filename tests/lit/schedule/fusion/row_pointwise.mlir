// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// The difference to the maximum of a row is computed beside that maximum.
// CHECK-LABEL: tsched.module @centered(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[Y]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.max
// CHECK-NEXT:    tgraph.sub
// CHECK-NEXT:    tgraph.return
tgraph.func @centered(%x: !tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.max %x {axes = [1], keepdims = true, identity = true} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, 1], f32>
  %1 = tgraph.sub %x, %0 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// What each column adds to all columns is another row's maximum: it must be in memory, and the sum is a map.
// CHECK-LABEL: tsched.module @other_row(
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [1]
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x, %[[R]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[Y]]
tgraph.func @other_row(%x: !tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[N, N], f32> {
  %0 = tgraph.max %x {axes = [1], identity = true} : (!tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[N], f32>
  %1 = tgraph.add %x, %0 : (!tgraph.tensor<[N, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[N, N], f32>) -> ()
}
