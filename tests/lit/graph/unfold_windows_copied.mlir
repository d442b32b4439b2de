// RUN: tessera-opt %s --split -p 'graph-unfold-windows{copies = "bf16 f16 32 8 16 8 5"}' | filecheck %s

// Where copies read windows, nothing is unfolded: the image has its channels last, and positions are columns.
// CHECK-LABEL: tgraph.func @columns(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[2, 32, 16, 16], bf16>, %[[W:[a-z0-9]+]]:
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [0, 2, 3, 1]}
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.dot_windows %[[W]], %[[T]] {shape = [16, 16], stride = [1, 1], dilation = [1, 1], low = [1, 1], positions = "columns", accumulate = f32}
// CHECK-NEXT:    tgraph.return %[[P]]
tgraph.func @columns(%x: !tgraph.tensor<[2, 32, 16, 16], bf16>, %w: !tgraph.tensor<[24, 3, 3, 32], bf16>) -> !tgraph.tensor<[2, 24, 16, 16], bf16> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[24, 3, 3, 32], bf16>, !tgraph.tensor<[2, 32, 16, 16], bf16>) -> !tgraph.tensor<[2, 24, 16, 16], bf16>
  tgraph.return %0 : (!tgraph.tensor<[2, 24, 16, 16], bf16>) -> ()
}
// -----
// Between transposes to channels last and back, positions of all images are rows; so are those of small images.
// CHECK-LABEL: tgraph.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[2, 8, 8, 32], bf16>, %[[W:[a-z0-9]+]]:
// CHECK:         tgraph.dot_windows %[[X]], %[[W]] {shape = [4, 4], stride = [2, 2], dilation = [1, 1], low = [1, 1], accumulate = f32} {{.*}} -> !tgraph.tensor<[2, 4, 4, 24], bf16>
tgraph.func @rows(%x: !tgraph.tensor<[2, 8, 8, 32], bf16>, %w: !tgraph.tensor<[24, 3, 3, 32], bf16>) -> !tgraph.tensor<[2, 4, 4, 24], bf16> {
  %0 = tgraph.transpose %x {axes = [0, 3, 1, 2]} : (!tgraph.tensor<[2, 8, 8, 32], bf16>) -> !tgraph.tensor<[2, 32, 8, 8], bf16>
  %1 = tgraph.conv_windows %w, %0 {stride = [2, 2], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[24, 3, 3, 32], bf16>, !tgraph.tensor<[2, 32, 8, 8], bf16>) -> !tgraph.tensor<[2, 24, 4, 4], bf16>
  %2 = tgraph.transpose %1 {axes = [0, 2, 3, 1]} : (!tgraph.tensor<[2, 24, 4, 4], bf16>) -> !tgraph.tensor<[2, 4, 4, 24], bf16>
  tgraph.return %2 : (!tgraph.tensor<[2, 4, 4, 24], bf16>) -> ()
}
// -----
// Channels that are no line, strides of more than 8 and other dtypes are beyond copies.
// CHECK-LABEL: tgraph.func @beyond(
// CHECK-NOT:     tgraph.dot_windows
// CHECK:         tgraph.return
tgraph.func @beyond(%x: !tgraph.tensor<[2, 8, 16, 16], bf16>, %w: !tgraph.tensor<[24, 3, 3, 8], bf16>, %y: !tgraph.tensor<[2, 32, 99], bf16>, %v: !tgraph.tensor<[24, 5, 32], bf16>, %z: !tgraph.tensor<[2, 32, 16, 16], f32>, %u: !tgraph.tensor<[24, 3, 3, 32], f32>) -> (!tgraph.tensor<[2, 24, 16, 16], bf16>, !tgraph.tensor<[2, 24, 11], bf16>, !tgraph.tensor<[2, 24, 16, 16], f32>) {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[24, 3, 3, 8], bf16>, !tgraph.tensor<[2, 8, 16, 16], bf16>) -> !tgraph.tensor<[2, 24, 16, 16], bf16>
  %1 = tgraph.conv_windows %v, %y {stride = [9], dilation = [1], low = [0], high = [0], taps_first = true, accumulate = f32} : (!tgraph.tensor<[24, 5, 32], bf16>, !tgraph.tensor<[2, 32, 99], bf16>) -> !tgraph.tensor<[2, 24, 11], bf16>
  %2 = tgraph.conv_windows %u, %z {stride = [1, 1], dilation = [1, 1], low = [1, 1], high = [1, 1], taps_first = true, accumulate = f32} : (!tgraph.tensor<[24, 3, 3, 32], f32>, !tgraph.tensor<[2, 32, 16, 16], f32>) -> !tgraph.tensor<[2, 24, 16, 16], f32>
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 24, 16, 16], bf16>, !tgraph.tensor<[2, 24, 11], bf16>, !tgraph.tensor<[2, 24, 16, 16], f32>) -> ()
}
