// RUN: tessera-opt %s -p graph-jvp | filecheck %s
// RUN: tessera-opt %s '--jvp{argnums = [0], function = "product"}' | filecheck %s --check-prefix=FIRST
// RUN: tessera-opt %s --jvp --jvp -p graph-check-rules --verify

// The tangent of a product is a product with each factor's tangent, and their sum.
// CHECK-LABEL: tgraph.func @product(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{[^,]*}}, K], f32>, %[[W:[a-z0-9]+]]: {{[^,]*}}, N], f32>, %[[DX:[a-z0-9]+]]: {{[^,]*}}, K], f32>, %[[DW:[a-z0-9]+]]:
// CHECK-SAME:    names = ["x", "w", "tangent of x", "tangent of w"]
// CHECK-NEXT:    %[[Y:[0-9]+]] = tgraph.matmul %[[X]], %[[W]]
// CHECK-NEXT:    %[[LEFT:[0-9]+]] = tgraph.matmul %[[DX]], %[[W]]
// CHECK-NEXT:    %[[RIGHT:[0-9]+]] = tgraph.matmul %[[X]], %[[DW]]
// CHECK-NEXT:    %[[DY:[0-9]+]] = tgraph.add %[[LEFT]], %[[RIGHT]]
// CHECK-NEXT:    tgraph.return %[[Y]], %[[DY]]
// By the first factor alone, the other one is constant.
// FIRST-LABEL: tgraph.func @product(
// FIRST-SAME:    %[[X:[a-z0-9]+]]: {{[^,]*}}, K], f32>, %[[W:[a-z0-9]+]]: {{[^,]*}}, N], f32>, %[[DX:[a-z0-9]+]]: {{[^,]*}}, K], f32>) ->
// FIRST:         %[[Y:[0-9]+]] = tgraph.matmul %[[X]], %[[W]]
// FIRST-NEXT:    %[[DY:[0-9]+]] = tgraph.matmul %[[DX]], %[[W]]
// FIRST-NEXT:    tgraph.return %[[Y]], %[[DY]]
tgraph.func @product(%x: !tgraph.tensor<[B, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[B, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}

// Integers and bools have no tangents, in or out: which value is chosen is constant.
// CHECK-LABEL: tgraph.func @choose(
// CHECK-SAME:    %[[FLAG:[a-z0-9]+]]: {{[^:]*}}bool>, %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[DX:[a-z0-9]+]]: !tgraph.tensor<[N], f32>) ->
// CHECK:         %[[BIG:[0-9]+]] = tgraph.gt %[[X]]
// CHECK:         %[[Y:[0-9]+]] = tgraph.where %[[FLAG]], %[[X]]
// CHECK:         %[[DY:[0-9]+]] = tgraph.where %[[FLAG]], %[[DX]]
// CHECK:         %[[NONE:[0-9]+]] = tgraph.full {value = 0.0, shape = [N], dtype = bool}
// CHECK-NEXT:    tgraph.return %[[Y]], %[[BIG]], %[[DY]], %[[NONE]]
// FIRST-LABEL: tgraph.func @choose(
// FIRST-NOT:     tangent
// FIRST:         tgraph.return %{{[0-9]+}}, %{{[0-9]+}} :
tgraph.func @choose(%flag: !tgraph.tensor<[N], bool>, %x: !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], bool>) {
  %0 = tgraph.full {value = 2.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  %1 = tgraph.gt %x, %0 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[N], bool>
  %2 = tgraph.where %flag, %x, %0 : (!tgraph.tensor<[N], bool>, !tgraph.tensor<[N], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %2, %1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], bool>) -> ()
}

// Forward mode takes the tangent of attention apart: a change of the scores, weighted by their softmax.
// CHECK-LABEL: tgraph.func @attention(
// CHECK:         %[[OUT:[0-9]+]], %{{[0-9]+}} = tgraph.attention_with_lse
// CHECK-NOT:     tgraph.attention_tangent
// CHECK:         %[[SHARES:[0-9]+]] = tgraph.softmax
// CHECK:         tgraph.mul %{{[0-9]+}}, %[[SHARES]]
// CHECK:         tgraph.return %[[OUT]],
tgraph.func @attention(%q: !tgraph.tensor<[B, H, S, D], f32>, %k: !tgraph.tensor<[B, H, T, D], f32>, %v: !tgraph.tensor<[B, H, T, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32> {
  %0 = tgraph.attention %q, %k, %v : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, T, D], f32>, !tgraph.tensor<[B, H, T, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, H, S, D], f32>) -> ()
}

// Of scores that programs change, each line has a derivative; those that a mask hides do not change.
// CHECK-LABEL: tgraph.func @scored(
// CHECK-SAME:    %q: {{[^:]*}}: !tgraph.tensor<[1, 2, S, 8], f32>) ->
// CHECK-NEXT:    %[[OUT:[0-9]+]], %{{[0-9]+}} = tgraph.scored_attention_with_lse %q, %q, %q {mask =
// CHECK-NOT:     tgraph.scored_attention_tangent
// CHECK:         %[[SEEN:[0-9]+]] = tgraph.ge
// CHECK:         %[[ONES:[0-9]+]] = tgraph.where %[[SEEN]]
// CHECK-NEXT:    %[[CHANGE:[0-9]+]] = tgraph.mul %{{[0-9]+}}, %[[ONES]]
// CHECK-NEXT:    %[[WHOLE:[0-9]+]] = tgraph.broadcast_to %[[CHANGE]]
// CHECK:         %[[WEIGHTS:[0-9]+]] = tgraph.softmax
// CHECK-NEXT:    tgraph.mul %[[WHOLE]], %[[WEIGHTS]]
// CHECK:         %[[TANGENT:[0-9]+]] = tgraph.add
// CHECK:         tgraph.return %[[OUT]], %[[TANGENT]]
tgraph.func @scored(%q: !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32> {
  %0 = tgraph.scored_attention %q, %q, %q {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, S, 8], f32>) -> ()
}
