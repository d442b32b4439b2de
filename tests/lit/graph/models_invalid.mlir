// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Parts of models and draws: what each asks of its operands and attributes.

// CHECK: error[T0301]: `split_qkv` cuts `x.shape[2] = N24` into 21 heads, which must fit: nothing says that N24 and 21*(N24 // 21) are equal
tgraph.func @split_qkv(%x0: !tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) attributes {names = ["x0"], guards = [[dim<N24>, dim<6*(N24 floordiv 6)>, "the op's rule"]]} {
  %0, %1, %2 = tgraph.split_qkv %x0 {heads = 7} : (!tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `rotary` needs a floating `x`, got bool
tgraph.func @rotary(%x0: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x1: !tgraph.tensor<[N5, N4], bool>, %x2: !tgraph.tensor<[N5, N4], bool>) -> !tgraph.tensor<[N2, N3, N5, N8], bool> attributes {names = ["x0", "x1", "x2"], guards = [[dim<N8>, dim<2*(N8 floordiv 2)>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"]]} {
  %0 = tgraph.rotary %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N5, N4], bool>, !tgraph.tensor<[N5, N4], bool>) -> !tgraph.tensor<[N2, N3, N5, N8], bool>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N5, N8], bool>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.io_callback` is !tgraph.tensor<[9], f32> by its shape rule, not !tgraph.tensor<[8], f32>
tgraph.func @io_callback(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {names = ["x"], tessera.effects = ["io"]} {
  %0 = tgraph.io_callback %x {slot = 0, shapes = [[9]], dtypes = [f32], function = "negative"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `replicated`: mesh axis `dp` has 0 ranks
tgraph.func @replicated(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.replicated %x0 {axis = "dp", size = [0]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv1d` needs numbers, got bool
tgraph.func @conv1d(%x0: !tgraph.tensor<[N2, N3, N11], bool>, %x1: !tgraph.tensor<[N4, N3, N3], bool>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], bool> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N11 - N3)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv1d %x0, %x1 : (!tgraph.tensor<[N2, N3, N11], bool>, !tgraph.tensor<[N4, N3, N3], bool>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], bool>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N11 - N3 + 1], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `conv2d` needs numbers, got bool
tgraph.func @conv2d(%x0: !tgraph.tensor<[N2, N3, N7, N8], bool>, %x1: !tgraph.tensor<[N4, N3, N3, N3], bool>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], bool> attributes {names = ["x0", "x1"], guards = [[dim<min(-N3 + N7, 0)>, dim<0>, "the op's rule"], [dim<min(-N3 + N8, 0)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv2d %x0, %x1 : (!tgraph.tensor<[N2, N3, N7, N8], bool>, !tgraph.tensor<[N4, N3, N3, N3], bool>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], bool>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `max_pool` has a window of 9 on an axis of N6: it does not fit: nothing says that min(0, N6 - 9) and 0 are equal
tgraph.func @max_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.max_pool %x0 {window = [9, 9]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `avg_pool` has a window of 9 on an axis of N6: it does not fit: nothing says that min(0, N6 - 9) and 0 are equal
tgraph.func @avg_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.avg_pool %x0 {window = [9, 9]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `einsum` cannot multiply bool, bool
tgraph.func @einsum(%x0: !tgraph.tensor<[N3, N4], bool>, %x1: !tgraph.tensor<[N4, N5], bool>) -> !tgraph.tensor<[N3, N5], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.einsum %x0, %x1 {equation = "ij,jk->ik"} : (!tgraph.tensor<[N3, N4], bool>, !tgraph.tensor<[N4, N5], bool>) -> !tgraph.tensor<[N3, N5], bool>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.cast_like` is !tgraph.tensor<[N3, N5], f32> by its shape rule, not !tgraph.tensor<[N3, N5], i32>
tgraph.func @cast_like(%x0: !tgraph.tensor<[N3, N5], f32>, %x1: !tgraph.tensor<[N2], f32>) -> !tgraph.tensor<[N3, N5], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cast_like %x0, %x1 : (!tgraph.tensor<[N3, N5], f32>, !tgraph.tensor<[N2], f32>) -> !tgraph.tensor<[N3, N5], i32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `quantize` needs a floating `x`, got bool
tgraph.func @quantize(%x0: !tgraph.tensor<[N6, N5], bool>, %x1: !tgraph.tensor<[1, N5], bool>) -> !tgraph.tensor<[N6, N5], i8> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.quantize %x0, %x1 {dtype = i8} : (!tgraph.tensor<[N6, N5], bool>, !tgraph.tensor<[1, N5], bool>) -> !tgraph.tensor<[N6, N5], i8>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], i8>) -> ()
}
// -----
// CHECK: error[T0301]: `dequantize` needs a floating `scale`, got bool
tgraph.func @dequantize(%x0: !tgraph.tensor<[N6, N5], i8>, %x1: !tgraph.tensor<[1, N5], bool>) -> !tgraph.tensor<[N6, N5], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.dequantize %x0, %x1 : (!tgraph.tensor<[N6, N5], i8>, !tgraph.tensor<[1, N5], bool>) -> !tgraph.tensor<[N6, N5], bool>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `round_blocks` has no axis 7 on a value of rank 2
tgraph.func @round_blocks(%x0: !tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32> attributes {names = ["x0"], guards = [[dim<16*(N48 floordiv 16)>, dim<N48>, "the op's rule"]]} {
  %0 = tgraph.round_blocks %x0 {axis = 7} : (!tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N48], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.random_bits` is !tgraph.tensor<[9, 9], u32> by its shape rule, not !tgraph.tensor<[3, 5], u32>
tgraph.func @random_bits(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32> attributes {names = ["x0"]} {
  %0 = tgraph.random_bits %x0 {shape = [9, 9]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], u32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.uniform` is !tgraph.tensor<[9, 9], f32> by its shape rule, not !tgraph.tensor<[7, 13], f32>
tgraph.func @uniform(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.uniform %x0 {shape = [9, 9]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.normal` is !tgraph.tensor<[9, 9], f32> by its shape rule, not !tgraph.tensor<[7, 13], f32>
tgraph.func @normal(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.normal %x0 {shape = [9, 9]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.bernoulli` is !tgraph.tensor<[9, 9], bool> by its shape rule, not !tgraph.tensor<[7, 13], bool>
tgraph.func @bernoulli(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool> attributes {names = ["x0"]} {
  %0 = tgraph.bernoulli %x0 {shape = [9, 9]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `fold_key` needs integer `data`, got f32
tgraph.func @fold_key(%x0: !tgraph.tensor<[2], u64>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[2], u64> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.fold_key %x0, %x1 : (!tgraph.tensor<[2], u64>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[2], u64>
  tgraph.return %0 : (!tgraph.tensor<[2], u64>) -> ()
}
// -----
// CHECK: error[T0301]: `residual` needs a floating `x`, got bool
tgraph.func @residual(%x0: !tgraph.tensor<[N3, N5], bool>, %x1: !tgraph.tensor<[N3, N5], bool>) -> !tgraph.tensor<[N3, N5], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.residual %x0, %x1 : (!tgraph.tensor<[N3, N5], bool>, !tgraph.tensor<[N3, N5], bool>) -> !tgraph.tensor<[N3, N5], bool>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `kv_offload` needs `length` as one i64, got [] f32
tgraph.func @kv_offload(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_offload %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `kv_prefetch` needs `length` as one i64, got [] f32
tgraph.func @kv_prefetch(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_prefetch %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], f32>) -> ()
}
