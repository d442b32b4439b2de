// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Convolutions over three axes, backwards, and for weights; windows as rows of a matrix, and chains: what each asks.

// CHECK: error[T0301]: `conv3d` of [2, 4, 5, 6, 7] with [6, 3, 3, 3, 1]: the channels differ (4 and 3)
tgraph.func @conv3d(%x0: !tgraph.tensor<[2, 4, 5, 6, 7], f32>, %x1: !tgraph.tensor<[6, 3, 3, 3, 1], f32>) -> !tgraph.tensor<[2, 6, 3, 4, 7], f32> {
  %0 = tgraph.conv3d %x0, %x1 : (!tgraph.tensor<[2, 4, 5, 6, 7], f32>, !tgraph.tensor<[6, 3, 3, 3, 1], f32>) -> !tgraph.tensor<[2, 6, 3, 4, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 3, 4, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv3d` has a window of 7 on an axis of 6: it does not fit (-1)
tgraph.func @conv3d_window(%x0: !tgraph.tensor<[2, 4, 5, 6, 7], f32>, %x1: !tgraph.tensor<[6, 4, 3, 7, 1], f32>) -> !tgraph.tensor<[2, 6, 3, 4, 7], f32> {
  %0 = tgraph.conv3d %x0, %x1 : (!tgraph.tensor<[2, 4, 5, 6, 7], f32>, !tgraph.tensor<[6, 4, 3, 7, 1], f32>) -> !tgraph.tensor<[2, 6, 3, 4, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 3, 4, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv3d` needs numbers, got bool
tgraph.func @conv3d_bools(%x0: !tgraph.tensor<[2, 4, 5, 6, 7], bool>, %x1: !tgraph.tensor<[6, 4, 3, 3, 1], bool>) -> !tgraph.tensor<[2, 6, 3, 4, 7], bool> {
  %0 = tgraph.conv3d %x0, %x1 : (!tgraph.tensor<[2, 4, 5, 6, 7], bool>, !tgraph.tensor<[6, 4, 3, 3, 1], bool>) -> !tgraph.tensor<[2, 6, 3, 4, 7], bool>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 3, 4, 7], bool>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.conv3d` is !tgraph.tensor<[2, 6, 3, 4, 7], f32> by its shape rule, not !tgraph.tensor<[2, 6, 5, 6, 7], f32>
tgraph.func @conv3d_result(%x0: !tgraph.tensor<[2, 4, 5, 6, 7], f32>, %x1: !tgraph.tensor<[6, 4, 3, 3, 1], f32>) -> !tgraph.tensor<[2, 6, 5, 6, 7], f32> {
  %0 = tgraph.conv3d %x0, %x1 : (!tgraph.tensor<[2, 4, 5, 6, 7], f32>, !tgraph.tensor<[6, 4, 3, 3, 1], f32>) -> !tgraph.tensor<[2, 6, 5, 6, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 5, 6, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose1d` of [2, 4, 5] with [6, 4, 3]: the channels differ (4 and 6)
tgraph.func @conv_transpose1d(%x0: !tgraph.tensor<[2, 4, 5], f32>, %x1: !tgraph.tensor<[6, 4, 3], f32>) -> !tgraph.tensor<[2, 4, 7], f32> {
  %0 = tgraph.conv_transpose1d %x0, %x1 : (!tgraph.tensor<[2, 4, 5], f32>, !tgraph.tensor<[6, 4, 3], f32>) -> !tgraph.tensor<[2, 4, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 4, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose1d` has no padding `same`: several sizes of a result have one of [5]
tgraph.func @conv_transpose1d_same(%x0: !tgraph.tensor<[2, 4, 5], f32>, %x1: !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[2, 6, 5], f32> {
  %0 = tgraph.conv_transpose1d %x0, %x1 {padding_mode = "same"} : (!tgraph.tensor<[2, 4, 5], f32>, !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[2, 6, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose1d` cuts more than there is of axis 2: its size would be -2 (-2)
tgraph.func @conv_transpose1d_cut(%x0: !tgraph.tensor<[2, 4, 2], f32>, %x1: !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[2, 6, 0], f32> {
  %0 = tgraph.conv_transpose1d %x0, %x1 {padding = [3]} : (!tgraph.tensor<[2, 4, 2], f32>, !tgraph.tensor<[4, 6, 3], f32>) -> !tgraph.tensor<[2, 6, 0], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 0], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose2d` has an `output_padding` of 1 along axis 3, which must be below the larger of stride 1 and dilation 1
tgraph.func @conv_transpose2d(%x0: !tgraph.tensor<[2, 4, 5, 5], f32>, %x1: !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 6, 12, 8], f32> {
  %0 = tgraph.conv_transpose2d %x0, %x1 {stride = [2, 1], output_padding = [1, 1]} : (!tgraph.tensor<[2, 4, 5, 5], f32>, !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 6, 12, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 12, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `groups` = 3 must divide the 4 channels in
tgraph.func @conv_transpose2d_groups(%x0: !tgraph.tensor<[2, 4, 5, 5], f32>, %x1: !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 18, 7, 7], f32> {
  %0 = tgraph.conv_transpose2d %x0, %x1 {groups = 3} : (!tgraph.tensor<[2, 4, 5, 5], f32>, !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 18, 7, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 18, 7, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose2d` needs `x` of rank 4, got [2, 4, 5]
tgraph.func @conv_transpose2d_rank(%x0: !tgraph.tensor<[2, 4, 5], f32>, %x1: !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 6, 7, 7], f32> {
  %0 = tgraph.conv_transpose2d %x0, %x1 : (!tgraph.tensor<[2, 4, 5], f32>, !tgraph.tensor<[4, 6, 3, 3], f32>) -> !tgraph.tensor<[2, 6, 7, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 6, 7, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose3d` needs 1 or 3 numbers of at least 0 as `output_padding`, got [0, -1, 0]
tgraph.func @conv_transpose3d(%x0: !tgraph.tensor<[1, 2, 4, 4, 4], f32>, %x1: !tgraph.tensor<[2, 3, 1, 2, 2], f32>) -> !tgraph.tensor<[1, 3, 4, 4, 5], f32> {
  %0 = tgraph.conv_transpose3d %x0, %x1 {output_padding = [0, -1, 0]} : (!tgraph.tensor<[1, 2, 4, 4, 4], f32>, !tgraph.tensor<[2, 3, 1, 2, 2], f32>) -> !tgraph.tensor<[1, 3, 4, 4, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 3, 4, 4, 5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_transpose3d` needs numbers, got bool
tgraph.func @conv_transpose3d_bools(%x0: !tgraph.tensor<[1, 2, 4, 4, 4], bool>, %x1: !tgraph.tensor<[2, 3, 1, 2, 2], bool>) -> !tgraph.tensor<[1, 3, 4, 5, 5], bool> {
  %0 = tgraph.conv_transpose3d %x0, %x1 : (!tgraph.tensor<[1, 2, 4, 4, 4], bool>, !tgraph.tensor<[2, 3, 1, 2, 2], bool>) -> !tgraph.tensor<[1, 3, 4, 5, 5], bool>
  tgraph.return %0 : (!tgraph.tensor<[1, 3, 4, 5, 5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_weights` needs a position of the window for each of axis 2 (4 and 5)
tgraph.func @conv_weights(%x0: !tgraph.tensor<[2, 3, 4], f32>, %x1: !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32> {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3], stride = [2], dilation = [1], low = [1], high = [1]} : (!tgraph.tensor<[2, 3, 4], f32>, !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_weights` needs equal batches and groups (2 and 4)
tgraph.func @conv_weights_batches(%x0: !tgraph.tensor<[2, 3, 5], f32>, %x1: !tgraph.tensor<[4, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32> {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3], stride = [2], dilation = [1], low = [1], high = [1]} : (!tgraph.tensor<[2, 3, 5], f32>, !tgraph.tensor<[4, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_weights` over 1 axes needs rank 3 and taps, got [2, 3, 5] f32 and [2, 5, 9] f32
tgraph.func @conv_weights_taps(%x0: !tgraph.tensor<[2, 3, 5], f32>, %x1: !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3, 3], f32> {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3, 3], stride = [2], dilation = [1], low = [1], high = [1]} : (!tgraph.tensor<[2, 3, 5], f32>, !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5, 3, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `unfold` of rank 2 to rank 3 has 6 steps and 2 offsets, got 5 and 2
tgraph.func @unfold(%x0: !tgraph.tensor<[9, 4], f32>) -> !tgraph.tensor<[5, 3, 4], f32> {
  %0 = tgraph.unfold %x0 {shape = [5, 3, 4], steps = [2, 1, 0, 0, 0], low = [1, 0]} : (!tgraph.tensor<[9, 4], f32>) -> !tgraph.tensor<[5, 3, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 3, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `unfold` of rank 2 to rank 3 has 6 steps and 2 offsets, got 6 and 1
tgraph.func @unfold_offsets(%x0: !tgraph.tensor<[9, 4], f32>) -> !tgraph.tensor<[5, 3, 4], f32> {
  %0 = tgraph.unfold %x0 {shape = [5, 3, 4], steps = [2, 1, 0, 0, 0, 1], low = [1]} : (!tgraph.tensor<[9, 4], f32>) -> !tgraph.tensor<[5, 3, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 3, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `fma_chain` multiplies pairs of operands, got 3 of them
tgraph.func @fma_chain(%x0: !tgraph.tensor<[7], f32>, %x1: !tgraph.tensor<[7], f32>, %x2: !tgraph.tensor<[7], f32>) -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.fma_chain %x0, %x1, %x2 {accumulate = f32, dtype = f32} : (!tgraph.tensor<[7], f32>, !tgraph.tensor<[7], f32>, !tgraph.tensor<[7], f32>) -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `fma_chain` cannot add products of f64 in f32 and give f32
tgraph.func @fma_chain_dtypes(%x0: !tgraph.tensor<[7], f64>, %x1: !tgraph.tensor<[7], f64>) -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.fma_chain %x0, %x1 {accumulate = f32, dtype = f32} : (!tgraph.tensor<[7], f64>, !tgraph.tensor<[7], f64>) -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `fma_chain` cannot broadcast [7] with [5]: `terms[0].shape[0] = 7` and `terms[1].shape[0] = 5` differ
tgraph.func @fma_chain_shapes(%x0: !tgraph.tensor<[7], f32>, %x1: !tgraph.tensor<[5], f32>) -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.fma_chain %x0, %x1 {accumulate = f32, dtype = f32} : (!tgraph.tensor<[7], f32>, !tgraph.tensor<[5], f32>) -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_windows` has positions as rows or columns or k, not 'depth'
tgraph.func @dot_windows_positions(%x0: !tgraph.tensor<[2, 9, 4], f32>, %x1: !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32> {
  %0 = tgraph.dot_windows %x0, %x1 {shape = [7], stride = [1], dilation = [1], low = [0], positions = "depth"} : (!tgraph.tensor<[2, 9, 4], f32>, !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 7, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_windows` of an image of rank 3 has another operand of that rank and 1 numbers as `shape`, `stride`, `dilation`, `low`, got {{.*}} and [1, 2, 1, 1]
tgraph.func @dot_windows_strides(%x0: !tgraph.tensor<[2, 9, 4], f32>, %x1: !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32> {
  %0 = tgraph.dot_windows %x0, %x1 {shape = [7], stride = [1, 1], dilation = [1], low = [0]} : (!tgraph.tensor<[2, 9, 4], f32>, !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 7, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_windows` has a stride and a dilation from 1 on
tgraph.func @dot_windows_dilation(%x0: !tgraph.tensor<[2, 9, 4], f32>, %x1: !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32> {
  %0 = tgraph.dot_windows %x0, %x1 {shape = [7], stride = [1], dilation = [0], low = [0]} : (!tgraph.tensor<[2, 9, 4], f32>, !tgraph.tensor<[3, 3, 4], f32>) -> !tgraph.tensor<[2, 7, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 7, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_windows` needs equal channels
tgraph.func @dot_windows_channels(%x0: !tgraph.tensor<[2, 9, 4], f32>, %x1: !tgraph.tensor<[3, 3, 5], f32>) -> !tgraph.tensor<[2, 7, 3], f32> {
  %0 = tgraph.dot_windows %x0, %x1 {shape = [7], stride = [1], dilation = [1], low = [0]} : (!tgraph.tensor<[2, 9, 4], f32>, !tgraph.tensor<[3, 3, 5], f32>) -> !tgraph.tensor<[2, 7, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 7, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_windows` needs an element for each position along axis 1
tgraph.func @dot_windows_summed(%x0: !tgraph.tensor<[2, 6, 3], f32>, %x1: !tgraph.tensor<[2, 9, 4], f32>) -> !tgraph.tensor<[3, 3, 4], f32> {
  %0 = tgraph.dot_windows %x0, %x1 {shape = [7], stride = [1], dilation = [1], low = [0], positions = "k", taps = [3]} : (!tgraph.tensor<[2, 6, 3], f32>, !tgraph.tensor<[2, 9, 4], f32>) -> !tgraph.tensor<[3, 3, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 3, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_weights` has a stride and dilation from 1 on, low and high for each of 1 axes
tgraph.func @conv_weights_dilation(%x0: !tgraph.tensor<[2, 3, 5], f32>, %x1: !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32> {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3], stride = [2], dilation = [1, 1], low = [1], high = [1]} : (!tgraph.tensor<[2, 3, 5], f32>, !tgraph.tensor<[2, 5, 9], f32>) -> !tgraph.tensor<[3, 5, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5, 3], f32>) -> ()
}
