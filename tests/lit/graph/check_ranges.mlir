// RUN: not tessera-opt %s --split -p graph-check-ranges 2>&1 | filecheck %s

// The square of what the bound allows is outside of it.
// CHECK: error[T0305]: `mul` can give [0, 10000], outside of [-100, 100]
// CHECK-NEXT: check_ranges.mlir:[[# @LINE + 5]]:3
// CHECK: note: its operand `x` lies in [-100, 100]
// CHECK: help: clamp it, or declare tighter `inputs`
tgraph.func @square(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x"], numerics.bounded = [-100, 100]} {

  %0 = tgraph.mul %x, %x : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// -----

// Smaller inputs keep it inside; a function that promises nothing is not looked at.
// CHECK-LABEL: tgraph.func @small(
// CHECK:         tgraph.mul
// CHECK-LABEL: tgraph.func @free(
// CHECK:         tgraph.exp
tgraph.func @small(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {names = ["x"], numerics.bounded = [-100, 100], numerics.inputs = {x = [-9, 9]}} {
  %0 = tgraph.mul %x, %x : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
tgraph.func @free(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
