// RUN: not tessera-opt %s --split -p graph-check-numerics 2>&1 | filecheck %s

// A sum that says nothing, in a function without a policy.
// CHECK: error[T0301]: `tgraph.matmul` does not state its accumulator, and no policy does
// CHECK-NEXT: check_numerics.mlir:[[# @LINE + 5]]:3
// CHECK: note: its result is [M, M] bf16
// CHECK: help: write `{accumulate = f32}`, or give the function a `numerics.policy` with `accum(f32)`
tgraph.func @silent(%a: !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M, M], bf16> {

  %0 = tgraph.matmul %a, %a : (!tgraph.tensor<[M, M], bf16>, !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M, M], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M, M], bf16>) -> ()
}

// -----

// A result that is narrower than what was multiplied.
// CHECK: error[T0301]: `tgraph.matmul` narrows f32 to bf16 without a cast that says how it rounds
// CHECK: help: leave `dtype` out and add `tgraph.round_to %result {format = "bf16"}`
tgraph.func @narrow(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16> {
  %0 = tgraph.matmul %a, %a {accumulate = f32, dtype = bf16} : (!tgraph.tensor<[M, M], f32>, !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M, M], bf16>) -> ()
}

// -----

// One operand is narrow as the result is, and the other is not.
// CHECK: error[T0301]: `tgraph.matmul` narrows f32 to bf16 without a cast that says how it rounds
tgraph.func @narrow_right(%a: !tgraph.tensor<[M, M], bf16>, %b: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16> {
  %0 = tgraph.matmul %a, %b {accumulate = f32, dtype = bf16} : (!tgraph.tensor<[M, M], bf16>, !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M, M], bf16>) -> ()
}

// -----

// What is stated, and what a policy states for all, passes.
// CHECK-LABEL: tgraph.func @inherited(
// CHECK:         tgraph.sum
tgraph.func @inherited(%a: !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16> attributes {numerics.policy = "accum(f32)"} {
  %0 = tgraph.matmul %a, %a {accumulate = f32} : (!tgraph.tensor<[M, M], bf16>, !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M, M], bf16>
  %1 = tgraph.sum %0 {axes = [1]} : (!tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16>
  tgraph.return %1 : (!tgraph.tensor<[M], bf16>) -> ()
}
