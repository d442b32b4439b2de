// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Indices are integers, one for each axis that they go along.

// CHECK: error[T0301]: `cumsum` has no axis 7 on a value of rank 1
tgraph.func @cumsum(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumsum %x0 {axis = 7} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `cumprod` has no axis 7 on a value of rank 1
tgraph.func @cumprod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumprod %x0 {axis = 7} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `cummax` has no axis 7 on a value of rank 1
tgraph.func @cummax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cummax %x0 {axis = 7} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `index_get` has no axis 9 on a value of rank 2
tgraph.func @index_get(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.index_get %x0, %x1 {axes = [9]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N3], i64>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `gather` needs integer `indices`, got f32
tgraph.func @gather(%x0: !tgraph.tensor<[5, 6], f32>, %x1: !tgraph.tensor<[4, 2], f32>) -> !tgraph.tensor<[4], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gather %x0, %x1 : (!tgraph.tensor<[5, 6], f32>, !tgraph.tensor<[4, 2], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `take_along_axis` needs integer `indices`, got f32
tgraph.func @take_along_axis(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], f32>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_axis %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], f32>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `one_hot` needs one depth, got 2
tgraph.func @one_hot(%x0: !tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.one_hot %x0 {depth = [7, 0]} : (!tgraph.tensor<[N4, N5], i32>) -> !tgraph.tensor<[N4, N5, 7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N5, 7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `index_put` has no axis 9 on a value of rank 2
tgraph.func @index_put(%x0: !tgraph.tensor<[N5, N4], f32>, %x1: !tgraph.tensor<[N9, N4], f32>, %x2: !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.index_put %x0, %x1, %x2 {axes = [9]} : (!tgraph.tensor<[N5, N4], f32>, !tgraph.tensor<[N9, N4], f32>, !tgraph.tensor<[N9], i64>) -> !tgraph.tensor<[N5, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.sort` is !tgraph.tensor<[N4, N17], f32> by its shape rule, not !tgraph.tensor<[N4, N17], i32>
tgraph.func @sort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i32> attributes {names = ["x0"]} {
  %0 = tgraph.sort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], i32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], i32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.argsort` is !tgraph.tensor<[N4, N17], i64> by its shape rule, not !tgraph.tensor<[N4, N17], f32>
tgraph.func @argsort(%x0: !tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32> attributes {names = ["x0"]} {
  %0 = tgraph.argsort %x0 : (!tgraph.tensor<[N4, N17], f32>) -> !tgraph.tensor<[N4, N17], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N17], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `topk` of 7 from an axis of N17 elements: nothing says that min(0, N17 - 7) and 0 are equal
tgraph.func @topk(%x0: !tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) attributes {names = ["x0"], guards = [[dim<min(0, N17 - 5)>, dim<0>, "the op's rule"]]} {
  %0, %1 = tgraph.topk %x0 {k = 7} : (!tgraph.tensor<[N4, N17], f32>) -> (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N4, 5], f32>, !tgraph.tensor<[N4, 5], i64>) -> ()
}
