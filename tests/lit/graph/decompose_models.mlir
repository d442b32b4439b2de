// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Parts of models: heads, rotations, convolutions, pools, quantization, caches.

// One projection [batch, length, channels] as queries, keys, values [batch, heads, length, head dim].
// CHECK-LABEL: tgraph.func @split_qkv(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0], stop = [N2, N5, 2*(N24 floordiv 6)], step = [1, 1, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [N2, N5, 2, (N24 floordiv 6)]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.transpose %[[V1]] {axes = [0, 2, 1, 3]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 2*(N24 floordiv 6)], stop = [N2, N5, 4*(N24 floordiv 6)], step = [1, 1, 1]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.reshape %[[V3]] {shape = [N2, N5, 2, (N24 floordiv 6)]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.transpose %[[V4]] {axes = [0, 2, 1, 3]}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 4*(N24 floordiv 6)], stop = [N2, N5, 6*(N24 floordiv 6)], step = [1, 1, 1]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.reshape %[[V6]] {shape = [N2, N5, 2, (N24 floordiv 6)]}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.transpose %[[V7]] {axes = [0, 2, 1, 3]}
// CHECK-NEXT:  tgraph.return %[[V2]], %[[V5]], %[[V8]]
tgraph.func @split_qkv(%x0: !tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) attributes {names = ["x0"], guards = [[dim<N24>, dim<6*(N24 floordiv 6)>, "the op's rule"]]} {
  %0, %1, %2 = tgraph.split_qkv %x0 {heads = 2} : (!tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) -> ()
}
// -----
// Pairs of the last axis rotated by angles given as cos and sin [length, size / 2]; f32, rounded once.
// CHECK-LABEL: tgraph.func @rotary(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, 0], stop = [N2, N3, N5, (N8 floordiv 2)], step = [1, 1, 1, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, (N8 floordiv 2)], stop = [N2, N3, N5, 2*(N8 floordiv 2)], step = [1, 1, 1, 1]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.mul %[[V0]], %x1
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.mul %[[V1]], %x2
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.sub %[[V2]], %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.mul %[[V1]], %x1
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.mul %[[V0]], %x2
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.add %[[V5]], %[[V6]]
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.concat %[[V4]], %[[V7]] {axis = 3}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.broadcast_to %[[V8]] {shape = [N2, N3, N5, N8]}
// CHECK-NEXT:  tgraph.return %[[V9]]
tgraph.func @rotary(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N5, N4], f32>, %x2: !tgraph.tensor<[N5, N4], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32> attributes {names = ["x0", "x1", "x2"], guards = [[dim<N8>, dim<2*(N8 floordiv 2)>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"]]} {
  %0 = tgraph.rotary %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N5, N4], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// Convolution (no flip) of x[N, C, L] with w[O, C // groups, K]; gives [N, O, L'].
// CHECK-LABEL: tgraph.func @conv1d(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.transpose %x1 {axes = [0, 2, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.conv_windows %[[V0]], %x0 {stride = [1], dilation = [1], low = [0], high = [0], taps_first = true}
// CHECK-NEXT:  tgraph.return %[[V1]]
tgraph.func @conv1d(%x0: !tgraph.tensor<[N2, N3, N11], f32>, %x1: !tgraph.tensor<[N4, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N11 - N3)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv1d %x0, %x1 : (!tgraph.tensor<[N2, N3, N11], f32>, !tgraph.tensor<[N4, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N11 - N3 + 1], f32>) -> ()
}
// -----
// Convolution (no flip) of x[N, C, H, W] with w[O, C // groups, KH, KW]; gives [N, O, H', W'].
// CHECK-LABEL: tgraph.func @conv2d(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.transpose %x1 {axes = [0, 2, 3, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.conv_windows %[[V0]], %x0 {stride = [1, 1], dilation = [1, 1], low = [0, 0], high = [0, 0], taps_first = true}
// CHECK-NEXT:  tgraph.return %[[V1]]
tgraph.func @conv2d(%x0: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x1: !tgraph.tensor<[N4, N3, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(-N3 + N7, 0)>, dim<0>, "the op's rule"], [dim<min(-N3 + N8, 0)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv2d %x0, %x1 : (!tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N4, N3, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32>) -> ()
}
// -----
// The largest element of each window of the trailing axes; padding is never chosen, NaN propagates.
// CHECK-LABEL: tgraph.func @max_pool(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, 0], stop = [N2, N3, 2*(N6 floordiv 2) - 1, N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.slice %[[V0]] {start = [0, 0, 0, 0], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2) - 1], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, 0], stop = [N2, N3, 2*(N6 floordiv 2) - 1, N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.slice %[[V2]] {start = [0, 0, 0, 1], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2)], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 1, 0], stop = [N2, N3, 2*(N6 floordiv 2), N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.slice %[[V4]] {start = [0, 0, 0, 0], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2) - 1], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 1, 0], stop = [N2, N3, 2*(N6 floordiv 2), N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.slice %[[V6]] {start = [0, 0, 0, 1], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2)], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.maximum %[[V1]], %[[V3]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.maximum %[[V8]], %[[V5]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.maximum %[[V9]], %[[V7]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.broadcast_to %[[V10]] {shape = [N2, N3, (N6 floordiv 2), (N8 floordiv 2)]}
// CHECK-NEXT:  tgraph.return %[[V11]]
tgraph.func @max_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.max_pool %x0 {window = [2, 2]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// The mean of each window of the trailing axes, in f32 and rounded once.
// CHECK-LABEL: tgraph.func @avg_pool(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, 0], stop = [N2, N3, 2*(N6 floordiv 2) - 1, N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.slice %[[V0]] {start = [0, 0, 0, 0], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2) - 1], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 0, 0], stop = [N2, N3, 2*(N6 floordiv 2) - 1, N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.slice %[[V2]] {start = [0, 0, 0, 1], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2)], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 1, 0], stop = [N2, N3, 2*(N6 floordiv 2), N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.slice %[[V4]] {start = [0, 0, 0, 0], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2) - 1], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.slice %x0 {start = [0, 0, 1, 0], stop = [N2, N3, 2*(N6 floordiv 2), N8], step = [1, 1, 2, 1]}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.slice %[[V6]] {start = [0, 0, 0, 1], stop = [N2, N3, ((max(0, 2*(N6 floordiv 2) - 1) + 1) floordiv 2), 2*(N8 floordiv 2)], step = [1, 1, 1, 2]}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.add %[[V1]], %[[V3]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.add %[[V8]], %[[V5]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.add %[[V9]], %[[V7]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.full {value = 4.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.div %[[V10]], %[[V11]]
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.broadcast_to %[[V12]] {shape = [N2, N3, (N6 floordiv 2), (N8 floordiv 2)]}
// CHECK-NEXT:  tgraph.return %[[V13]]
tgraph.func @avg_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.avg_pool %x0 {window = [2, 2]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// Sum of products by an equation of axis labels, as in NumPy; operands are contracted from left to right.
// CHECK-LABEL: tgraph.func @einsum(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.dot_general %x0, %x1 {lhs_contract = [1], rhs_contract = [0], dtype = f32, segment = 
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @einsum(%x0: !tgraph.tensor<[N3, N4], f32>, %x1: !tgraph.tensor<[N4, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.einsum %x0, %x1 {equation = "ij,jk->ik"} : (!tgraph.tensor<[N3, N4], f32>, !tgraph.tensor<[N4, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// A result whose axes begin with those of the second operand: the operands change sides, and nothing is transposed.
// CHECK-LABEL: tgraph.func @einsum_sides(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.dot_general %x1, %x0 {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2, 1], rhs_contract = [2, 3], dtype = f32, segment = 
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @einsum_sides(%x0: !tgraph.tensor<[N2, N3, N4, N6], f32>, %x1: !tgraph.tensor<[N2, N6, N4, N5], f32>) -> !tgraph.tensor<[N2, N5, N3], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.einsum %x0, %x1 {equation = "bijl,bljk->bki"} : (!tgraph.tensor<[N2, N3, N4, N6], f32>, !tgraph.tensor<[N2, N6, N4, N5], f32>) -> !tgraph.tensor<[N2, N5, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N5, N3], f32>) -> ()
}
// -----
// x + y, `y` with dropout if asked for, in f32 and rounded once.
// CHECK-LABEL: tgraph.func @residual(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.add %x0, %x1
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @residual(%x0: !tgraph.tensor<[N3, N5], f32>, %x1: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.residual %x0, %x1 : (!tgraph.tensor<[N3, N5], f32>, !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// `x / scale` rounded to a narrow dtype; scales broadcast, or are one for each block of elements.
// CHECK-LABEL: tgraph.func @quantize(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.div %x0, %x1
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.round_to %[[V0]] {format = "i8"}
// CHECK-NEXT:  tgraph.return %[[V1]]
tgraph.func @quantize(%x0: !tgraph.tensor<[N6, N5], f32>, %x1: !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], i8> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.quantize %x0, %x1 {dtype = i8} : (!tgraph.tensor<[N6, N5], f32>, !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], i8>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], i8>) -> ()
}
// -----
// `q * scale` in f32, rounded to a float dtype; scales as those of `quantize`.
// CHECK-LABEL: tgraph.func @dequantize(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.cast %x0 {dtype = f32} : {{.*}} -> !tgraph.tensor<[N6, N5], f32>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.mul %[[V0]], %x1
// CHECK-NEXT:  tgraph.return %[[V1]]
tgraph.func @dequantize(%x0: !tgraph.tensor<[N6, N5], i8>, %x1: !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.dequantize %x0, %x1 : (!tgraph.tensor<[N6, N5], i8>, !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], f32>) -> ()
}
// -----
// The values as blocks of narrow numbers along an axis, each block with a scale, would keep them.
// CHECK-LABEL: tgraph.func @round_blocks(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.reshape %x0 {shape = [N5, (N48 floordiv 16), 16]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.abs %[[V0]]
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.max %[[V1]] {axes = [2], keepdims = true}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.full {value = 6.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.div %[[V2]], %[[V3]]
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.round_to %[[V4]] {format = "f8e4m3", saturation = "saturate"}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.cast %[[V5]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[N5, (N48 floordiv 16), 1], f32>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.div %[[V0]], %[[V6]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.round_to %[[V8]] {format = "f4e2m1", saturation = "saturate"}
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.eq %[[V6]], %[[V7]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.mul %[[V9]], %[[V6]]
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.where %[[V10]], %[[V7]], %[[V11]]
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.reshape %[[V12]] {shape = [N5, N48]}
// CHECK-NEXT:  tgraph.return %[[V13]]
tgraph.func @round_blocks(%x0: !tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32> attributes {names = ["x0"], guards = [[dim<16*(N48 floordiv 16)>, dim<N48>, "the op's rule"]]} {
  %0 = tgraph.round_blocks %x0 {axis = 1} : (!tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N48], f32>) -> ()
}
// -----
// A cache moved to a larger memory, to be prefetched later.
// CHECK-LABEL: tgraph.func @kv_offload(
// CHECK-NEXT:  tgraph.return %x0, %x1, %x2
tgraph.func @kv_offload(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_offload %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// A cache prefetched to a memory space before its use.
// CHECK-LABEL: tgraph.func @kv_prefetch(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.prefetch %x0
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.prefetch %x1
// CHECK-NEXT:  tgraph.return %[[V0]], %[[V1]], %x2
tgraph.func @kv_prefetch(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_prefetch %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// `x`, which its author promises is the same on all ranks of a mesh axis.
// CHECK-LABEL: tgraph.func @replicated(
// CHECK-NEXT:  tgraph.return %x0
tgraph.func @replicated(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.replicated %x0 {axis = "dp", size = [1]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// `x` in the dtype of another value.
// CHECK-LABEL: tgraph.func @cast_like(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.cast %x0 {dtype = bf16} : {{.*}} -> !tgraph.tensor<[N3, N5], bf16>
// CHECK-NEXT:  tgraph.return %[[V0]]
tgraph.func @cast_like(%x0: !tgraph.tensor<[N3, N5], f32>, %x1: !tgraph.tensor<[N2], bf16>) -> !tgraph.tensor<[N3, N5], bf16> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cast_like %x0, %x1 : (!tgraph.tensor<[N3, N5], f32>, !tgraph.tensor<[N2], bf16>) -> !tgraph.tensor<[N3, N5], bf16>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], bf16>) -> ()
}
