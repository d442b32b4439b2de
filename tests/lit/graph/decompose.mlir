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

// A loop with a limit counts its trips in one more carried value.
// CHECK-LABEL: tgraph.func @limited_while(
// CHECK:         %[[N:[a-z0-9]+]] = tgraph.full {value = 0
// CHECK:         tgraph.while %[[N]], %{{[a-z0-9]+}} {carried = 2} ({
// CHECK:           tgraph.full {value = 7
// CHECK:           %[[L:[a-z0-9_]+]] = tgraph.lt
// CHECK:           tgraph.logical_and %[[L]],
// CHECK:         }, {
// CHECK:           tgraph.full {value = 1
tgraph.func @limited_while(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.while %x0 {carried = 1, max_trips = [7]} ({
  ^bb0(%v: !tgraph.tensor<[], f32>):
    %1 = tgraph.full {value = 100.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
    %2 = tgraph.lt %v, %1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
    tgraph.yield %2 : (!tgraph.tensor<[], bool>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[], f32>):
    %3 = tgraph.add %v_1, %v_1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %3 : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
