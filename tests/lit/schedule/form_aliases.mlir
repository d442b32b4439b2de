// RUN: tessera-opt %s --split -p schedule-form-groups | filecheck %s

// Views that move nothing are the same memory.

// Dims of 1 inserted where the result is to have them.
// CHECK-LABEL: tsched.module @expand_dims(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.alias %x0 : !tgraph.tensor<[1, N3, N5], f32>
// CHECK-NEXT:  tsched.return %[[V0]]
tgraph.func @expand_dims(%x0: !tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.expand_dims %x0 {axes = [0]} : (!tgraph.tensor<[N3, N5], f32>) -> !tgraph.tensor<[1, N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, N3, N5], f32>) -> ()
}
// -----
// Dims of 1 dropped.
// CHECK-LABEL: tsched.module @squeeze(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.alias %x0 : !tgraph.tensor<[N3, N5], f32>
// CHECK-NEXT:  tsched.return %[[V0]]
tgraph.func @squeeze(%x0: !tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32> attributes {names = ["x0"]} {
  %0 = tgraph.squeeze %x0 {axes = [0]} : (!tgraph.tensor<[1, N3, N5], f32>) -> !tgraph.tensor<[N3, N5], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N5], f32>) -> ()
}
// -----
// The same elements, which derivatives take as constant.
// CHECK-LABEL: tsched.module @stop_gradient(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tsched.alias %x0 : !tgraph.tensor<[N3, N4], f32>
// CHECK-NEXT:  tsched.return %[[V0]]
tgraph.func @stop_gradient(%x0: !tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32> attributes {names = ["x0"]} {
  %0 = tgraph.stop_gradient %x0 : (!tgraph.tensor<[N3, N4], f32>) -> !tgraph.tensor<[N3, N4], f32>
  tgraph.return %0 : (!tgraph.tensor<[N3, N4], f32>) -> ()
}
