// RUN: tessera-opt %s -p 'graph-partition{mesh = ["dp=2", "tp=2"], arguments = ["[{dp}, {}]", "[{}, {tp}]"]}' | filecheck %s

// Columns of the first weight are cut over `tp`, so rows of the second are too: one sum over the ranks is left. Rows of
// `x` are cut over `dp`, along which ranks need nothing of each other.
// CHECK-LABEL: tgraph.func @mlp(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[4, 16], f32>, %[[A:[a-z0-9]+]]: !tgraph.tensor<[16, 16], f32>, %[[B:[a-z0-9]+]]: !tgraph.tensor<[16, 4], f32>)
// CHECK-NEXT:    %[[H:[0-9]+]] = tgraph.matmul %[[X]], %[[A]]
// CHECK-SAME:      -> !tgraph.tensor<[4, 16], f32>
// CHECK-NEXT:    %[[R:[0-9]+]] = tgraph.relu %[[H]]
// CHECK-NEXT:    %[[Y:[0-9]+]] = tgraph.matmul %[[R]], %[[B]]
// CHECK-NEXT:    %[[S:[0-9]+]] = tgraph.all_reduce %[[Y]] {axis = "tp", size = [2]}
// CHECK-NEXT:    tgraph.return %[[S]]
tgraph.func @mlp(%x: !tgraph.tensor<[8, 16], f32>, %a: !tgraph.tensor<[16, 32], f32>, %b: !tgraph.tensor<[32, 4], f32>) -> !tgraph.tensor<[8, 4], f32> {
  %0 = tgraph.matmul %x, %a : (!tgraph.tensor<[8, 16], f32>, !tgraph.tensor<[16, 32], f32>) -> !tgraph.tensor<[8, 32], f32>
  %1 = tgraph.relu %0 : (!tgraph.tensor<[8, 32], f32>) -> !tgraph.tensor<[8, 32], f32>
  %2 = tgraph.matmul %1, %b : (!tgraph.tensor<[8, 32], f32>, !tgraph.tensor<[32, 4], f32>) -> !tgraph.tensor<[8, 4], f32>
  tgraph.return %2 : (!tgraph.tensor<[8, 4], f32>) -> ()
}

// What a program says of a value holds: the maximum over `tp` is reduced, and the value is not cut along it any more.
// CHECK-LABEL: tgraph.func @kept(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[4, 6], f32>, %[[Y:[a-z0-9]+]]: !tgraph.tensor<[8, 3], f32>)
// CHECK:         %[[M:[0-9]+]] = tgraph.max %[[Y]]
// CHECK-NEXT:    %[[ALL:[0-9]+]] = tgraph.all_reduce %[[M]] {axis = "tp", size = [2], op = "max"}
// CHECK-NEXT:    tgraph.return %[[X]], %[[ALL]]
tgraph.func @kept(%x: !tgraph.tensor<[8, 6], f32>, %y: !tgraph.tensor<[8, 6], f32>) -> (!tgraph.tensor<[8, 6], f32>, !tgraph.tensor<[8], f32>) {
  %0 = tgraph.max %y {axes = [1], keepdims = false, identity = false} : (!tgraph.tensor<[8, 6], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.shard %0 {sharding = "[{}]"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %x, %1 : (!tgraph.tensor<[8, 6], f32>, !tgraph.tensor<[8], f32>) -> ()
}
