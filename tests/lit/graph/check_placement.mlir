// RUN: not tessera-opt %s --split -p graph-check-placement 2>&1 | filecheck %s

// An op on another device than its function.
// CHECK: error[T0720]: `tgraph.exp` is placed on gpu[1], and its function runs on gpu[0]
// CHECK-NEXT: check_placement.mlir:[[# @LINE + 5]]:3
// CHECK:      = note: rule: a function runs on one device, which it names
// CHECK-NEXT: = help: write `tessera.device = "gpu:1"` on the function
tgraph.func @apart(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {tessera.device = "gpu:0"} {
  %0 = tgraph.neg %x {tessera.device = "gpu:0"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.exp %0 {tessera.device = "gpu:1"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %1 : (!tgraph.tensor<[B], f32>) -> ()
}

// -----
// A function that names no device has no op that does.
// CHECK: error[T0720]: `tgraph.exp` is placed on gpu[0], and its function names no device
tgraph.func @unnamed(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x {tessera.device = "gpu:0"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// -----
// CHECK: error[T0720]: `tessera.device` of `tgraph.exp` is "cpu:0" or "gpu:n", got "moon"
tgraph.func @nowhere(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x {tessera.device = "moon"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
