// RUN: tessera-opt %s -p graph-vjp | filecheck %s
// RUN: tessera-opt %s --vjp -p graph-check-rules --verify
// RUN: tessera-opt %s --vjp '--jvp{function = "layer"}' '--vmap{function = "layer"}' -p graph-check-rules --verify

// The adjoint of a layer: the cotangent goes through the derivative of `tanh`, and by a matmul to each factor. What it
// reads of the forward part is marked, so that `graph-rematerialize` may decide what to keep.
// CHECK-LABEL: tgraph.func @layer(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[W:[a-z0-9]+]]: {{[^:]*}}, %[[CT:[a-z0-9]+]]: !tgraph.tensor<[B, N], f32>) -> (!tgraph.tensor<[B, N], f32>, !tgraph.tensor<[B, K], f32>, !tgraph.tensor<[K, N], f32>)
// CHECK-NEXT:    %[[Y:[0-9]+]] = tgraph.matmul %[[X]], %[[W]]
// CHECK-NEXT:    %[[Z:[0-9]+]] = tgraph.tanh %[[Y]]
// CHECK-NEXT:    %[[ONE:[0-9]+]] = tgraph.full {value = 1.0
// CHECK-NEXT:    %[[SQUARE:[0-9]+]] = tgraph.mul %[[Z]], %[[Z]]
// CHECK-NEXT:    %[[SLOPE:[0-9]+]] = tgraph.sub %[[ONE]], %[[SQUARE]]
// CHECK-NEXT:    %[[SAVED:[0-9]+]] = tgraph.saved_value %[[SLOPE]], %[[CT]]
// CHECK-NEXT:    %[[DY:[0-9]+]] = tgraph.mul %[[CT]], %[[SAVED]]
// CHECK-NEXT:    %[[XS:[0-9]+]] = tgraph.saved_value %[[X]], %[[CT]]
// CHECK-NEXT:    %[[XT:[0-9]+]] = tgraph.transpose %[[XS]] {axes = [1, 0]}
// CHECK-NEXT:    %[[DW:[0-9]+]] = tgraph.matmul %[[XT]], %[[DY]]
// CHECK-NEXT:    %[[WS:[0-9]+]] = tgraph.saved_value %[[W]], %[[CT]]
// CHECK-NEXT:    %[[WT:[0-9]+]] = tgraph.transpose %[[WS]] {axes = [1, 0]}
// CHECK-NEXT:    %[[DX:[0-9]+]] = tgraph.matmul %[[DY]], %[[WT]]
// CHECK-NEXT:    tgraph.return %[[Z]], %[[DX]], %[[DW]]
tgraph.func @layer(%x: !tgraph.tensor<[B, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[B, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[B, N], f32>
  %1 = tgraph.tanh %0 : (!tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, N], f32>) -> ()
}

// What was broadcast is summed, and what was summed is broadcast.
// CHECK-LABEL: tgraph.func @bias(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[B:[a-z0-9]+]]: {{[^:]*}}, %[[CT:[a-z0-9]+]]: !tgraph.tensor<[], f32>)
// CHECK:         %[[SUM:[0-9]+]] = tgraph.sum
// CHECK:         %[[DX:[0-9]+]] = tgraph.broadcast_to %{{[a-z0-9]+}} {shape = [M, N]}
// CHECK:         %[[DB:[0-9]+]] = tgraph.sum %[[DX]] {axes = [0]
// CHECK:         tgraph.return %[[SUM]], %[[DX]], %[[DB]]
tgraph.func @bias(%x: !tgraph.tensor<[M, N], f32>, %b: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.add %x, %b : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.sum %0 {axes = [0, 1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %1 : (!tgraph.tensor<[], f32>) -> ()
}

// Cotangents of a value that is used twice are added, that of its last use first; a result of integers has none.
// CHECK-LABEL: tgraph.func @uses(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[CT:[a-z0-9]+]]: !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[N], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[N], f32>)
// CHECK:         %[[EXP:[0-9]+]] = tgraph.exp %[[X]]
// CHECK:         %[[XS:[0-9]+]] = tgraph.saved_value %[[X]], %[[CT]]
// CHECK-NEXT:    %[[FIRST:[0-9]+]] = tgraph.mul %[[CT]], %[[XS]]
// CHECK-NEXT:    %[[ES:[0-9]+]] = tgraph.saved_value %[[EXP]], %[[CT]]
// CHECK-NEXT:    %[[OWN:[0-9]+]] = tgraph.mul %[[CT]], %[[ES]]
// CHECK-NEXT:    %[[BACK:[0-9]+]] = tgraph.mul %[[FIRST]], %[[ES]]
// CHECK-NEXT:    %[[DX:[0-9]+]] = tgraph.add %[[OWN]], %[[BACK]]
// CHECK-NEXT:    tgraph.return %{{[0-9]+}}, %{{[0-9]+}}, %[[DX]]
tgraph.func @uses(%x: !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[N], f32>, !tgraph.tensor<[], i64>) attributes {guards = [[dim<min(1, N)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.exp %x : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  %1 = tgraph.mul %x, %0 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  %2 = tgraph.argmax %0 {axes = [0]} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %1, %2 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[], i64>) -> ()
}

// A loop runs back from its last row; it keeps the states that its body reads.
// CHECK-LABEL: tgraph.func @loop(
// CHECK:         %[[END:[0-9]+]], %[[STATES:[0-9]+]] = tgraph.scan %{{[a-z0-9]+}}, %[[XS:[a-z0-9]+]] {carried = 1, scanned = 1, length = [T]}
// CHECK:         %[[ROWS:[0-9]+]] = tgraph.saved_value %[[XS]]
// CHECK:         %[[KEPT:[0-9]+]] = tgraph.saved_value %[[STATES]]
// CHECK:         tgraph.scan %{{[a-z0-9]+}}, %[[ROWS]], %[[KEPT]] {carried = 1, scanned = 2, length = [T], reverse = true}
tgraph.func @loop(%h: !tgraph.tensor<[4], f32>, %xs: !tgraph.tensor<[T, 4], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.scan %h, %xs {carried = 1, scanned = 1, length = [T]} ({
  ^bb0(%a: !tgraph.tensor<[4], f32>, %b: !tgraph.tensor<[4], f32>):
    %1 = tgraph.mul %a, %b : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
    tgraph.yield %1 : (!tgraph.tensor<[4], f32>) -> ()
  }) : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[T, 4], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}

// Of a longer body it keeps the state and the matmul: the pointwise ops between are run again behind a barrier, from the
// last row to the first. Rows that the loop gives anyway are not given twice.
// CHECK-LABEL: tgraph.func @chain(
// CHECK:         %[[END:[0-9]+]], %[[Y:[0-9]+]], %[[A:[0-9]+]] = tgraph.scan %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %[[W:[a-z0-9]+]] {carried = 1, scanned = 1, length = [T]}
// CHECK:           %[[DOT:[0-9]+]] = tgraph.matmul
// CHECK:           tgraph.yield %{{[a-z0-9]+}}, %[[DOT]], %{{[a-z_0-9]+}} :
// CHECK:         tgraph.scan {{.*}} {carried = 2, scanned = 4, length = [T], reverse = true}
// CHECK:           tgraph.optimization_barrier
// CHECK:           tgraph.tanh
tgraph.func @chain(%h: !tgraph.tensor<[4, 4], f32>, %xs: !tgraph.tensor<[T, 4, 4], f32>, %w: !tgraph.tensor<[4, 4], f32>) -> (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[T, 4, 4], f32>) {
  %0, %1 = tgraph.scan %h, %xs, %w {carried = 1, scanned = 1, length = [T]} ({
  ^bb0(%a: !tgraph.tensor<[4, 4], f32>, %b: !tgraph.tensor<[4, 4], f32>, %c: !tgraph.tensor<[4, 4], f32>):
    %2 = tgraph.matmul %a, %c : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[4, 4], f32>) -> !tgraph.tensor<[4, 4], f32>
    %3 = tgraph.tanh %2 : (!tgraph.tensor<[4, 4], f32>) -> !tgraph.tensor<[4, 4], f32>
    %4 = tgraph.mul %3, %b : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[4, 4], f32>) -> !tgraph.tensor<[4, 4], f32>
    tgraph.yield %4, %2 : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[4, 4], f32>) -> ()
  }) : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[T, 4, 4], f32>, !tgraph.tensor<[4, 4], f32>) -> (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[T, 4, 4], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[T, 4, 4], f32>) -> ()
}

// Attention is linearized with the log-sum-exps of its rows, and its transpose is one op: no scores are stored.
// CHECK-LABEL: tgraph.func @attention(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: {{[^:]*}}, %[[K:[a-z0-9]+]]: {{[^:]*}}, %[[V:[a-z0-9]+]]: {{[^:]*}}, %[[CT:[a-z0-9]+]]: !tgraph.tensor<[B, H, S, D], f32>)
// CHECK:         %[[OUT:[0-9]+]], %[[LSE:[0-9]+]] = tgraph.attention_with_lse %[[Q]], %[[K]], %[[V]]
// CHECK-NOT:     tgraph.attention {{%}}
// CHECK-NOT:     [B, H, S, T]
// CHECK:         %[[DQ:[0-9]+]], %[[DK:[0-9]+]], %[[DV:[0-9]+]] = tgraph.attention_backward
// CHECK-SAME:      {causal = true
// CHECK:         tgraph.return %[[OUT]], %[[DQ]], %[[DK]], %[[DV]]
tgraph.func @attention(%q: !tgraph.tensor<[B, H, S, D], f32>, %k: !tgraph.tensor<[B, H, T, D], f32>, %v: !tgraph.tensor<[B, H, T, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32> {
  %0 = tgraph.attention %q, %k, %v {causal = true} : (!tgraph.tensor<[B, H, S, D], f32>, !tgraph.tensor<[B, H, T, D], f32>, !tgraph.tensor<[B, H, T, D], f32>) -> !tgraph.tensor<[B, H, S, D], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, H, S, D], f32>) -> ()
}

// Scores that programs change are computed twice as well; a row that sees no key has a log-sum-exp of 0 there.
// CHECK-LABEL: tgraph.func @scored(
// CHECK-SAME:    %[[CT:[a-z0-9]+]]: !tgraph.tensor<[1, 2, S, 8], f32>) ->
// CHECK-NEXT:    %[[OUT:[0-9]+]], %[[LSE:[0-9]+]] = tgraph.scored_attention_with_lse %q, %q, %q {mask =
// CHECK:         %[[ROWS:[0-9]+]] = tgraph.saved_value %[[LSE]], %[[CT]]
// CHECK:         %[[DELTA:[0-9]+]] = tgraph.sum
// CHECK:         tgraph.full {value = -inf
// CHECK-NEXT:    %[[NONE:[0-9]+]] = tgraph.eq %[[ROWS]]
// CHECK:         %[[FINITE:[0-9]+]] = tgraph.where %[[NONE]], %{{[0-9]+}}, %[[ROWS]]
// CHECK-NEXT:    tgraph.scored_attention_backward %{{[0-9]+}}, %{{[0-9]+}}, %{{[0-9]+}}, %[[CT]], %[[FINITE]], %[[DELTA]] {mask =
tgraph.func @scored(%q: !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32> {
  %0 = tgraph.scored_attention %q, %q, %q {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>, !tgraph.tensor<[1, 2, S, 8], f32>) -> !tgraph.tensor<[1, 2, S, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, S, 8], f32>) -> ()
}

// The cotangent of an image is a convolution for each phase, that of weights one sum over images and positions.
// CHECK-LABEL: tgraph.func @windows(
// CHECK-SAME:    %[[CT:[a-z0-9]+]]: !tgraph.tensor<[N, 6, 5], f32>) ->
// CHECK-NEXT:    %[[OUT:[0-9]+]] = tgraph.conv_windows %w, %x
// CHECK:         %[[EVEN:[0-9]+]] = tgraph.conv_windows %{{[0-9]+}}, %[[CT]] {stride = [1],
// CHECK:         %[[ODD:[0-9]+]] = tgraph.conv_windows %{{[0-9]+}}, %[[CT]] {stride = [1],
// CHECK:         tgraph.concat
// CHECK:         %[[DX:[0-9]+]] = tgraph.slice
// CHECK-NEXT:    %[[XS:[0-9]+]] = tgraph.saved_value %x, %[[CT]]
// CHECK-NEXT:    %[[DW:[0-9]+]] = tgraph.conv_weights %[[CT]], %[[XS]] {taps = [3], stride = [2], dilation = [1], low = [1], high = [1], dtype = f32
// CHECK-NEXT:    tgraph.return %[[OUT]], %[[DX]], %[[DW]]
tgraph.func @windows(%x: !tgraph.tensor<[N, 4, 9], f32>, %w: !tgraph.tensor<[6, 4, 3], f32>) -> !tgraph.tensor<[N, 6, 5], f32> {
  %0 = tgraph.conv_windows %w, %x {stride = [2], dilation = [1], low = [1], high = [1]} : (!tgraph.tensor<[6, 4, 3], f32>, !tgraph.tensor<[N, 4, 9], f32>) -> !tgraph.tensor<[N, 6, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N, 6, 5], f32>) -> ()
}
