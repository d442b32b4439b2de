// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Attention with programs on scores, and its derivatives: what each asks of programs, operands and ranges.

// CHECK: error[T0301]: `mask` of `scored_attention` gives bool for scores of f32, got i32
tgraph.func @scored_attention(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2 {mask = [["sub", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `score` of `scored_attention` gives f32 for scores of f32, got bool
tgraph.func @scored_attention_score(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2 {score = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `mask` of `scored_attention` says where scores are, and does not read them
tgraph.func @scored_attention_hides_by_score(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2 {mask = [["constant", [], [0.0, f32]], ["ge", [0, 5], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: line 5 of a score program is no line on values before it: ('ge', (3, 9), None)
tgraph.func @scored_attention_line(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2 {mask = [["ge", [3, 9], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: captured tensor 0 is [6] i32, and is read at [i32, i32]
tgraph.func @scored_attention_capture(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[6], i32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2, %x3 {mask = [["load", [2, 3], 0], ["eq", [5, 5], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[6], i32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention` over a cache takes how many keys there are, after `v`
tgraph.func @scored_attention_cached(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2 {mask = [["ge", [3, 4], none]], cached = true} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention` takes 2 tensors of ranges before what is captured, got 1
tgraph.func @scored_attention_ranges(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 1], i64>) -> !tgraph.tensor<[1, 2, 6, 8], f32> {
  %0 = tgraph.scored_attention %x0, %x1, %x2, %x3 {mask = [["ge", [3, 4], none]], ranges = true} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 1], i64>) -> !tgraph.tensor<[1, 2, 6, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention` needs heads of `q` to be a multiple of those of `k`: 2 and 3
tgraph.func @scored_attention_with_lse(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 3, 6, 8], f32>, %x2: !tgraph.tensor<[1, 3, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.scored_attention_with_lse %x0, %x1, %x2 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 3, 6, 8], f32>, !tgraph.tensor<[1, 3, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention` takes ranges as i64 [batch, heads, blocks], got [1, 2, 1] f32
tgraph.func @scored_attention_with_lse_ranges(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 1], f32>, %x4: !tgraph.tensor<[1, 2, 1], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.scored_attention_with_lse %x0, %x1, %x2, %x3, %x4 {mask = [["ge", [3, 4], none]], ranges = true} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 1], f32>, !tgraph.tensor<[1, 2, 1], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_tangent` of 6 operands has no tangents by [0, 1]
tgraph.func @scored_attention_tangent(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.scored_attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]], by = [0, 1]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_tangent` needs equal sizes: `tangent of operand 0.shape[2] = 5` and `operand 0.shape[2] = 6` differ
tgraph.func @scored_attention_tangent_shape(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 5, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.scored_attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]], by = [0]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 5, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 1 of `tgraph.scored_attention_tangent` is !tgraph.tensor<[1, 2, 6], f32> by its shape rule, not !tgraph.tensor<[1, 2, 6, 8], f32>
tgraph.func @scored_attention_tangent_result(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) {
  %0, %1 = tgraph.scored_attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]], by = [0]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_backward` needs `lse` of 3 axes as `result` has, got [1, 2, 6, 8]
tgraph.func @scored_attention_backward(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6, 8], f32>, %x5: !tgraph.tensor<[1, 2, 6], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_backward` needs equal sizes: `delta.shape[2] = 5` and `result.shape[2] = 6` differ
tgraph.func @scored_attention_backward_rows(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 5], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 5], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_backward` needs a floating `cotangent`, got bool
tgraph.func @scored_attention_backward_bools(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], bool>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 6], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], bool>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scored_attention_backward` takes 4 tensors of ranges before what is captured, got 2
tgraph.func @scored_attention_backward_ranges(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 6], f32>, %x6: !tgraph.tensor<[1, 2, 1], i64>, %x7: !tgraph.tensor<[1, 2, 1], i64>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7 {mask = [["ge", [3, 4], none]], ranges = true} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 1], i64>, !tgraph.tensor<[1, 2, 1], i64>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_tangent` of 6 operands has no tangents by [0, 1]
tgraph.func @attention_tangent_by(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2, 6], f32>, %x5: !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {by = [0, 1]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_tangent` needs `lse` of 3 axes as `result` has, got [1, 2]
tgraph.func @attention_tangent_lse(%x0: !tgraph.tensor<[1, 2, 6, 8], f32>, %x1: !tgraph.tensor<[1, 2, 6, 8], f32>, %x2: !tgraph.tensor<[1, 2, 6, 8], f32>, %x3: !tgraph.tensor<[1, 2, 6, 8], f32>, %x4: !tgraph.tensor<[1, 2], f32>, %x5: !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) {
  %0, %1 = tgraph.attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {by = [0]} : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2], f32>, !tgraph.tensor<[1, 2, 6, 8], f32>) -> (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[1, 2, 6, 8], f32>, !tgraph.tensor<[1, 2, 6], f32>) -> ()
}
