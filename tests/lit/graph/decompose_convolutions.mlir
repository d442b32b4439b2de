// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Convolutions over three axes, and backwards: one contraction over windows, or one for each phase of the stride.

// Groups are an axis of both, and the taps of weights stand before their channels.
// CHECK-LABEL: tgraph.func @conv3d(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.transpose %w {axes = [0, 2, 3, 4, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %x {shape = [N, 2, 2, 5, 6, 7]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [2, 3, 3, 3, 1, 2]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.conv_windows %[[V2]], %[[V1]] {stride = [1, 1, 1], dilation = [1, 1, 1], low = [1, 1, 0], high = [1, 1, 0], grouped = true, taps_first = true}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.reshape %[[V3]] {shape = [N, 6, 5, 6, 7]}
// CHECK-NEXT:  tgraph.return %[[V4]]
tgraph.func @conv3d(%x: !tgraph.tensor<[N, 4, 5, 6, 7], f32>, %w: !tgraph.tensor<[6, 2, 3, 3, 1], f32>) -> !tgraph.tensor<[N, 6, 5, 6, 7], f32> {
  %0 = tgraph.conv3d %x, %w {padding = [1, 1, 0], groups = 2} : (!tgraph.tensor<[N, 4, 5, 6, 7], f32>, !tgraph.tensor<[6, 2, 3, 3, 1], f32>) -> !tgraph.tensor<[N, 6, 5, 6, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N, 6, 5, 6, 7], f32>) -> ()
}
// -----
// A stride of 2 has two phases: even positions are of the middle tap, odd ones of the outer two, in the other order.
// CHECK-LABEL: tgraph.func @conv_transpose1d(
// CHECK-NEXT:  %[[T:[a-z0-9]+]] = tgraph.transpose %w {axes = [1, 2, 0]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.slice %[[T]] {start = [0, 1, 0], stop = [6, 3, 4], step = [1, 2, 1]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.transpose %[[V1]] {axes = [0, 2, 1]}
// CHECK-NEXT:  %[[EVEN:[a-z0-9]+]] = tgraph.conv_windows %[[V2]], %x {stride = [1], dilation = [1], low = [0], high = [0], dtype = f32}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %[[T]] {start = [0, 0, 0], stop = [6, 3, 4], step = [1, 2, 1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.flip %[[V4]] {axes = [1]}
// CHECK-NEXT:  %[[ODD:[a-z0-9]+]] = tgraph.conv_windows %[[V5]], %x {stride = [1], dilation = [1], low = [0], high = [1], taps_first = true, dtype = f32}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.reshape %[[EVEN]] {shape = [N, 6, L, 1]}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.reshape %[[ODD]] {shape = [N, 6, L, 1]}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.concat %[[V7]], %[[V8]] {axis = 3}
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.reshape %[[V9]] {shape = [N, 6, 2*L]}
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.slice %[[V10]] {start = [0, 0, 0], stop = [N, 6, 2*L], step = [1, 1, 1]}
// CHECK-NEXT:  tgraph.return %[[V11]]
tgraph.func @conv_transpose1d(%x: !tgraph.tensor<[N, 4, L], f32>, %w: !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[N, 6, 2*L], f32> {
  %0 = tgraph.conv_transpose1d %x, %w {stride = [2], padding = [1], output_padding = [1]} : (!tgraph.tensor<[N, 4, L], f32>, !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[N, 6, 2*L], f32>
  tgraph.return %0 : (!tgraph.tensor<[N, 6, 2*L], f32>) -> ()
}
// -----
// Each axis has phases of its own, one along the second; groups are an axis of both.
// CHECK-LABEL: tgraph.func @conv_transpose2d(
// CHECK-NEXT:  %[[X:[a-z0-9]+]] = tgraph.reshape %x {shape = [2, 2, 2, 5, 7]}
// CHECK-NEXT:  %[[W:[a-z0-9]+]] = tgraph.reshape %w {shape = [2, 2, 3, 2, 2]}
// CHECK-NEXT:  %[[T:[a-z0-9]+]] = tgraph.transpose %[[W]] {axes = [0, 2, 3, 4, 1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.slice %[[T]] {start = [0, 0, 0, 0, 0], stop = [2, 3, 2, 2, 2], step = [1, 1, 2, 1, 1]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.flip %[[V3]] {axes = [2, 3]}
// CHECK-NEXT:  %[[EVEN:[a-z0-9]+]] = tgraph.conv_windows %[[V4]], %[[X]] {stride = [1, 1], dilation = [1, 1], low = [0, 1], high = [0, 1], grouped = true, taps_first = true, dtype = f32}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.slice %[[T]] {start = [0, 0, 1, 0, 0], stop = [2, 3, 2, 2, 2], step = [1, 1, 2, 1, 1]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.flip %[[V6]] {axes = [2, 3]}
// CHECK-NEXT:  %[[ODD:[a-z0-9]+]] = tgraph.conv_windows %[[V7]], %[[X]] {stride = [1, 1], dilation = [1, 1], low = [0, 1], high = [0, 1], grouped = true, taps_first = true, dtype = f32}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.reshape %[[EVEN]] {shape = [2, 2, 3, 5, 1, 8]}
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.reshape %[[ODD]] {shape = [2, 2, 3, 5, 1, 8]}
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.concat %[[V9]], %[[V10]] {axis = 4}
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.reshape %[[V11]] {shape = [2, 2, 3, 10, 8]}
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.slice %[[V12]] {start = [0, 0, 0, 0, 0], stop = [2, 2, 3, 10, 8], step = [1, 1, 1, 1, 1]}
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.reshape %[[V13]] {shape = [2, 6, 10, 8]}
// CHECK-NEXT:  tgraph.return %[[V14]]
tgraph.func @conv_transpose2d(%x: !tgraph.tensor<[2, 4, 5, 7], f32>, %w: !tgraph.tensor<[4, 3, 2, 2], f32>) -> !tgraph.tensor<[2, 6, 10, 8], f32> {
  %0 = tgraph.conv_transpose2d %x, %w {stride = [2, 1], groups = 2} : (!tgraph.tensor<[2, 4, 5, 7], f32>, !tgraph.tensor<[4, 3, 2, 2], f32>) -> !tgraph.tensor<[2, 6, 10, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 10, 8], f32>) -> ()
}
// -----
// No tap reaches the odd planes: they are zero, and nothing is multiplied for them.
// CHECK-LABEL: tgraph.func @conv_transpose3d(
// CHECK-NEXT:  %[[T:[a-z0-9]+]] = tgraph.transpose %w {axes = [1, 2, 3, 4, 0]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.slice %[[T]] {start = [0, 0, 0, 0, 0], stop = [3, 1, 2, 2, 2], step = [1, 2, 1, 1, 1]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.flip %[[V1]] {axes = [1, 2, 3]}
// CHECK-NEXT:  %[[EVEN:[a-z0-9]+]] = tgraph.conv_windows %[[V2]], %x {stride = [1, 1, 1], dilation = [1, 1, 1], low = [0, 1, 1], high = [0, 1, 1], taps_first = true, dtype = f32}
// CHECK-NEXT:  %[[ODD:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [1, 3, 4, 5, 5], dtype = f32}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.reshape %[[EVEN]] {shape = [1, 3, 4, 1, 5, 5]}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.reshape %[[ODD]] {shape = [1, 3, 4, 1, 5, 5]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.concat %[[V5]], %[[V6]] {axis = 3}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.reshape %[[V7]] {shape = [1, 3, 8, 5, 5]}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.slice %[[V8]] {start = [0, 0, 0, 0, 0], stop = [1, 3, 7, 5, 5], step = [1, 1, 1, 1, 1]}
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @conv_transpose3d(%x: !tgraph.tensor<[1, 2, 4, 4, 4], f32>, %w: !tgraph.tensor<[2, 3, 1, 2, 2], f32>) -> !tgraph.tensor<[1, 3, 7, 5, 5], f32> {
  %0 = tgraph.conv_transpose3d %x, %w {stride = [2, 1, 1]} : (!tgraph.tensor<[1, 2, 4, 4, 4], f32>, !tgraph.tensor<[2, 3, 1, 2, 2], f32>) -> !tgraph.tensor<[1, 3, 7, 5, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 3, 7, 5, 5], f32>) -> ()
}
// -----
// It is not known which tap reaches what where taps are symbolic: zeros lie between the elements.
// CHECK-LABEL: tgraph.func @symbolic_taps(
// CHECK-NEXT:  %[[T:[a-z0-9]+]] = tgraph.transpose %w {axes = [1, 2, 0]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %x {shape = [1, 2, 4, 1]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.pad %[[V1]] {low = [0, 0, 0, 0], high = [0, 0, 0, 1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = [1, 2, 8]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %[[V3]] {start = [0, 0, 0], stop = [1, 2, 7], step = [1, 1, 1]}
// CHECK:       %[[V6:[a-z0-9]+]] = tgraph.flip %[[T]] {axes = [1]}
// CHECK-NEXT:  tgraph.conv_windows %[[V6]], {{.*}} {stride = [1], dilation = [1], {{.*}}taps_first = true, dtype = f32}
// CHECK-NOT:   tgraph.conv_windows
tgraph.func @symbolic_taps(%x: !tgraph.tensor<[1, 2, 4], f32>, %w: !tgraph.tensor<[2, 3, T], f32>) -> !tgraph.tensor<[1, 3, T + 6], f32> {
  %0 = tgraph.conv_transpose1d %x, %w {stride = [2]} : (!tgraph.tensor<[1, 2, 4], f32>, !tgraph.tensor<[2, 3, T], f32>) -> !tgraph.tensor<[1, 3, T + 6], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 3, T + 6], f32>) -> ()
}
