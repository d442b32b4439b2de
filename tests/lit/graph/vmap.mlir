// RUN: tessera-opt %s '--vmap{in_axes = [1, none], out_axes = [-1]}' | filecheck %s
// RUN: tessera-opt %s '--vmap{size = 8}' | filecheck %s --check-prefix=EACH
// RUN: tessera-opt %s --vmap -p graph-vmap,graph-check-rules | filecheck %s --check-prefix=TWICE

// The batch is moved to the front and back; what all elements share has none.
// CHECK-LABEL: tgraph.func @product(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[B, batch, K], f32>, %[[W:[a-z0-9]+]]: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N, batch], f32>
// CHECK-NEXT:    %[[ROWS:[0-9]+]] = tgraph.transpose %[[X]] {axes = [1, 0, 2]}
// CHECK-NEXT:    %[[Y:[0-9]+]] = tgraph.matmul %[[ROWS]], %[[W]]
// CHECK-NEXT:    %[[OUT:[0-9]+]] = tgraph.transpose %[[Y]] {axes = [1, 2, 0]}
// CHECK-NEXT:    tgraph.return %[[OUT]]
// EACH-LABEL: tgraph.func @product(
// EACH-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[8, B, K], f32>, %[[W:[a-z0-9]+]]: !tgraph.tensor<[8, K, N], f32>) -> !tgraph.tensor<[8, B, N], f32>
// EACH-NEXT:    %[[Y:[0-9]+]] = tgraph.matmul %[[X]], %[[W]]
// EACH-NEXT:    tgraph.return %[[Y]]
// A second batch has a dim of its own.
// TWICE-LABEL: tgraph.func @product(
// TWICE-SAME:    !tgraph.tensor<[batch_1, batch, B, K], f32>
tgraph.func @product(%x: !tgraph.tensor<[B, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[B, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}

// A result that is the same for all is repeated.
// CHECK-LABEL: tgraph.func @other(
// CHECK:         %[[EXP:[0-9]+]] = tgraph.exp
// CHECK:         tgraph.broadcast_to %[[EXP]] {shape = [batch, N]}
tgraph.func @other(%x: !tgraph.tensor<[N], f32>, %y: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.exp %y : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
