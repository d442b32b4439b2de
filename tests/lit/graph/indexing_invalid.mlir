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
// -----
// CHECK: error[T0301]: `slice_legal` takes 6 elements of `x.shape[0] = 5` (-1)
tgraph.func @slice_legal_too_long(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[6, 4], f32> attributes {names = ["x", "i"]} {
  %0 = tgraph.slice_legal %x, %i {axes = [0], lengths = [6]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[6, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[6, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_legal` takes scalars for axes of [5, 4], got [] for 2
tgraph.func @slice_legal_no_such_axis(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "i"]} {
  %0 = tgraph.slice_legal %x, %i {axes = [2], lengths = [1]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_legal` needs a start and a length for each axis, got (1, 0), 2 and 2
tgraph.func @slice_legal_not_in_order(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[1, 1], f32> attributes {names = ["x", "i"]} {
  %0 = tgraph.slice_legal %x, %i, %i {axes = [1, 0], lengths = [1, 1]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[1, 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 1], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_legal` needs integer `starts`, got f32
tgraph.func @slice_legal_start_of_floats(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[1, 4], f32> attributes {names = ["x", "i"]} {
  %0 = tgraph.slice_legal %x, %i {axes = [0], lengths = [1]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[1, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_write` puts 6 elements into `x.shape[0] = 5` (-1)
tgraph.func @slice_write_update_too_long(%x: !tgraph.tensor<[5, 4], f32>, %u: !tgraph.tensor<[6, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "u", "i"]} {
  %0 = tgraph.slice_write %x, %u, %i {axes = [0]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[6, 4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_write` needs equal sizes: `x.shape[1] = 4` and `update.shape[1] = 3` differ
tgraph.func @slice_write_other_axes(%x: !tgraph.tensor<[5, 4], f32>, %u: !tgraph.tensor<[2, 3], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "u", "i"]} {
  %0 = tgraph.slice_write %x, %u, %i {axes = [0]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[2, 3], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_write` writes a slice of as many dims, got [2] for [5, 4]
tgraph.func @slice_write_rank_of_update(%x: !tgraph.tensor<[5, 4], f32>, %u: !tgraph.tensor<[2], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "u", "i"]} {
  %0 = tgraph.slice_write %x, %u, %i {axes = [0]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[2], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_write` needs operands of one dtype, got f32 and i32
tgraph.func @slice_write_dtype_of_update(%x: !tgraph.tensor<[5, 4], f32>, %u: !tgraph.tensor<[2, 4], i32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "u", "i"]} {
  %0 = tgraph.slice_write %x, %u, %i {axes = [0]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[2, 4], i32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_write` needs axes of [5, 4] in order, a start for each: got (-1,), 1
tgraph.func @slice_write_axis_below_zero(%x: !tgraph.tensor<[5, 4], f32>, %u: !tgraph.tensor<[2, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32> attributes {names = ["x", "u", "i"]} {
  %0 = tgraph.slice_write %x, %u, %i {axes = [-1]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[2, 4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice_legal` got a size below zero: `out.shape[0] = -1`
tgraph.func @slice_legal_below_zero(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[-1, 4], f32> attributes {names = ["x", "i"]} {
  %0 = tgraph.slice_legal %x, %i {axes = [0], lengths = [-1]} : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[-1, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[-1, 4], f32>) -> ()
}
