// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: tgraph.func @checkpoint_name(
// CHECK: tgraph.checkpoint_name{{.*}} {label = "a"}
tgraph.func @checkpoint_name(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.checkpoint_name %x0 {label = "a"} : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
