// RUN: tessera-opt %s --split -p schedule-form-groups | filecheck %s

// Ops that a kernel of the library computes are groups of their own, with the operations they take.

// `attention`, and the log-sum-exp of each row of its scores, -inf for a row that sees no key.
// CHECK-LABEL: tsched.module @attention_with_lse(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]], %[[V1:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2) {kind = "library", flops = 4*N2*N3*N5*N5*N8 + 5*N2*N3*N5*N5, bytes = 16*N2*N3*N5*N8 + 4*N2*N3*N5}
// CHECK-NEXT:  tsched.return %[[V0]], %[[V1]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.attention_with_lse
tgraph.func @attention_with_lse(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1 = tgraph.attention_with_lse %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> ()
}
// -----
// Attention over the first `length` keys of a cache; causal: the last query is at `length - 1`.
// CHECK-LABEL: tsched.module @cached_attention(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2, %x3) {kind = "library", flops = 4*N2*N3*N4*N8*N9 + 5*N2*N3*N4*N9, bytes = 8*N2*N2*N8*N9 + 8*N2*N3*N4*N8 + 8}
// CHECK-NEXT:  tsched.return %[[V0]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.cached_attention
tgraph.func @cached_attention(%x0: !tgraph.tensor<[N2, N4, N3, N8], f32>, %x1: !tgraph.tensor<[N2, N2, N9, N8], f32>, %x2: !tgraph.tensor<[N2, N2, N9, N8], f32>, %x3: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32> attributes {names = ["x0", "x1", "x2", "x3"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.cached_attention %x0, %x1, %x2, %x3 : (!tgraph.tensor<[N2, N4, N3, N8], f32>, !tgraph.tensor<[N2, N2, N9, N8], f32>, !tgraph.tensor<[N2, N2, N9, N8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N3, N8], f32>) -> ()
}
// -----
// One query of each head over parts of the first `length` keys: accumulators, maxima, sums, in base 2.
// CHECK-LABEL: tsched.module @attention_parts(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]], %[[V1:[a-z0-9]+]], %[[V2:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2) {kind = "library", flops = 4*N2*N4*N8*N8 + 5*N2*N4*N8, bytes = 4*((N8 + 3) floordiv 4)*N2*N4*N8 + 8*N2*N2*N8*N8 + 8*((N8 + 3) floordiv 4)*N2*N4 + 4*N2*N4*N8}
// CHECK-NEXT:  tsched.return %[[V0]], %[[V1]], %[[V2]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.attention_parts
tgraph.func @attention_parts(%x0: !tgraph.tensor<[N2, N4, 1, N8], f32>, %x1: !tgraph.tensor<[N2, N2, N8, N8], f32>, %x2: !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) attributes {names = ["x0", "x1", "x2"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0, %1, %2 = tgraph.attention_parts %x0, %x1, %x2 {keys = 4} : (!tgraph.tensor<[N2, N4, 1, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) -> ()
}
// -----
// Accumulators of parts of the keys joined in order, times two to their maxima, over the sum of all.
// CHECK-LABEL: tsched.module @attention_join(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2) {kind = "library", flops = 2*N2*N3*N3*N8, bytes = 4*N2*N3*N3*N8 + 8*N2*N3*N3 + 4*N2*N3*N8}
// CHECK-NEXT:  tsched.return %[[V0]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.attention_join
tgraph.func @attention_join(%x0: !tgraph.tensor<[N2, N3, N3, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N3], f32>, %x2: !tgraph.tensor<[N2, N3, N3], f32>) -> !tgraph.tensor<[N2, N3, 1, N8], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.attention_join %x0, %x1, %x2 {dtype = f32} : (!tgraph.tensor<[N2, N3, N3, N8], f32>, !tgraph.tensor<[N2, N3, N3], f32>, !tgraph.tensor<[N2, N3, N3], f32>) -> !tgraph.tensor<[N2, N3, 1, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, 1, N8], f32>) -> ()
}
// -----
// Each element reduced with all before it along one axis, in order; narrow floats in f32, sums of integers in 64 bits.
// CHECK-LABEL: tsched.module @cumulative(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0) {kind = "library", flops = N7, bytes = 8*N7}
// CHECK-NEXT:  tsched.return %[[V0]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.cumulative
tgraph.func @cumulative(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumulative %x0 {kind = "sum", axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// Each row of a matrix in order, and where its elements came from; stable, NaN last.
// CHECK-LABEL: tsched.module @sort_rows(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]], %[[V1:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0) {kind = "library", flops = 12*N33*N5, bytes = 16*N33*N5}
// CHECK-NEXT:  tsched.return %[[V0]], %[[V1]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.sort_rows
tgraph.func @sort_rows(%x0: !tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>) attributes {names = ["x0"]} {
  %0, %1 = tgraph.sort_rows %x0 : (!tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>) -> ()
}
// -----
// `attention` with a program on each score, which reads what is captured, and one that hides scores.
// CHECK-LABEL: tsched.module @scored_attention(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2, %x3) {kind = "library", flops = 4*N2*N3*N5*N7*N8 + 9*N2*N3*N5*N7, bytes = 8*N2*N3*N5*N8 + 8*N2*N3*N7*N8 + 4*N3*N5}
// CHECK-NEXT:  tsched.return %[[V0]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.scored_attention %x0, %x1, %x2, %x3 {score = {{.*}}"load", [2, 5], 0{{.*}}, mask = {{.*}}"ge"{{.*}}}
tgraph.func @scored_attention(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x3: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32> attributes {names = ["x0", "x1", "x2", "x3"]} {
  %0 = tgraph.scored_attention %x0, %x1, %x2, %x3 {score = [["sub", [3, 4], none], ["load", [2, 5], 0], ["add", [0, 6], none]], mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// The same, and the log-sum-exp of each row of its scores.
// CHECK-LABEL: tsched.module @scored_attention_with_lse(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]], %[[V1:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2) {kind = "library", flops = 4*N2*N3*N5*N7*N8 + 6*N2*N3*N5*N7, bytes = 8*N2*N3*N5*N8 + 8*N2*N3*N7*N8 + 4*N2*N3*N5}
// CHECK-NEXT:  tsched.return %[[V0]], %[[V1]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.scored_attention_with_lse
tgraph.func @scored_attention_with_lse(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N7, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1 = tgraph.scored_attention_with_lse %x0, %x1, %x2 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> ()
}
// -----
// Its gradients by queries, keys and values, which compute the scores once more.
// CHECK-LABEL: tsched.module @scored_attention_backward(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]], %[[V1:[a-z0-9]+]], %[[V2:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x0, %x1, %x2, %x3, %x4, %x5) {kind = "library", flops = 14*N2*N3*N5*N7*N8 + 21*N2*N3*N5*N7, bytes = 12*N2*N3*N5*N8 + 16*N2*N3*N7*N8 + 8*N2*N3*N5}
// CHECK-NEXT:  tsched.return %[[V0]], %[[V1]], %[[V2]]
// CHECK:       tgraph.func @[[G]](
// CHECK:       tgraph.scored_attention_backward
tgraph.func @scored_attention_backward(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x3: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x4: !tgraph.tensor<[N2, N3, N5], f32>, %x5: !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N2, N3, N7, N8], f32>) -> ()
}
