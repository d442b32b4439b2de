// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: tgraph.func @checkpoint_name(
// CHECK: tgraph.checkpoint_name{{.*}} {label = "a"}
tgraph.func @checkpoint_name(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.checkpoint_name %x0 {label = "a"} : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention_backward_keys(
// CHECK: tgraph.attention_backward_keys
tgraph.func @attention_backward_keys(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x3: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x4: !tgraph.tensor<[N2, N3, N5], f32>, %x5: !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.attention_backward_keys %x0, %x1, %x2, %x3, %x4, %x5 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
