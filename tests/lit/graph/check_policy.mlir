// RUN: not tessera-opt %s --split -p graph-check-policy 2>&1 | filecheck %s

// Operands that were never kept as the function stores them.
// CHECK: error[T0107]: `tgraph.matmul` takes operand 0 in f32, which was never stored as bf16, and its policy is `storage(bf16) @ accum(f32)`
// CHECK-NEXT: check_policy.mlir:[[# @LINE + 3]]:3
// CHECK: help: have the conversions made: ask for them with `numerics.policy = "storage(bf16) @ accum(f32)"` instead of `tessera.numerics.policy`
tgraph.func @unkept(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32> attributes {tessera.numerics.policy = {storage = bf16, accumulate = f32}} {
  %0 = tgraph.matmul %a, %a {accumulate = f32} : (!tgraph.tensor<[M, M], f32>, !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, M], f32>) -> ()
}

// -----

// A sum in another accumulator than the one that is promised.
// CHECK: error[T0107]: `tgraph.sum` sums in f32, and its policy is `accum(bf16)`
tgraph.func @sums(%a: !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16> attributes {tessera.numerics.policy = {accumulate = bf16}} {
  %0 = tgraph.sum %a {axes = [1], accumulate = f32} : (!tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M], bf16>) -> ()
}

// -----

// A cast that rounds as it likes.
// CHECK: error[T0107]: `tgraph.cast` makes bf16 of f32 by plain rounding, and its policy is `round_toward_zero`
tgraph.func @casts(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16> attributes {tessera.numerics.policy = {rounding = "toward_zero"}} {
  %0 = tgraph.cast %a {dtype = bf16} : (!tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M, M], bf16>) -> ()
}

// -----

// A result that leaves as it was computed.
// CHECK: error[T0107]: `tgraph.exp` leaves as result 0 in f32, and was never stored as bf16, and its policy is `storage(bf16)`
tgraph.func @leaves(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32> attributes {tessera.numerics.policy = {storage = bf16}} {
  %0 = tgraph.exp %a : (!tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, M], f32>) -> ()
}

// -----

// Integers that wrap where they are promised to stop.
// CHECK: error[T0107]: `tgraph.add` of i8 wraps, and its policy is `saturate`
tgraph.func @wraps(%a: !tgraph.tensor<[N], i8>) -> !tgraph.tensor<[N], i8> {
  %0 = tgraph.add %a, %a {tessera.numerics.policy = {saturation = "saturate"}} : (!tgraph.tensor<[N], i8>, !tgraph.tensor<[N], i8>) -> !tgraph.tensor<[N], i8>
  tgraph.return %0 : (!tgraph.tensor<[N], i8>) -> ()
}

// -----

// What is no policy.
// CHECK: error[T0107]: `tessera.numerics.policy` of `tgraph.func`: a policy has no field `stored`
tgraph.func @unknown(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32> attributes {tessera.numerics.policy = {stored = bf16}} {
  tgraph.return %a : (!tgraph.tensor<[M, M], f32>) -> ()
}

// -----

// A function that keeps its word, and an op in it that has a word of its own.
// CHECK-LABEL: tgraph.func @kept(
// CHECK-SAME:    tessera.numerics.policy = {storage = bf16, accumulate = f32}
// CHECK:         tgraph.sum %{{.*}} {axes = [1], accumulate = f64, tessera.numerics.policy = {accumulate = f64}}
tgraph.func @kept(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M], bf16> attributes {tessera.numerics.policy = {storage = bf16, accumulate = f32}} {
  %0 = tgraph.round_to %a {format = "bf16"} : (!tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16>
  %1 = tgraph.matmul %0, %0 {accumulate = f32, dtype = f32} : (!tgraph.tensor<[M, M], bf16>, !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M, M], f32>
  %2 = tgraph.round_to %1 {format = "bf16"} : (!tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], bf16>
  %3 = tgraph.sum %2 {axes = [1], accumulate = f64, tessera.numerics.policy = {accumulate = f64}} : (!tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16>
  tgraph.return %3 : (!tgraph.tensor<[M], bf16>) -> ()
}
