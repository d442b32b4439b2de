// RUN: tessera-opt %s -p graph-decompose | filecheck %s
// RUN: tessera-opt %s -p 'graph-decompose,graph-state-accumulators,graph-check-rules{lowered = true}' --verify

// A softmax is taken apart, safely: the maximum is subtracted first.
// CHECK-LABEL: tgraph.func @softmax(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NOT:     tgraph.softmax
// CHECK:         tgraph.max %[[X]] {axes = [1], keepdims = true, identity = true}
// CHECK:         tgraph.sub %[[X]]
// CHECK:         tgraph.exp
// CHECK:         tgraph.sum
tgraph.func @softmax(%x: !tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.softmax %x {axis = 1} : (!tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}

// An op with a lowering stays.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NEXT:    tgraph.exp
// CHECK-NEXT:    tgraph.return
tgraph.func @leave(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
