// RUN: tessera-opt %s -p graph-canonicalize | filecheck %s

// Two rotations merge, in the right order: a swap of them would give [2, 1, 0].
// CHECK-LABEL: tgraph.func @merge_transposes(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[A, B, C], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [0, 2, 1]}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @merge_transposes(%x: !tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[A, C, B], f32> {
  %0 = tgraph.transpose %x {axes = [1, 2, 0]} : (!tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[B, C, A], f32>
  %1 = tgraph.transpose %0 {axes = [2, 1, 0]} : (!tgraph.tensor<[B, C, A], f32>) -> !tgraph.tensor<[A, C, B], f32>
  tgraph.return %1 : (!tgraph.tensor<[A, C, B], f32>) -> ()
}

// A chain folds to its argument, and what is then dead goes.
// CHECK-LABEL: tgraph.func @cancel(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    tgraph.return %[[X]]
tgraph.func @cancel(%x: !tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[A, B], f32> {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32>
  %1 = tgraph.reshape %0 {shape = [B, A]} : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[B, A], f32>
  %2 = tgraph.transpose %1 {axes = [1, 0]} : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[A, B], f32>
  tgraph.return %2 : (!tgraph.tensor<[A, B], f32>) -> ()
}

// What cannot be simpler stays.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NEXT:    tgraph.transpose
// CHECK-NEXT:    tgraph.exp
// CHECK-NEXT:    tgraph.return
tgraph.func @leave(%x: !tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32> {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[B, A], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, A], f32>) -> ()
}

// A rounding moves before a view, where it merges with its like; a stochastic one depends on the element's index, and stays.
// CHECK-LABEL: tgraph.func @round_before_views(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]:
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.round_to %[[X]] {format = "bf16"}
// CHECK-NEXT:    tgraph.transpose %[[R]] {axes = [1, 0]}
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [1, 0]}
// CHECK-NEXT:    tgraph.round_stochastic %[[T]], %[[B]] {format = "bf16"}
tgraph.func @round_before_views(%x: !tgraph.tensor<[M, N], f32>, %b: !tgraph.tensor<[N, M], u32>) -> (!tgraph.tensor<[N, M], bf16>, !tgraph.tensor<[N, M], bf16>) {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N, M], f32>
  %1 = tgraph.round_to %0 {format = "bf16"} : (!tgraph.tensor<[N, M], f32>) -> !tgraph.tensor<[N, M], bf16>
  %2 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N, M], f32>
  %3 = tgraph.round_stochastic %2, %b {format = "bf16"} : (!tgraph.tensor<[N, M], f32>, !tgraph.tensor<[N, M], u32>) -> !tgraph.tensor<[N, M], bf16>
  tgraph.return %1, %3 : (!tgraph.tensor<[N, M], bf16>, !tgraph.tensor<[N, M], bf16>) -> ()
}

// Contracted axes of an operand that are apart are transposed to be adjacent, so that the dot sees one; an operand in order stays.
// CHECK-LABEL: tgraph.func @gathered(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[B, H, S, D], f32>, %[[W:[a-z0-9]+]]: !tgraph.tensor<[H, D, N], f32>
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [0, 2, 1, 3]}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.dot_general %[[T]], %[[W]] {lhs_contract = [2, 3], rhs_contract = [0, 1]}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @gathered(%x: !tgraph.tensor<[B, H, S, D], f32>, %w: !tgraph.tensor<[H, D, N], f32>) -> !tgraph.tensor<[B, S, N], f32> {
  %0 = tgraph.dot_general %x, %w {lhs_contract = [1, 3], rhs_contract = [0, 1]} : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[H, D, N], f32>) -> !tgraph.tensor<[B, S, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, S, N], f32>) -> ()
}

// A name is for policies of `checkpoint`, which have been asked by now.
// CHECK-LABEL: tgraph.func @named(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[X]]
// CHECK-NEXT:    tgraph.return %[[E]]
tgraph.func @named(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.checkpoint_name %x {label = "hidden"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %1 : (!tgraph.tensor<[B], f32>) -> ()
}

// A mask becomes where the keys of each 32 queries begin and end, which kernels loop between.
// CHECK-LABEL: tgraph.func @skip_hidden_blocks(
// CHECK:         %[[END:[a-z0-9]+]] = tgraph.clamp
// CHECK-NEXT:    tgraph.scored_attention %q, %q, %q, %{{[0-9]+}}, %[[END]] {mask = {{.*}}, ranges = true}
tgraph.func @skip_hidden_blocks(%q: !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32> {
  %0 = tgraph.scored_attention %q, %q, %q {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, S, 8], f32>) -> ()
}

// Of a mask that interval analysis says nothing of, nothing is skipped.
// CHECK-LABEL: tgraph.func @skip_nothing(
// CHECK-NEXT:    tgraph.scored_attention
// CHECK-NOT:     ranges
// CHECK:         tgraph.return
tgraph.func @skip_nothing(%q: !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32> {
  %0 = tgraph.scored_attention %q, %q, %q {mask = [["ge", [3, 4], none], ["lt", [3, 4], none], ["xor", [5, 6], none]]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, S, 8], f32>) -> ()
}

// All of an axis is its size, also where nothing but a guard of the program says that it is not negative.
// CHECK-LABEL: tgraph.func @slice_of_all(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[X]]
// CHECK-NEXT:    tgraph.return %[[E]]
tgraph.func @slice_of_all(%x: !tgraph.tensor<[N - 2, 4], f32>) -> !tgraph.tensor<[N - 2, 4], f32> {
  %0 = tgraph.slice %x {start = [0, 0], stop = [N - 2, 4], step = [1, 1]} : (!tgraph.tensor<[N - 2, 4], f32>) -> !tgraph.tensor<[N - 2, 4], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[N - 2, 4], f32>) -> !tgraph.tensor<[N - 2, 4], f32>
  tgraph.return %1 : (!tgraph.tensor<[N - 2, 4], f32>) -> ()
}
