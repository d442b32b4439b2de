// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Views, creation and kernels of the library: shapes, axes and counts that are none.

// CHECK: error[T0301]: `stack` cannot put an axis at 7 of a result of rank 2
tgraph.func @stack(%x0: !tgraph.tensor<[N3], f32>, %x1: !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.stack %x0, %x1 {axis = 7} : (!tgraph.tensor<[N3], f32>, !tgraph.tensor<[N3], f32>) -> !tgraph.tensor<[2, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, N3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `pad` needs one width before and after each of 1 axes, got 2 and 1
tgraph.func @pad(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32> attributes {names = ["x0"]} {
  %0 = tgraph.pad %x0 {low = [2, 0], high = [1]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5 + 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `pad` needs one width before and after each of 1 axes, got 1 and 0
tgraph.func @pad_gather(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32> attributes {names = ["x0"]} {
  %0 = tgraph.pad_gather %x0 {low = [2], high = []} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[N5 + 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N5 + 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention` needs a floating `q`, got bool
tgraph.func @attention_with_lse(%x0: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x1: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x2: !tgraph.tensor<[N2, N3, N5, N8], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>) attributes {names = ["x0", "x1", "x2"]} {
  %0, %1 = tgraph.attention_with_lse %x0, %x1, %x2 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `cached_attention` needs a floating `q`, got bool
tgraph.func @cached_attention(%x0: !tgraph.tensor<[N2, N4, N3, N8], bool>, %x1: !tgraph.tensor<[N2, N2, N9, N8], bool>, %x2: !tgraph.tensor<[N2, N2, N9, N8], bool>, %x3: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], bool> attributes {names = ["x0", "x1", "x2", "x3"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0 = tgraph.cached_attention %x0, %x1, %x2, %x3 : (!tgraph.tensor<[N2, N4, N3, N8], bool>, !tgraph.tensor<[N2, N2, N9, N8], bool>, !tgraph.tensor<[N2, N2, N9, N8], bool>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], bool>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N3, N8], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `cached_attention` takes keys in parts of a multiple of 256, got 100
tgraph.func @parts_of_a_cache(%x0: !tgraph.tensor<[N2, N4, N3, N8], f32>, %x1: !tgraph.tensor<[N2, N4, N9, N8], f32>, %x2: !tgraph.tensor<[N2, N4, N9, N8], f32>, %x3: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32> attributes {names = ["x0", "x1", "x2", "x3"]} {
  %0 = tgraph.cached_attention %x0, %x1, %x2, %x3 {part = 100} : (!tgraph.tensor<[N2, N4, N3, N8], f32>, !tgraph.tensor<[N2, N4, N9, N8], f32>, !tgraph.tensor<[N2, N4, N9, N8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[N2, N4, N3, N8], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N4, N3, N8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_parts` needs parts of at least one key, got -9
tgraph.func @attention_parts(%x0: !tgraph.tensor<[N2, N4, 1, N8], f32>, %x1: !tgraph.tensor<[N2, N2, N8, N8], f32>, %x2: !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) attributes {names = ["x0", "x1", "x2"], guards = [[dim<(N4 mod N2)>, dim<0>, "the op's rule"]]} {
  %0, %1, %2 = tgraph.attention_parts %x0, %x1, %x2 {keys = -9} : (!tgraph.tensor<[N2, N4, 1, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>, !tgraph.tensor<[N2, N2, N8, N8], f32>) -> (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4), N8], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>, !tgraph.tensor<[N2, N4, ((N8 + 3) floordiv 4)], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_join` needs a floating `top`, got bool
tgraph.func @attention_join(%x0: !tgraph.tensor<[N2, N3, N3, N8], bool>, %x1: !tgraph.tensor<[N2, N3, N3], bool>, %x2: !tgraph.tensor<[N2, N3, N3], bool>) -> !tgraph.tensor<[N2, N3, 1, N8], bool> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.attention_join %x0, %x1, %x2 {dtype = f32} : (!tgraph.tensor<[N2, N3, N3, N8], bool>, !tgraph.tensor<[N2, N3, N3], bool>, !tgraph.tensor<[N2, N3, N3], bool>) -> !tgraph.tensor<[N2, N3, 1, N8], bool>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, 1, N8], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_join` takes a length with the keys of a part, got 0 lengths and parts of 4
tgraph.func @attention_join_without_a_length(%x0: !tgraph.tensor<[2, 3, 3, 8], f32>, %x1: !tgraph.tensor<[2, 3, 3], f32>, %x2: !tgraph.tensor<[2, 3, 3], f32>) -> !tgraph.tensor<[2, 3, 1, 8], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.attention_join %x0, %x1, %x2 {dtype = f32, keys = 4} : (!tgraph.tensor<[2, 3, 3, 8], f32>, !tgraph.tensor<[2, 3, 3], f32>, !tgraph.tensor<[2, 3, 3], f32>) -> !tgraph.tensor<[2, 3, 1, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 3, 1, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `conv_windows` has a stride and dilation from 1 on, low and high for each of 1 axes
tgraph.func @conv_windows(%x0: !tgraph.tensor<[N3, N2, N3], f32>, %x1: !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.conv_windows %x0, %x1 {stride = [0], dilation = [1], low = [1], high = [0]} : (!tgraph.tensor<[N3, N2, N3], f32>, !tgraph.tensor<[N2, N2, N8], f32>) -> !tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>
  tgraph.return %0 : (!tgraph.tensor<[N2, N3, ((-N3 + N8 + 1) floordiv 2) + 1], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `iota` has no axis 7 in [7]
tgraph.func @iota() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.iota {shape = [7], axis = 7, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `eye` is a matrix, got the shape [5, 5, 0]
tgraph.func @eye() -> !tgraph.tensor<[5, 5], f32> {
  %0 = tgraph.eye {shape = [5, 5, 0], dtype = f32} : () -> !tgraph.tensor<[5, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[5, 5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `linspace` needs a count of 0 or more, got -9
tgraph.func @linspace() -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.linspace {start = -1.0, stop = 2.0, num = -9, dtype = f32} : () -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.dim_size` is !tgraph.tensor<[], i64> by its shape rule, not !tgraph.tensor<[], f32>
tgraph.func @dim_size() -> !tgraph.tensor<[], f32> {
  %0 = tgraph.dim_size {dims = [7]} : () -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.tril` is !tgraph.tensor<[N5, N5], f32> by its shape rule, not !tgraph.tensor<[N5, N5], i32>
tgraph.func @tril(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], i32> attributes {names = ["x0"]} {
  %0 = tgraph.tril %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], i32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], i32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.triu` is !tgraph.tensor<[N5, N5], f32> by its shape rule, not !tgraph.tensor<[N5, N5], i32>
tgraph.func @triu(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], i32> attributes {names = ["x0"]} {
  %0 = tgraph.triu %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5, N5], i32>
  tgraph.return %0 : (!tgraph.tensor<[N5, N5], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `cumulative` has no kind `nothing`
tgraph.func @cumulative(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.cumulative %x0 {kind = "nothing", axis = 0} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.diagonal` is !tgraph.tensor<[N5], f32> by its shape rule, not !tgraph.tensor<[N5], i32>
tgraph.func @diagonal(%x0: !tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], i32> attributes {names = ["x0"]} {
  %0 = tgraph.diagonal %x0 : (!tgraph.tensor<[N5, N5], f32>) -> !tgraph.tensor<[N5], i32>
  tgraph.return %0 : (!tgraph.tensor<[N5], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `take_along_legal` needs integer `indices`, got f32
tgraph.func @take_along_legal(%x0: !tgraph.tensor<[N4, N5], f32>, %x1: !tgraph.tensor<[N4, N3], f32>) -> !tgraph.tensor<[N4, N3], f32> attributes {names = ["x0", "x1"], guards = [[dim<min(1, N5)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.take_along_legal %x0, %x1 : (!tgraph.tensor<[N4, N5], f32>, !tgraph.tensor<[N4, N3], f32>) -> !tgraph.tensor<[N4, N3], f32>
  tgraph.return %0 : (!tgraph.tensor<[N4, N3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.broadcast_to` is !tgraph.tensor<[9, 9], f32> by its shape rule, not !tgraph.tensor<[3, 5], f32>
tgraph.func @broadcast_to(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.broadcast_to %x0 {shape = [9, 9]} : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `expand_dims` needs different sorted axes within 0..2 of its result, got (9,)
tgraph.func @expand_dims(%x0: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.expand_dims %x0 {axes = [9]} : (!tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, N3, N5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `squeeze` has no axis 9 on a value of rank 3
tgraph.func @squeeze(%x0: !tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.squeeze %x0 {axes = [9]} : (!tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `roll` needs one shift for each axis, got 2 shifts and 1 axes
tgraph.func @roll(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32> attributes {names = ["x0"]} {
  %0 = tgraph.roll %x0 {shifts = [2, 0], axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[N7], f32>
  tgraph.return %0 : (!tgraph.tensor<[N7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `tile` needs one count, 0 or more, for each of 1 axes, got (3, 0)
tgraph.func @tile(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.tile %x0 {reps = [3, 0]} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `repeat` needs a count of 0 or more, got -9
tgraph.func @repeat(%x0: !tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.repeat %x0 {repeats = -9, axis = 0} : (!tgraph.tensor<[N5], f32>) -> !tgraph.tensor<[3*N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[3*N5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.stop_gradient` is !tgraph.tensor<[N3, N4], f32> by its shape rule, not !tgraph.tensor<[N3, N4], i32>
tgraph.func @stop_gradient(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], i32> attributes {names = ["x0"]} {
  %0 = tgraph.stop_gradient %x0 : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], i32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], i32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.philox` is !tgraph.tensor<[N3, N37], u64> by its shape rule, not !tgraph.tensor<[N3, N37], f32>
tgraph.func @philox(%x0: !tgraph.tensor<[N3, N37], u64>, %x1: !tgraph.tensor<[], u64>, %x2: !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.philox %x0, %x1, %x2 : (!tgraph.tensor<[N3, N37], u64>, !tgraph.tensor<[], u64>, !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N37], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 1 of `tgraph.sort_rows` is !tgraph.tensor<[N5, N33], i64> by its shape rule, not !tgraph.tensor<[N5, N33], f32>
tgraph.func @sort_rows(%x0: !tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], f32>) attributes {names = ["x0"]} {
  %0, %1 = tgraph.sort_rows %x0 : (!tgraph.tensor<[N5, N33], f32>) -> (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N5, N33], f32>, !tgraph.tensor<[N5, N33], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `while` takes one number from 0 as `max_trips`, got -2
tgraph.func @while(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.while %x0 {carried = 1, max_trips = [-2]} ({
  ^bb0(%v: !tgraph.tensor<[], f32>):
    %1 = tgraph.lt %v, %v : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
    tgraph.yield %1 : (!tgraph.tensor<[], bool>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[], f32>):
    tgraph.yield %v_1 : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_tangent` needs a floating `q`, got bool
tgraph.func @attention_tangent(%x0: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x1: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x2: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x3: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x4: !tgraph.tensor<[N2, N3, N5], bool>, %x5: !tgraph.tensor<[N2, N3, N5, N8], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1 = tgraph.attention_tangent %x0, %x1, %x2, %x3, %x4, %x5 {by = [0]} : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>)
  tgraph.return %0, %1 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_backward` needs a floating `q`, got bool
tgraph.func @attention_backward(%x0: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x1: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x2: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x3: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x4: !tgraph.tensor<[N2, N3, N5], bool>, %x5: !tgraph.tensor<[N2, N3, N5], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.attention_backward %x0, %x1, %x2, %x3, %x4, %x5 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>, !tgraph.tensor<[N2, N3, N5], bool>) -> (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `attention_backward` needs a floating `q`, got bool
tgraph.func @attention_backward_keys(%x0: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x1: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x2: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x3: !tgraph.tensor<[N2, N3, N5, N8], bool>, %x4: !tgraph.tensor<[N2, N3, N5], bool>, %x5: !tgraph.tensor<[N2, N3, N5], bool>) -> (!tgraph.tensor<[N2, N3, N5, N5], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) attributes {names = ["x0", "x1", "x2", "x3", "x4", "x5"]} {
  %0, %1, %2 = tgraph.attention_backward_keys %x0, %x1, %x2, %x3, %x4, %x5 : (!tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5], bool>, !tgraph.tensor<[N2, N3, N5], bool>) -> (!tgraph.tensor<[N2, N3, N5, N5], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[N2, N3, N5, N5], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>, !tgraph.tensor<[N2, N3, N5, N8], bool>) -> ()
}
