// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: tgraph.func @stack(
// CHECK: tgraph.stack{{.*}} {axis = 0}
tgraph.func @stack(%x0: !tgraph.tensor<[N3], f32>, %x1: !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.stack %x0, %x1 {axis = 0} : (!tgraph.tensor<[N3], f32>, !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, N3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @pad(
// CHECK: tgraph.pad{{.*}} {low = [2], high = [1]}
tgraph.func @pad(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32> attributes {names = ["x0"]} {
  %0 = tgraph.pad %x0 {low = [2], high = [1]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5 + 3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention(
// CHECK: tgraph.attention
tgraph.func @attention(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.attention %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cached_attention(
// CHECK: tgraph.cached_attention
tgraph.func @cached_attention(%x0: !tgraph.tensor<[N2, N4, N3, N8], f32>, %x1: !tgraph.tensor<[N2, N2, N9, N8], f32>, %x2: !tgraph.tensor<[N2, N2, N9, N8], f32>, %x3: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32> attributes {names = ["x0", "x1", "x2", "x3"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.cached_attention %x0, %x1, %x2, %x3 : (!tgraph.tensor<[N2, N4, N3, N8], f32>, !tgraph.tensor<[N2, N2, N9, N8], f32>, !tgraph.tensor<[N2, N2, N9, N8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N3, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @split_qkv(
// CHECK: tgraph.split_qkv{{.*}} {heads = 2}
tgraph.func @split_qkv(%x0: !tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) attributes {names = ["x0"], guards = [[dim<N24>, dim<6*(N24 floordiv 6)>, "the op's rule"]]} {
  %0, %1, %2 = tgraph.split_qkv %x0 {heads = 2} : (!tgraph.tensor<[N2, N5, N24], f32>) -> (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>, !tgraph.tensor<[N2, 2, N5, (N24 floordiv 6)], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @rotary(
// CHECK: tgraph.rotary
tgraph.func @rotary(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N5, N4], f32>, %x2: !tgraph.tensor<[N5, N4], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32> attributes {names = ["x0", "x1", "x2"], guards = [[dim<N8>, dim<2*(N8 floordiv 2)>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"], [dim<(N8 floordiv 2)>, dim<N4>, "the op's rule"]]} {
  %0 = tgraph.rotary %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N5, N4], f32>) -> !tgraph.tensor<[N2, N3, N5, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @all_gather(
// CHECK: tgraph.all_gather{{.*}} {axis = "dp", size = [1]}
tgraph.func @all_gather(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.all_gather %x0 {axis = "dp", size = [1]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @reduce_scatter(
// CHECK: tgraph.reduce_scatter{{.*}} {axis = "dp", size = [1]}
tgraph.func @reduce_scatter(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.reduce_scatter %x0 {axis = "dp", size = [1]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @all_to_all(
// CHECK: tgraph.all_to_all{{.*}} {axis = "dp", size = [1]}
tgraph.func @all_to_all(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.all_to_all %x0 {axis = "dp", size = [1]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @replicated(
// CHECK: tgraph.replicated{{.*}} {axis = "dp", size = [1]}
tgraph.func @replicated(%x0: !tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0"]} {
  %0 = tgraph.replicated %x0 {axis = "dp", size = [1]} : (!tgraph.tensor<[N4, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @residual(
// CHECK: tgraph.residual
tgraph.func @residual(%x0: !tgraph.tensor<[N3, N5], f32>, %x1: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.residual %x0, %x1 : (!tgraph.tensor<[N3, N5], f32>, !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cast_like(
// CHECK: tgraph.cast_like
tgraph.func @cast_like(%x0: !tgraph.tensor<[N3, N5], f32>, %x1: !tgraph.tensor<[N2], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cast_like %x0, %x1 : (!tgraph.tensor<[N3, N5], f32>, !tgraph.tensor<[N2], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @dot_general(
// CHECK: tgraph.dot_general{{.*}} {lhs_contract = [1], rhs_contract = [0]}
tgraph.func @dot_general(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N5, N6], f32>) -> !tgraph.tensor<[N4, N6], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.dot_general %x0, %x1 {lhs_contract = [1], rhs_contract = [0]} : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N5, N6], f32>) -> !tgraph.tensor<[N4, N6], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N6], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv1d(
// CHECK: tgraph.conv1d
tgraph.func @conv1d(%x0: !tgraph.tensor<[N2, N3, N11], f32>, %x1: !tgraph.tensor<[N4, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N11 - N3)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv1d %x0, %x1 : (!tgraph.tensor<[N2, N3, N11], f32>, !tgraph.tensor<[N4, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, N11 - N3 + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N11 - N3 + 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv2d(
// CHECK: tgraph.conv2d
tgraph.func @conv2d(%x0: !tgraph.tensor<[N2, N3, N7, N8], f32>, %x1: !tgraph.tensor<[N4, N3, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(-N3 + N7, 0)>, dim<0>, "the op's rule"], [dim<min(-N3 + N8, 0)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv2d %x0, %x1 : (!tgraph.tensor<[N2, N3, N7, N8], f32>, !tgraph.tensor<[N4, N3, N3, N3], f32>) -> !tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, -N3 + N7 + 1, -N3 + N8 + 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv_windows(
// CHECK: tgraph.conv_windows{{.*}} {stride = [2], dilation = [1], low = [1], high = [0]}
tgraph.func @conv_windows(%x0: !tgraph.tensor<[N3, N2, N3], f32>, %x1: !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.conv_windows %x0, %x1 {stride = [2], dilation = [1], low = [1], high = [0]} : (!tgraph.tensor<[N3, N2, N3], f32>, !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @iota(
// CHECK: tgraph.iota{{.*}} {shape = [7], axis = 0, dtype = f32}
tgraph.func @iota() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.iota {shape = [7], axis = 0, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @eye(
// CHECK: tgraph.eye{{.*}} {shape = [5, 5], dtype = f32}
tgraph.func @eye() -> !tgraph.tensor<[5, 5], f32> {
  %0 = tgraph.eye {shape = [5, 5], dtype = f32} : () -> !tgraph.tensor<[5, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @linspace(
// CHECK: tgraph.linspace{{.*}} {start = -1.0, stop = 2.0, num = 7, dtype = f32}
tgraph.func @linspace() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.linspace {start = -1.0, stop = 2.0, num = 7, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @dim_size(
// CHECK: tgraph.dim_size{{.*}} {dims = [7]}
tgraph.func @dim_size() -> !tgraph.tensor<[], i64> {
  %0 = tgraph.dim_size {dims = [7]} : () -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @tril(
// CHECK: tgraph.tril
tgraph.func @tril(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tril %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @triu(
// CHECK: tgraph.triu
tgraph.func @triu(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.triu %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cumulative(
// CHECK: tgraph.cumulative{{.*}} {kind = "sum", axis = 0}
tgraph.func @cumulative(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumulative %x0 {kind = "sum", axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cumsum(
// CHECK: tgraph.cumsum{{.*}} {axis = 0}
tgraph.func @cumsum(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumsum %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cumprod(
// CHECK: tgraph.cumprod{{.*}} {axis = 0}
tgraph.func @cumprod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumprod %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cummax(
// CHECK: tgraph.cummax{{.*}} {axis = 0}
tgraph.func @cummax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cummax %x0 {axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @diagonal(
// CHECK: tgraph.diagonal
tgraph.func @diagonal(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.diagonal %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @einsum(
// CHECK: tgraph.einsum{{.*}} {equation = "ij,jk->ik"}
tgraph.func @einsum(%x0: !tgraph.tensor<[N3, N4], f32>, %x1: !tgraph.tensor<[N4, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.einsum %x0, %x1 {equation = "ij,jk->ik"} : (!tgraph.tensor<[N3, N4], f32>, !tgraph.tensor<[N4, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @abs(
// CHECK: tgraph.abs
tgraph.func @abs(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.abs %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sign(
// CHECK: tgraph.sign
tgraph.func @sign(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sign %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @exp2(
// CHECK: tgraph.exp2
tgraph.func @exp2(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.exp2 %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @expm1(
// CHECK: tgraph.expm1
tgraph.func @expm1(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.expm1 %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @log(
// CHECK: tgraph.log
tgraph.func @log(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @log2(
// CHECK: tgraph.log2
tgraph.func @log2(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log2 %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @log1p(
// CHECK: tgraph.log1p
tgraph.func @log1p(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log1p %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sqrt(
// CHECK: tgraph.sqrt
tgraph.func @sqrt(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sqrt %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @rsqrt(
// CHECK: tgraph.rsqrt
tgraph.func @rsqrt(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.rsqrt %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @reciprocal(
// CHECK: tgraph.reciprocal
tgraph.func @reciprocal(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.reciprocal %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sin(
// CHECK: tgraph.sin
tgraph.func @sin(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sin %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cos(
// CHECK: tgraph.cos
tgraph.func @cos(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cos %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @tan(
// CHECK: tgraph.tan
tgraph.func @tan(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tan %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sigmoid(
// CHECK: tgraph.sigmoid
tgraph.func @sigmoid(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sigmoid %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @erf(
// CHECK: tgraph.erf
tgraph.func @erf(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.erf %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @silu(
// CHECK: tgraph.silu
tgraph.func @silu(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.silu %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @softplus(
// CHECK: tgraph.softplus
tgraph.func @softplus(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.softplus %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @floor(
// CHECK: tgraph.floor
tgraph.func @floor(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.floor %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @ceil(
// CHECK: tgraph.ceil
tgraph.func @ceil(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.ceil %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @round(
// CHECK: tgraph.round
tgraph.func @round(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.round %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @trunc(
// CHECK: tgraph.trunc
tgraph.func @trunc(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.trunc %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @isnan(
// CHECK: tgraph.isnan
tgraph.func @isnan(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isnan %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @isinf(
// CHECK: tgraph.isinf
tgraph.func @isinf(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isinf %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logical_not(
// CHECK: tgraph.logical_not
tgraph.func @logical_not(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.logical_not %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bitwise_not(
// CHECK: tgraph.bitwise_not
tgraph.func @bitwise_not(%x0: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitwise_not %x0 : (!tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @gelu(
// CHECK: tgraph.gelu
tgraph.func @gelu(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.gelu %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @mul(
// CHECK: tgraph.mul
tgraph.func @mul(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.mul %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @floordiv(
// CHECK: tgraph.floordiv
tgraph.func @floordiv(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.floordiv %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @mod(
// CHECK: tgraph.mod
tgraph.func @mod(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.mod %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @pow(
// CHECK: tgraph.pow
tgraph.func @pow(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.pow %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @atan2(
// CHECK: tgraph.atan2
tgraph.func @atan2(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.atan2 %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @maximum(
// CHECK: tgraph.maximum
tgraph.func @maximum(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.maximum %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @minimum(
// CHECK: tgraph.minimum
tgraph.func @minimum(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.minimum %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @ne(
// CHECK: tgraph.ne
tgraph.func @ne(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ne %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @le(
// CHECK: tgraph.le
tgraph.func @le(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.le %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @gt(
// CHECK: tgraph.gt
tgraph.func @gt(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gt %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @ge(
// CHECK: tgraph.ge
tgraph.func @ge(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ge %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logical_and(
// CHECK: tgraph.logical_and
tgraph.func @logical_and(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_and %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logical_or(
// CHECK: tgraph.logical_or
tgraph.func @logical_or(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_or %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logical_xor(
// CHECK: tgraph.logical_xor
tgraph.func @logical_xor(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_xor %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bitwise_and(
// CHECK: tgraph.bitwise_and
tgraph.func @bitwise_and(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_and %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bitwise_or(
// CHECK: tgraph.bitwise_or
tgraph.func @bitwise_or(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_or %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bitwise_xor(
// CHECK: tgraph.bitwise_xor
tgraph.func @bitwise_xor(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_xor %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @shift_left(
// CHECK: tgraph.shift_left
tgraph.func @shift_left(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_left %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @shift_right(
// CHECK: tgraph.shift_right
tgraph.func @shift_right(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_right %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @fused(
// CHECK: tgraph.fused
tgraph.func @fused(%x: !tgraph.tensor<[4, 8], f32>, %w: !tgraph.tensor<[8, 16], f32>, %b: !tgraph.tensor<[16], f32>) -> !tgraph.tensor<[4, 16], f32> attributes {names = ["x", "w", "b"]} {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[8, 16], f32>) -> !tgraph.tensor<[4, 16], f32>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[4, 16], f32>, !tgraph.tensor<[16], f32>) -> !tgraph.tensor<[4, 16], f32>
  %2 = tgraph.fused %1, %0 : (!tgraph.tensor<[4, 16], f32>, !tgraph.tensor<[4, 16], f32>) -> !tgraph.tensor<[4, 16], f32>
  tgraph.return %2 : (!tgraph.tensor<[4, 16], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @index_legal(
// CHECK: tgraph.index_legal{{.*}} {axes = [0]}
tgraph.func @index_legal(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.index_legal %x0, %x1 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @index_get(
// CHECK: tgraph.index_get{{.*}} {axes = [0]}
tgraph.func @index_get(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.index_get %x0, %x1 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @take(
// CHECK: tgraph.take
tgraph.func @take(%x0: !tgraph.tensor<[N5, N7], f32>, %x1: !tgraph.tensor<[N4], i64>) -> !tgraph.tensor<[N4, N7], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take %x0, %x1 : (!tgraph.tensor<[N5, N7], f32>, !tgraph.tensor<[N4], i64>) -> !tgraph.tensor<[N4, N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @embedding(
// CHECK: tgraph.embedding
tgraph.func @embedding(%x0: !tgraph.tensor<[N7, N16], f32>, %x1: !tgraph.tensor<[N2, N5], i64>) -> !tgraph.tensor<[N2, N5, N16], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.embedding %x0, %x1 : (!tgraph.tensor<[N7, N16], f32>, !tgraph.tensor<[N2, N5], i64>) -> !tgraph.tensor<[N2, N5, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N5, N16], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @gather(
// CHECK: tgraph.gather
tgraph.func @gather(%x0: !tgraph.tensor<[5, 6], f32>, %x1: !tgraph.tensor<[4, 2], i64>) -> !tgraph.tensor<[4], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gather %x0, %x1 : (!tgraph.tensor<[5, 6], f32>, !tgraph.tensor<[4, 2], i64>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @take_along_legal(
// CHECK: tgraph.take_along_legal
tgraph.func @take_along_legal(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_legal %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @take_along_axis(
// CHECK: tgraph.take_along_axis
tgraph.func @take_along_axis(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_axis %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], i64>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @one_hot(
// CHECK: tgraph.one_hot{{.*}} {depth = [7]}
tgraph.func @one_hot(%x0: !tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.one_hot %x0 {depth = [7]} : (!tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N5, 7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @broadcast_to(
// CHECK: tgraph.broadcast_to{{.*}} {shape = [3, 5]}
tgraph.func @broadcast_to(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.broadcast_to %x0 {shape = [3, 5]} : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @expand_dims(
// CHECK: tgraph.expand_dims{{.*}} {axes = [0]}
tgraph.func @expand_dims(%x0: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.expand_dims %x0 {axes = [0]} : (!tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @squeeze(
// CHECK: tgraph.squeeze{{.*}} {axes = [0]}
tgraph.func @squeeze(%x0: !tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.squeeze %x0 {axes = [0]} : (!tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @layernorm_safe(
// CHECK: tgraph.layernorm_safe
tgraph.func @layernorm_safe(%x0: !tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32> attributes {names = ["x0"]} {
  %0 = tgraph.layernorm_safe %x0 : (!tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @rmsnorm_safe(
// CHECK: tgraph.rmsnorm_safe
tgraph.func @rmsnorm_safe(%x0: !tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32> attributes {names = ["x0"]} {
  %0 = tgraph.rmsnorm_safe %x0 : (!tgraph.tensor<[N4, N48], f32>) -> !tgraph.tensor<[N4, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @io_callback(
// CHECK: tgraph.io_callback
tgraph.func @io_callback(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {names = ["x"], tessera.effects = ["io"]} {
  %0 = tgraph.io_callback %x {slot = 0, shapes = [[8]], dtypes = [f32], function = "negative"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @max_pool(
// CHECK: tgraph.max_pool{{.*}} {window = [2, 2]}
tgraph.func @max_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.max_pool %x0 {window = [2, 2]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @avg_pool(
// CHECK: tgraph.avg_pool{{.*}} {window = [2, 2]}
tgraph.func @avg_pool(%x0: !tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32> attributes {names = ["x0"], guards = [[dim<min(0, N6 - 2)>, dim<0>, "the op's rule"], [dim<min(0, N8 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.avg_pool %x0 {window = [2, 2]} : (!tgraph.tensor<[N2, N3, N6, N8], f32>) -> !tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, (N6 floordiv 2), (N8 floordiv 2)], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @round_stochastic(
// CHECK: tgraph.round_stochastic{{.*}} {format = "bf16"}
tgraph.func @round_stochastic(%x0: !tgraph.tensor<[N323], f32>, %x1: !tgraph.tensor<[N323], u32>) -> !tgraph.tensor<[N323], bf16> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.round_stochastic %x0, %x1 {format = "bf16"} : (!tgraph.tensor<[N323], f32>, !tgraph.tensor<[N323], u32>) -> !tgraph.tensor<[N323], bf16>
  tgraph.return %0 : (!tgraph.tensor<[N323], bf16>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @quantize(
// CHECK: tgraph.quantize{{.*}} {dtype = i8}
tgraph.func @quantize(%x0: !tgraph.tensor<[N6, N5], f32>, %x1: !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], i8> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.quantize %x0, %x1 {dtype = i8} : (!tgraph.tensor<[N6, N5], f32>, !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], i8>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], i8>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @dequantize(
// CHECK: tgraph.dequantize
tgraph.func @dequantize(%x0: !tgraph.tensor<[N6, N5], i8>, %x1: !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.dequantize %x0, %x1 : (!tgraph.tensor<[N6, N5], i8>, !tgraph.tensor<[1, N5], f32>) -> !tgraph.tensor<[N6, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N6, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @round_blocks(
// CHECK: tgraph.round_blocks{{.*}} {axis = 1}
tgraph.func @round_blocks(%x0: !tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32> attributes {names = ["x0"], guards = [[dim<16*(N48 floordiv 16)>, dim<N48>, "the op's rule"]]} {
  %0 = tgraph.round_blocks %x0 {axis = 1} : (!tgraph.tensor<[N5, N48], f32>) -> !tgraph.tensor<[N5, N48], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N48], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @philox(
// CHECK: tgraph.philox
tgraph.func @philox(%x0: !tgraph.tensor<[N3, N37], u64>, %x1: !tgraph.tensor<[], u64>, %x2: !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], u64> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.philox %x0, %x1, %x2 : (!tgraph.tensor<[N3, N37], u64>, !tgraph.tensor<[], u64>, !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], u64>
  tgraph.return %0 : (!tgraph.tensor<[N3, N37], u64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @random_bits(
// CHECK: tgraph.random_bits{{.*}} {shape = [3, 5]}
tgraph.func @random_bits(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32> attributes {names = ["x0"]} {
  %0 = tgraph.random_bits %x0 {shape = [3, 5]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], u32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @uniform(
// CHECK: tgraph.uniform{{.*}} {shape = [7, 13]}
tgraph.func @uniform(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.uniform %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @normal(
// CHECK: tgraph.normal{{.*}} {shape = [7, 13]}
tgraph.func @normal(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.normal %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bernoulli(
// CHECK: tgraph.bernoulli{{.*}} {shape = [7, 13]}
tgraph.func @bernoulli(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool> attributes {names = ["x0"]} {
  %0 = tgraph.bernoulli %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @fold_key(
// CHECK: tgraph.fold_key
tgraph.func @fold_key(%x0: !tgraph.tensor<[2], u64>, %x1: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[2], u64> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.fold_key %x0, %x1 : (!tgraph.tensor<[2], u64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[2], u64>
  tgraph.return %0 : (!tgraph.tensor<[2], u64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @prod(
// CHECK: tgraph.prod{{.*}} {axes = [0]}
tgraph.func @prod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.prod %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @min(
// CHECK: tgraph.min{{.*}} {axes = [0]}
tgraph.func @min(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.min %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @any(
// CHECK: tgraph.any{{.*}} {axes = [0]}
tgraph.func @any(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.any %x0 {axes = [0]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @all(
// CHECK: tgraph.all{{.*}} {axes = [0]}
tgraph.func @all(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.all %x0 {axes = [0]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @argmax(
// CHECK: tgraph.argmax{{.*}} {axes = [0]}
tgraph.func @argmax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmax %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @argmin(
// CHECK: tgraph.argmin{{.*}} {axes = [0]}
tgraph.func @argmin(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmin %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @scatter(
// CHECK: tgraph.scatter
tgraph.func @scatter(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N7], i64>, %x2: !tgraph.tensor<[N7, N4], f32>) -> !tgraph.tensor<[N5, N4], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.scatter %x0, %x1, %x2 : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N7], i64>, !tgraph.tensor<[N7, N4], f32>) -> !tgraph.tensor<[N5, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @scatter_rows(
// CHECK: tgraph.scatter_rows{{.*}} {mode = "set"}
tgraph.func @scatter_rows(%x0: !tgraph.tensor<[N2, N5, N3], f32>, %x1: !tgraph.tensor<[N2, N4, N3], f32>, %x2: !tgraph.tensor<[N4], i64>) -> !tgraph.tensor<[N2, N5, N3], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.scatter_rows %x0, %x1, %x2 {mode = "set"} : (!tgraph.tensor<[N2, N5, N3], f32>, !tgraph.tensor<[N2, N4, N3], f32>, !tgraph.tensor<[N4], i64>) -> !tgraph.tensor<[N2, N5, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N5, N3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @where(
// CHECK: tgraph.where
tgraph.func @where(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], f32>, %x2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.where %x0, %x1, %x2 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @clamp(
// CHECK: tgraph.clamp
tgraph.func @clamp(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>, %x2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.clamp %x0, %x1, %x2 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @bitcast(
// CHECK: tgraph.bitcast{{.*}} {dtype = i32, source = f32}
tgraph.func @bitcast(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitcast %x0 {dtype = i32, source = f32} : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @roll(
// CHECK: tgraph.roll{{.*}} {shifts = [2], axes = [0]}
tgraph.func @roll(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.roll %x0 {shifts = [2], axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @tile(
// CHECK: tgraph.tile{{.*}} {reps = [3]}
tgraph.func @tile(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tile %x0 {reps = [3]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @repeat(
// CHECK: tgraph.repeat{{.*}} {repeats = 3, axis = 0}
tgraph.func @repeat(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.repeat %x0 {repeats = 3, axis = 0} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @softmax_safe(
// CHECK: tgraph.softmax_safe
tgraph.func @softmax_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32> attributes {names = ["x0"]} {
  %0 = tgraph.softmax_safe %x0 : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @log_softmax(
// CHECK: tgraph.log_softmax
tgraph.func @log_softmax(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log_softmax %x0 : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4, N16], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logsumexp_safe(
// CHECK: tgraph.logsumexp_safe{{.*}} {axes = [1]}
tgraph.func @logsumexp_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp_safe %x0 {axes = [1]} : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cross_entropy(
// CHECK: tgraph.cross_entropy
tgraph.func @cross_entropy(%x0: !tgraph.tensor<[N7, N11], f32>, %x1: !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cross_entropy %x0, %x1 : (!tgraph.tensor<[N7, N11], f32>, !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sort(
// CHECK: tgraph.sort
tgraph.func @sort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @argsort(
// CHECK: tgraph.argsort
tgraph.func @argsort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i64> attributes {names = ["x0"]} {
  %0 = tgraph.argsort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i64>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @topk(
// CHECK: tgraph.topk{{.*}} {k = 5}
tgraph.func @topk(%x0: !tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) attributes {names = ["x0"], guards = [[dim<min(0, N17 - 5)>, dim<0>, "the op's rule"]]} {
  %0, %1 = tgraph.topk %x0 {k = 5} : (!tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sort_rows(
// CHECK: tgraph.sort_rows
tgraph.func @sort_rows(%x0: !tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>) attributes {names = ["x0"]} {
  %0, %1 = tgraph.sort_rows %x0 : (!tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @kv_offload(
// CHECK: tgraph.kv_offload
tgraph.func @kv_offload(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_offload %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @kv_prefetch(
// CHECK: tgraph.kv_prefetch
tgraph.func @kv_prefetch(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x2: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1, %2 = tgraph.kv_prefetch %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @mean(
// CHECK: tgraph.mean{{.*}} {axes = [0]}
tgraph.func @mean(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.mean %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @var(
// CHECK: tgraph.var{{.*}} {axes = [0]}
tgraph.func @var(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.var %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @std(
// CHECK: tgraph.std{{.*}} {axes = [0]}
tgraph.func @std(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.std %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @logsumexp(
// CHECK: tgraph.logsumexp{{.*}} {axes = [0]}
tgraph.func @logsumexp(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @norm(
// CHECK: tgraph.norm{{.*}} {axes = [0]}
tgraph.func @norm(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.norm %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention_with_lse(
// CHECK: tgraph.attention_with_lse
tgraph.func @attention_with_lse(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1 = tgraph.attention_with_lse %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention_parts(
// CHECK: tgraph.attention_parts{{.*}} {keys = 4}
tgraph.func @attention_parts(%x0: !tgraph.tensor<[N2, N4, 1, N8], f32>, %x1: !tgraph.tensor<[N2, N2, N8, N8], f32>, %x2: !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) attributes {names = ["x0", "x1", "x2"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0, %1 = tgraph.attention_parts %x0, %x1, %x2 {keys = 4} : (!tgraph.tensor<[N2, N4, 1, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention_join(
// CHECK: tgraph.attention_join{{.*}} {dtype = f32}
tgraph.func @attention_join(%x0: !tgraph.tensor<[N2, N3, N3, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N3], f32>) -> !tgraph.tensor<[N2, N3, 1, N8], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.attention_join %x0, %x1 {dtype = f32} : (!tgraph.tensor<[N2, N3, N3, N8], f32>, !tgraph.tensor<[N2, N3, N3], f32>) -> !tgraph.tensor<[N2, N3, 1, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, 1, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @kv_write(
// CHECK: tgraph.kv_write
tgraph.func @kv_write(%x0: !tgraph.tensor<[N2, N3, N7, N4], f32>, %x1: !tgraph.tensor<[], i64>, %x2: !tgraph.tensor<[N2, N3, N1, N4], f32>) -> !tgraph.tensor<[N2, N3, N7, N4], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.kv_write %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N7, N4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[N2, N3, N1, N4], f32>) -> !tgraph.tensor<[N2, N3, N7, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, N7, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @index_put(
// CHECK: tgraph.index_put{{.*}} {axes = [0]}
tgraph.func @index_put(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N9, N4], f32>, %x2: !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.index_put %x0, %x1, %x2 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N9, N4], f32>, !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @stop_gradient(
// CHECK: tgraph.stop_gradient
tgraph.func @stop_gradient(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.stop_gradient %x0 : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
