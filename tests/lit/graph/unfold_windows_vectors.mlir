// RUN: tessera-opt %s --split -p graph-unfold-windows | filecheck %s

// Channels that are whole vectors are the last dim first, where many windows have an element.
// CHECK-LABEL: tgraph.func @vectors(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[2, 16, 8, 8], bf16>
// CHECK:         %[[T:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [0, 2, 3, 1]}
// CHECK-NEXT:    tgraph.unfold %[[T]] {shape = [2, 8, 8, 3, 3, 16], steps = [1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1], low = [0, 1, 1, 0]}
tgraph.func @vectors(%x: !tgraph.tensor<[2, 16, 8, 8], bf16>, %w: !tgraph.tensor<[6, 3, 3, 16], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[6, 3, 3, 16], bf16>, !tgraph.tensor<[2, 16, 8, 8], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 8, 8], bf16>) -> ()
}
// -----
// Three channels are none.
// CHECK-LABEL: tgraph.func @few(
// CHECK-NOT:     tgraph.transpose
// CHECK:         tgraph.unfold %{{.*}} {shape = [2, 3, 3, 3, 8, 8]
tgraph.func @few(%x: !tgraph.tensor<[2, 3, 8, 8], bf16>, %w: !tgraph.tensor<[6, 3, 3, 3], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[6, 3, 3, 3], bf16>, !tgraph.tensor<[2, 3, 8, 8], bf16>) -> !tgraph.tensor<[2, 6, 8, 8], bf16>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 8, 8], bf16>) -> ()
}
