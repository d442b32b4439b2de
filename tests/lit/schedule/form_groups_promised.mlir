// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// What is promised to be one kernel with an attention is, and nothing else: the tanh has a kernel of its own.
// CHECK-LABEL: tsched.module @promised(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%q, %k, %v, %b) {kind = "library"
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[A]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[T]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.attention
// CHECK-NEXT:    tgraph.add
// CHECK-NEXT:    tgraph.relu
// CHECK-NEXT:    tgraph.fused
// CHECK-NEXT:    tgraph.return
tgraph.func @promised(%q: !tgraph.tensor<[B, H, S, D], f32>, %k: !tgraph.tensor<[B, H, L, D], f32>, %v: !tgraph.tensor<[B, H, L, D], f32>, %b: !tgraph.tensor<[D], f32>) -> !tgraph.tensor<[B, H, S, D], f32> {
  %0 = tgraph.attention %q, %k, %v : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, L, D], f32>, !tgraph.tensor<[B, H, L, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  %2 = tgraph.relu %1 : (!tgraph.tensor<[B, H, S, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  %3 = tgraph.fused %2, %0 : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, S, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  %4 = tgraph.tanh %3 : (!tgraph.tensor<[B, H, S, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  tgraph.return %4 : (!tgraph.tensor<[B, H, S, D], f32>) -> ()
}

// Where nothing is promised, an attention stands alone.
// CHECK-LABEL: tsched.module @plain(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @{{.*}}(%q) {kind = "library"
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[A]], %b) {kind = "map"
// CHECK-NEXT:    tsched.return %[[R]]
tgraph.func @plain(%q: !tgraph.tensor<[B, H, S, D], f32>, %b: !tgraph.tensor<[D], f32>) -> !tgraph.tensor<[B, H, S, D], f32> {
  %0 = tgraph.attention %q, %q, %q : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, S, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, H, S, D], f32>) -> ()
}
