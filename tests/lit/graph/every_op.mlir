// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: tgraph.func @checkpoint_name(
// CHECK: tgraph.checkpoint_name{{.*}} {label = "a"}
tgraph.func @checkpoint_name(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.checkpoint_name %x0 {label = "a"} : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @attention_backward_keys(
// CHECK: tgraph.attention_backward_keys
tgraph.func @attention_backward_keys(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x3: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x4: !tgraph.tensor<[N2, N3, N5], f32>, %x5: !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.attention_backward_keys %x0, %x1, %x2, %x3, %x4, %x5 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv3d(
// CHECK: tgraph.conv3d
tgraph.func @conv3d(%x0: !tgraph.tensor<[N2, N3, N3, N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3, N2, N2, N3], f32>) -> !tgraph.tensor<[N2, N4, -N2 + N3 + 1, -N2 + N4 + 1, -N3 + N5 + 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(-N2 + N3, 0)>, dim<0>, "the op's rule"], [dim<min(-N2 + N4, 0)>, dim<0>, "the op's rule"], [dim<min(-N3 + N5, 0)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv3d %x0, %x1 : (!tgraph.tensor<[N2, N3, N3, N4, N5], f32>, !tgraph.tensor<[N4, N3, N2, N2, N3], f32>) -> !tgraph.tensor<[N2, N4, -N2 + N3 + 1, -N2 + N4 + 1, -N3 + N5 + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, -N2 + N3 + 1, -N2 + N4 + 1, -N3 + N5 + 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv_transpose1d(
// CHECK: tgraph.conv_transpose1d
tgraph.func @conv_transpose1d(%x0: !tgraph.tensor<[N2, N3, N5], f32>, %x1: !tgraph.tensor<[N3, N4, N3], f32>) -> !tgraph.tensor<[N2, N4, N3 + N5 - 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N3 + N5 - 1)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv_transpose1d %x0, %x1 : (!tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N3, N4, N3], f32>) -> !tgraph.tensor<[N2, N4, N3 + N5 - 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N3 + N5 - 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv_transpose2d(
// CHECK: tgraph.conv_transpose2d
tgraph.func @conv_transpose2d(%x0: !tgraph.tensor<[1, N3, N4, N3], f32>, %x1: !tgraph.tensor<[N3, N2, N3, N2], f32>) -> !tgraph.tensor<[1, N2, N3 + N4 - 1, N2 + N3 - 1], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N3 + N4 - 1)>, dim<0>, "the op's rule"], [dim<min(0, N2 + N3 - 1)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv_transpose2d %x0, %x1 : (!tgraph.tensor<[1, N3, N4, N3], f32>, !tgraph.tensor<[N3, N2, N3, N2], f32>) -> !tgraph.tensor<[1, N2, N3 + N4 - 1, N2 + N3 - 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, N2, N3 + N4 - 1, N2 + N3 - 1], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv_transpose3d(
// CHECK: tgraph.conv_transpose3d{{.*}} {stride = [1, 2, 2]}
tgraph.func @conv_transpose3d(%x0: !tgraph.tensor<[1, N2, N2, N3, N2], f32>, %x1: !tgraph.tensor<[N2, N2, N2, N2, N3], f32>) -> !tgraph.tensor<[1, N2, 2*N2 - 1, N2 + 2*N3 - 2, 2*N2 + N3 - 2], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, 2*N2 - 1)>, dim<0>, "the op's rule"], [dim<min(0, N2 + 2*N3 - 2)>, dim<0>, "the op's rule"], [dim<min(0, 2*N2 + N3 - 2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.conv_transpose3d %x0, %x1 {stride = [1, 2, 2]} : (!tgraph.tensor<[1, N2, N2, N3, N2], f32>, !tgraph.tensor<[N2, N2, N2, N2, N3], f32>) -> !tgraph.tensor<[1, N2, 2*N2 - 1, N2 + 2*N3 - 2, 2*N2 + N3 - 2], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, N2, 2*N2 - 1, N2 + 2*N3 - 2, 2*N2 + N3 - 2], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @conv_weights(
// CHECK: tgraph.conv_weights{{.*}} {taps = [3], stride = [2], dilation = [1], low = [1], high = [0]}
tgraph.func @conv_weights(%x0: !tgraph.tensor<[N2, N3, N4], f32>, %x1: !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N3, N2, 3], f32> attributes {names = ["x0", "x1"], guards = [[dim<N4>, dim<(N8 floordiv 2)>, "the op's rule"]]} {
  %0 = tgraph.conv_weights %x0, %x1 {taps = [3], stride = [2], dilation = [1], low = [1], high = [0]} : (!tgraph.tensor<[N2, N3, N4], f32>, !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N3, N2, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N2, 3], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @scored_attention_with_lse(
// CHECK: tgraph.scored_attention_with_lse
tgraph.func @scored_attention_with_lse(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1 = tgraph.scored_attention_with_lse %x0, %x1, %x2 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @scored_attention_tangent(
// CHECK: tgraph.scored_attention_tangent
tgraph.func @scored_attention_tangent(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x3: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x4: !tgraph.tensor<[N2, N3, N5], f32>, %x5: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x6: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x7: !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"]} {
  %0, %1 = tgraph.scored_attention_tangent %x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7 {mask = [["ge", [3, 4], none]], by = [0, 1, 2]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @scored_attention_backward(
// CHECK: tgraph.scored_attention_backward
tgraph.func @scored_attention_backward(%x0: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x1: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x2: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x3: !tgraph.tensor<[N2, N3, N5, N8], f32>, %x4: !tgraph.tensor<[N2, N3, N5], f32>, %x5: !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.scored_attention_backward %x0, %x1, %x2, %x3, %x4, %x5 {mask = [["ge", [3, 4], none]]} : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5], f32>, !tgraph.tensor<[N2, N3, N5], f32>) -> (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>, !tgraph.tensor<[N2, N3, N5, N8], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @log10(
// CHECK: tgraph.log10
tgraph.func @log10(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.log10 %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @asin(
// CHECK: tgraph.asin
tgraph.func @asin(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.asin %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @acos(
// CHECK: tgraph.acos
tgraph.func @acos(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.acos %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @atan(
// CHECK: tgraph.atan
tgraph.func @atan(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.atan %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @sinh(
// CHECK: tgraph.sinh
tgraph.func @sinh(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.sinh %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @cosh(
// CHECK: tgraph.cosh
tgraph.func @cosh(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cosh %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @asinh(
// CHECK: tgraph.asinh
tgraph.func @asinh(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.asinh %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @acosh(
// CHECK: tgraph.acosh
tgraph.func @acosh(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.acosh %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @atanh(
// CHECK: tgraph.atanh
tgraph.func @atanh(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.atanh %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @erfc(
// CHECK: tgraph.erfc
tgraph.func @erfc(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.erfc %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @hypot(
// CHECK: tgraph.hypot
tgraph.func @hypot(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.hypot %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @copysign(
// CHECK: tgraph.copysign
tgraph.func @copysign(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.copysign %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @population_count(
// CHECK: tgraph.population_count
tgraph.func @population_count(%x0: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0"]} {
  %0 = tgraph.population_count %x0 : (!tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @gcd(
// CHECK: tgraph.gcd
tgraph.func @gcd(%x0: !tgraph.tensor<[], i32>, %x1: !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gcd %x0, %x1 : (!tgraph.tensor<[], i32>, !tgraph.tensor<[], i32>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @slice_legal(
// CHECK: tgraph.slice_legal{{.*}} {axes = [0], lengths = [3]}
tgraph.func @slice_legal(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(0, N5 - 3)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.slice_legal %x0, %x1 {axes = [0], lengths = [3]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, N4], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @slice_write(
// CHECK: tgraph.slice_write{{.*}} {axes = [0]}
tgraph.func @slice_write(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N2, N4], f32>, %x2: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N5, N4], f32> attributes {names = ["x0", "x1", "x2"], guards = [[dim<min(-N2 + N5, 0)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.slice_write %x0, %x1, %x2 {axes = [0]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N2, N4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N5, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N4], f32>) -> ()
}
