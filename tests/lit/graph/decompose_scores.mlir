// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Derivatives of attention with programs on scores, by whole matrices of scores.

// The change of scores by queries, through the mask, weighted by the softmax of scores; that of values is not asked for.
// CHECK-LABEL: tgraph.func @scored_attention_tangent(
// CHECK-NEXT:  %[[KT:[0-9]+]] = tgraph.transpose %k {axes = [0, 1, 3, 2]}
// CHECK-NEXT:  %[[DOTS:[0-9]+]] = tgraph.matmul %q, %[[KT]]
// CHECK:       %[[SCORES:[0-9]+]] = tgraph.mul %[[DOTS]], %{{[0-9]+}}
// CHECK:       %[[BY:[0-9]+]] = tgraph.matmul %dq, %{{[0-9]+}}
// CHECK-NEXT:  %[[CHANGE:[0-9]+]] = tgraph.mul %[[BY]], %{{[0-9]+}}
// CHECK:       %[[SEEN:[0-9]+]] = tgraph.ge
// CHECK:       %[[SLOPE:[0-9]+]] = tgraph.where %[[SEEN]]
// CHECK-NEXT:  tgraph.mul %[[CHANGE]], %[[SLOPE]]
// CHECK:       %[[LOW:[0-9]+]] = tgraph.full {value = -inf
// CHECK-NEXT:  %[[AGAIN:[0-9]+]] = tgraph.ge
// CHECK-NEXT:  %[[HIDDEN:[0-9]+]] = tgraph.where %[[AGAIN]], %[[SCORES]], %[[LOW]]
// CHECK-NEXT:  tgraph.max %[[HIDDEN]]
// CHECK:       tgraph.exp
// CHECK:       %[[MEAN:[0-9]+]] = tgraph.sum %{{[0-9]+}} {axes = [3], keepdims = true}
// CHECK:       %[[OUT:[0-9]+]] = tgraph.matmul %{{[0-9]+}}, %v
// CHECK-NOT:   tgraph.matmul
// CHECK:       %[[LSE:[0-9]+]] = tgraph.reshape %{{[0-9]+}} {shape = [1, 2, S]}
// CHECK-NEXT:  tgraph.return %[[OUT]], %[[LSE]]
tgraph.func @scored_attention_tangent(%q: !tgraph.tensor<[1, 2, S, 8], f32>, %k: !tgraph.tensor<[1, 2, S, 8], f32>, %v: !tgraph.tensor<[1, 2, S, 8], f32>, %o: !tgraph.tensor<[1, 2, S, 8], f32>, %l: !tgraph.tensor<[1, 2, S], f32>, %dq: !tgraph.tensor<[1, 2, S, 8], f32>) -> (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S], f32>) {
  %0, %1 = tgraph.scored_attention_tangent %q, %k, %v, %o, %l, %dq {mask = [["ge", [3, 4], none]], by = [0]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S], f32>) -> ()
}
// -----
// Gradients are a kernel's, and stay one op.
// CHECK-LABEL: tgraph.func @scored_attention_backward(
// CHECK-NEXT:  %[[Q:[0-9]+]], %[[K:[0-9]+]], %[[V:[0-9]+]] = tgraph.scored_attention_backward %q, %k, %v, %c, %l, %d
// CHECK-NEXT:  tgraph.return %[[Q]], %[[K]], %[[V]]
tgraph.func @scored_attention_backward(%q: !tgraph.tensor<[1, 2, S, 8], f32>, %k: !tgraph.tensor<[1, 2, S, 8], f32>, %v: !tgraph.tensor<[1, 2, S, 8], f32>, %c: !tgraph.tensor<[1, 2, S, 8], f32>, %l: !tgraph.tensor<[1, 2, S], f32>, %d: !tgraph.tensor<[1, 2, S], f32>) -> (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) {
  %0, %1, %2 = tgraph.scored_attention_backward %q, %k, %v, %c, %l, %d {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S], f32>, !tgraph.tensor<[1, 2, S], f32>) -> (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> ()
}
