// RUN: tessera-opt %s --split -p 'graph-unfold-windows{along_k = "f8e4m3 tf32"}' | filecheck %s

// Windows become rows of a matrix; positions are its last dims, as they are in memory.
// CHECK-LABEL: tgraph.func @three(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[2, 1, 8, 8], bf16>, %[[W:[a-z0-9]+]]:
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.reshape %[[W]] {shape = [1, 6, 3, 3]}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.broadcast_to %[[R]] {shape = [2, 6, 3, 3]}
// CHECK-NEXT:    %[[U:[a-z0-9]+]] = tgraph.unfold %[[X]] {shape = [2, 3, 3, 8, 8], steps = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1], low = [0, 0, 1, 1]}
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.dot_general %[[B]], %[[U]] {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2, 3], rhs_contract = [1, 2], accumulate = f32}
// CHECK-NEXT:    tgraph.return %[[P]]
tgraph.func @three(%x: !tgraph.tensor<[2, 1, 8, 8], bf16>, %w: !tgraph.tensor<[6, 1, 3, 3], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], accumulate = f32} : (!tgraph.tensor<[6, 1, 3, 3], bf16>, !tgraph.tensor<[2, 1, 8, 8], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 8, 8], bf16>) -> ()
}
// -----
// Rows of positions that are no multiples of 16 bytes, and dtypes that are multiplied along K alone: K is last.
// CHECK-LABEL: tgraph.func @along_k(
// CHECK:         tgraph.unfold %{{.*}} {shape = [2, 3, 3, {{4, 3, 3|3, 3, 4}}],
// CHECK:         tgraph.unfold %{{.*}} {shape = [2, 8, 8, {{4, 3, 3|3, 3, 4}}],
tgraph.func @along_k(%x: !tgraph.tensor<[2, 4, 5, 5], bf16>, %w: !tgraph.tensor<[6, 4, 3, 3], bf16>, %y: !tgraph.tensor<[2, 4, 10, 10], f8e4m3>, %v: !tgraph.tensor<[6, 4, 3, 3], f8e4m3>) -> (!tgraph.tensor<[2, 6, 3, 3], bf16>, !tgraph.tensor<[2, 6, 8, 8], bf16>) {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [0, 0], high = [0, 0], accumulate = f32} : (!tgraph.tensor<[6, 4, 3, 3], bf16>, !tgraph.tensor<[2, 4, 5, 5], bf16>) -> !tgraph.tensor<[2, 6, 3, 3], bf16>
  %1 = tgraph.conv_windows %v, %y {stride = [1, 1], dilation = [1, 1], low = [0, 0], high = [0, 0], accumulate = f32, dtype = bf16} : (!tgraph.tensor<[6, 4, 3, 3], f8e4m3>, !tgraph.tensor<[2, 4, 10, 10], f8e4m3>) -> !tgraph.tensor<[2, 6, 8, 8], bf16>
  tgraph.return %0, %1 : (!tgraph.tensor<[2, 6, 3, 3], bf16>, !tgraph.tensor<[2, 6, 8, 8], bf16>) -> ()
}
// -----
// A window of one element is a product of what is there; nothing is written first.
// CHECK-LABEL: tgraph.func @one(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N, 64, H, W], f32>, %[[W:[a-z0-9]+]]:
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.reshape %[[W]] {shape = [1, 32, 64]}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.broadcast_to %[[R]] {shape = [N, 32, 64]}
// CHECK-NEXT:    tgraph.dot_general %[[B]], %[[X]] {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1], accumulate = f32}
tgraph.func @one(%x: !tgraph.tensor<[N, 64, H, W], f32>, %w: !tgraph.tensor<[32, 64, 1, 1], f32>) -> !tgraph.tensor<[N, 32, H, W], f32> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [0, 0], high = [0, 0], accumulate = f32} : (!tgraph.tensor<[32, 64, 1, 1], f32>, !tgraph.tensor<[N, 64, H, W], f32>) -> !tgraph.tensor<[N, 32, H, W], f32>
  tgraph.return %0 : (!tgraph.tensor<[N, 32, H, W], f32>) -> ()
}
// -----
// Between transposes to channels last and back, rows of the product are the positions of all images.
// CHECK-LABEL: tgraph.func @channels_last(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[2, 8, 8, 4], bf16>
// CHECK:         %[[U:[a-z0-9]+]] = tgraph.unfold %[[X]] {shape = [2, 8, 8, {{4, 3, 3|3, 3, 4}}], steps = {{.*}}, low = [0, 1, 1, 0]}
// CHECK:         tgraph.dot_general %[[U]], {{.*}}lhs_contract = [3, 4, 5], rhs_contract = [1, 2, 3]{{.*}} -> !tgraph.tensor<[2, 8, 8, 6], bf16>
tgraph.func @channels_last(%x: !tgraph.tensor<[2, 8, 8, 4], bf16>, %w: !tgraph.tensor<[6, 4, 3, 3], bf16>) -> !tgraph.tensor<[2, 8, 8, 6], bf16> {
  %0 = tgraph.transpose %x {axes = [0, 3, 1, 2]} : (!tgraph.tensor<[2, 8, 8, 4], bf16>) -> !tgraph.tensor<[2, 4, 8, 8], bf16>
  %1 = tgraph.conv_windows %w, %0 {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], accumulate = f32} : (!tgraph.tensor<[6, 4, 3, 3], bf16>, !tgraph.tensor<[2, 4, 8, 8], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16>
  %2 = tgraph.transpose %1 {axes = [0, 2, 3, 1]} : (!tgraph.tensor<[2, 6, 8, 8], bf16>) -> !tgraph.tensor<[2, 8, 8, 6], bf16>
  tgraph.return %2 : (!tgraph.tensor<[2, 8, 8, 6], bf16>) -> ()
}
// -----
// A depthwise convolution is a chain over its taps, each read where it is; one that is padded reads zeros there.
// CHECK-LABEL: tgraph.func @depthwise(
// CHECK-COUNT-2: tgraph.unfold %{{.*}} {shape = [B, 3, L]
// CHECK-NOT:     tgraph.unfold
// CHECK:         tgraph.fma_chain %{{.*}} {accumulate = f32, dtype = bf16}
tgraph.func @depthwise(%x: !tgraph.tensor<[B, 3, 1, L], bf16>, %w: !tgraph.tensor<[3, 1, 1, 2], bf16>) -> !tgraph.tensor<[B, 3, 1, L], bf16> {
  %0 = tgraph.conv_windows %w, %x {stride = [1], dilation = [1], low = [1], high = [0], grouped = true, accumulate = f32} : (!tgraph.tensor<[3, 1, 1, 2], bf16>, !tgraph.tensor<[B, 3, 1, L], bf16>) -> !tgraph.tensor<[B, 3, 1, L], bf16>
  tgraph.return %0 : (!tgraph.tensor<[B, 3, 1, L], bf16>) -> ()
}
// -----
// Products of matrices stay as they are.
// CHECK-LABEL: tgraph.func @matrices(
// CHECK-NEXT:    tgraph.matmul
tgraph.func @matrices(%a: !tgraph.tensor<[M, 8], f32>, %b: !tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[M, 4], f32> {
  %0 = tgraph.matmul %a, %b {accumulate = f32} : (!tgraph.tensor<[M, 8], f32>, !tgraph.tensor<[8, 4], f32>) -> !tgraph.tensor<[M, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, 4], f32>) -> ()
}
