// RUN: tessera-opt %s -p graph-apply-policy | filecheck %s
// RUN: tessera-opt %s -p 'graph-apply-policy,graph-check-rules' --verify

// A sum of bf16 is a sum in f32 and one rounding that says how; what only moves is left alone.
// CHECK-LABEL: tgraph.func @saturating(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N], bf16>
// CHECK-SAME:    attributes {tessera.numerics.policy = {rounding = "toward_zero", saturation = "saturate"}}
// CHECK:         %[[A:[a-z0-9]+]] = tgraph.cast %[[X]] {dtype = f32}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.cast %[[X]] {dtype = f32}
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.add %[[A]], %[[B]]
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.round_to %[[S]] {format = "bf16", rounding = "toward_zero", saturation = "saturate"}
// CHECK-NEXT:    tgraph.flip %[[R]]
// CHECK-NEXT:    tgraph.return
tgraph.func @saturating(%x: !tgraph.tensor<[N], bf16>) -> !tgraph.tensor<[N], bf16> attributes {numerics.policy = "round_toward_zero @ saturate"} {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[N], bf16>, !tgraph.tensor<[N], bf16>) -> !tgraph.tensor<[N], bf16>
  %1 = tgraph.flip %0 {axes = [0]} : (!tgraph.tensor<[N], bf16>) -> !tgraph.tensor<[N], bf16>
  tgraph.return %1 : (!tgraph.tensor<[N], bf16>) -> ()
}

// Operands of a product are kept as the policy stores values, and every narrowing is an op of its own.
// CHECK-LABEL: tgraph.func @training(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]: {{.*}}) -> !tgraph.tensor<[M, N], bf16>
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.round_to %[[A]] {format = "bf16"}
// CHECK-NEXT:    %[[Q:[a-z0-9]+]] = tgraph.round_to %[[B]] {format = "bf16"}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.matmul %[[P]], %[[Q]] {accumulate = f32, dtype = f32}
// CHECK-NEXT:    %[[D:[a-z0-9]+]] = tgraph.round_to %[[C]] {format = "bf16"}
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.cast %[[D]] {dtype = f32}
// CHECK-NEXT:    %[[F:[a-z0-9]+]] = tgraph.exp %[[E]]
// CHECK-NEXT:    tgraph.round_to %[[F]] {format = "bf16"}
// CHECK-NEXT:    tgraph.return
tgraph.func @training(%a: !tgraph.tensor<[M, K], f32>, %b: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32> attributes {numerics.policy = "storage(bf16) @ accum(f32)"} {
  %0 = tgraph.matmul %a, %b : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// One op may have a policy of its own.
// CHECK-LABEL: tgraph.func @one(
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.round_to %{{.*}} {format = "tf32", tessera.numerics.policy = {compute = "tf32"}}
// CHECK-NEXT:    %[[Q:[a-z0-9]+]] = tgraph.round_to %{{.*}} {format = "tf32", tessera.numerics.policy = {compute = "tf32"}}
// CHECK-NEXT:    tgraph.matmul %[[P]], %[[Q]] {dtype = f32, tessera.numerics.policy = {compute = "tf32"}}
// CHECK-NEXT:    tgraph.exp
// CHECK-NEXT:    tgraph.return
tgraph.func @one(%a: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32> {
  %0 = tgraph.matmul %a, %a {numerics.policy = "compute(tf32)"} : (!tgraph.tensor<[M, M], f32>, !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M, M], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, M], f32>) -> ()
}

// Without a policy nothing changes.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NEXT:    tgraph.add
// CHECK-NEXT:    tgraph.return
tgraph.func @leave(%x: !tgraph.tensor<[N], bf16>) -> !tgraph.tensor<[N], bf16> {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[N], bf16>, !tgraph.tensor<[N], bf16>) -> !tgraph.tensor<[N], bf16>
  tgraph.return %0 : (!tgraph.tensor<[N], bf16>) -> ()
}
