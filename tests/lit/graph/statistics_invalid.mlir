// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Reductions and norms: their axes, and floats where a mean is taken.

// CHECK: error[T0301]: `softmax_safe` needs a floating `x`, got bool
tgraph.func @softmax_safe(%x0: !tgraph.tensor<[N4, N16], bool>) -> !tgraph.tensor<[N4, N16], bool> attributes {names = ["x0"]} {
  %0 = tgraph.softmax_safe %x0 : (!tgraph.tensor<[N4, N16], bool>) -> !tgraph.tensor<[N4, N16], bool>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `log_softmax` needs a floating `x`, got bool
tgraph.func @log_softmax(%x0: !tgraph.tensor<[N4, N16], bool>) -> !tgraph.tensor<[N4, N16], bool> attributes {names = ["x0"]} {
  %0 = tgraph.log_softmax %x0 : (!tgraph.tensor<[N4, N16], bool>) -> !tgraph.tensor<[N4, N16], bool>
  tgraph.return %0 : (!tgraph.tensor<[N4, N16], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `logsumexp_safe` has no axis 9 on a value of rank 2
tgraph.func @logsumexp_safe(%x0: !tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp_safe %x0 {axes = [9]} : (!tgraph.tensor<[N4, N16], f32>) -> !tgraph.tensor<[N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `cross_entropy` needs a floating `logits`, got bool
tgraph.func @cross_entropy(%x0: !tgraph.tensor<[N7, N11], bool>, %x1: !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cross_entropy %x0, %x1 : (!tgraph.tensor<[N7, N11], bool>, !tgraph.tensor<[N7], i64>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `layernorm_safe` needs a floating `x`, got bool
tgraph.func @layernorm_safe(%x0: !tgraph.tensor<[N4, N48], bool>) -> !tgraph.tensor<[N4, N48], bool> attributes {names = ["x0"]} {
  %0 = tgraph.layernorm_safe %x0 : (!tgraph.tensor<[N4, N48], bool>) -> !tgraph.tensor<[N4, N48], bool>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `rmsnorm_safe` needs a floating `x`, got bool
tgraph.func @rmsnorm_safe(%x0: !tgraph.tensor<[N4, N48], bool>) -> !tgraph.tensor<[N4, N48], bool> attributes {names = ["x0"]} {
  %0 = tgraph.rmsnorm_safe %x0 : (!tgraph.tensor<[N4, N48], bool>) -> !tgraph.tensor<[N4, N48], bool>
  tgraph.return %0 : (!tgraph.tensor<[N4, N48], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `prod` has no axis 9 on a value of rank 1
tgraph.func @prod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.prod %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `min` has no axis 9 on a value of rank 1
tgraph.func @min(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.min %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `any` has no axis 9 on a value of rank 1
tgraph.func @any(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.any %x0 {axes = [9]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `all` has no axis 9 on a value of rank 1
tgraph.func @all(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.all %x0 {axes = [9]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `argmax` has no axis 9 on a value of rank 1
tgraph.func @argmax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmax %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK: error[T0301]: `argmin` has no axis 9 on a value of rank 1
tgraph.func @argmin(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmin %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK: error[T0301]: `mean` has no axis 9 on a value of rank 1
tgraph.func @mean(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.mean %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `var` has no axis 9 on a value of rank 1
tgraph.func @var(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.var %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `std` has no axis 9 on a value of rank 1
tgraph.func @std(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.std %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `logsumexp` has no axis 9 on a value of rank 1
tgraph.func @logsumexp(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logsumexp %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `norm` has no axis 9 on a value of rank 1
tgraph.func @norm(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.norm %x0 {axes = [9]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
