// RUN: tessera-opt %s -p graph-linearize | filecheck %s
// RUN: tessera-opt %s --linearize -p graph-check-rules --verify

// The function also gives what its derivative needs; the linear one takes that, and tangents.
// CHECK-LABEL: tgraph.func @wave(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>)
// CHECK:         %[[SIN:[0-9]+]] = tgraph.sin %[[X]]
// CHECK:         %[[COS:[0-9]+]] = tgraph.cos %[[X]]
// CHECK:         tgraph.return %[[SIN]], %[[COS]]
// CHECK-LABEL: tgraph.func @wave_linear(
// CHECK-SAME:    %[[COS:[a-z0-9]+]]: !tgraph.tensor<[N], f32>, %[[DX:[a-z0-9]+]]: !tgraph.tensor<[N], f32>) ->
// CHECK-NEXT:    %[[DY:[0-9]+]] = tgraph.mul %[[DX]], %[[COS]]
// CHECK-NEXT:    tgraph.return %[[DY]]
tgraph.func @wave(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.sin %x : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// An argument is read again, and is no residual.
// CHECK-LABEL: tgraph.func @square(
// CHECK-SAME:    -> !tgraph.tensor<[N], f32>
// CHECK-LABEL: tgraph.func @square_linear(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N], f32>, %[[DX:[a-z0-9]+]]: !tgraph.tensor<[N], f32>) ->
tgraph.func @square(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.mul %x, %x : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
