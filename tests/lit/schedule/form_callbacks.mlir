// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s

// A function of Python is called between groups, at its place among them.
// CHECK-LABEL: tsched.module @ask(
// CHECK-NEXT:  %[[A:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x) {kind = "map", flops = 8, bytes = 64}
// CHECK-NEXT:  %[[B:[a-z0-9]+]] = tsched.callback %[[A]] {call = "io_callback", slot = 0}
// CHECK-NEXT:  tsched.return %[[B]]
tgraph.func @ask(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {names = ["x"], tessera.effects = ["io"]} {
  %0 = tgraph.relu %x : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.io_callback %0 {slot = 0, shapes = [[8]], dtypes = [f32], function = "negative"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %1 : (!tgraph.tensor<[8], f32>) -> ()
}
