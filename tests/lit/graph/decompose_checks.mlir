// RUN: tessera-opt %s -p 'graph-decompose{checks = true}' | filecheck %s

// Indices count from both ends and are not clamped; what uses them knows its line, which a debug build names.
// CHECK-LABEL: tgraph.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}, %[[I:[a-z0-9]+]]: {{.*}}
// CHECK:         %[[LEGAL:[a-z0-9]+]] = tgraph.where
// CHECK-NOT:     tgraph.clamp
// CHECK-NEXT:    tgraph.index_legal %[[X]], %[[LEGAL]] {axes = [0], checked = {op = "take", location = {{.*}}, ends = true, mode = "clip"}}
tgraph.func @rows(%x: !tgraph.tensor<[N, 4], f32>, %i: !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32> attributes {guards = [[dim<min(N, 1)>, dim<1>, "rows"]]} {
  %0 = tgraph.take %x, %i {axis = 0} : (!tgraph.tensor<[N, 4], f32>, !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[K, 4], f32>) -> ()
}

// Numbers without a sign do not count from the end.
// CHECK-LABEL: tgraph.func @bytes(
// CHECK-NEXT:    %[[WIDE:[a-z0-9]+]] = tgraph.cast %i
// CHECK-NEXT:    tgraph.index_legal %x, %[[WIDE]] {{.*}}checked
tgraph.func @bytes(%x: !tgraph.tensor<[N, 4], f32>, %i: !tgraph.tensor<[K], u8>) -> !tgraph.tensor<[K, 4], f32> attributes {guards = [[dim<min(N, 1)>, dim<1>, "rows"]]} {
  %0 = tgraph.take %x, %i {axis = 0} : (!tgraph.tensor<[N, 4], f32>, !tgraph.tensor<[K], u8>) -> !tgraph.tensor<[K, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[K, 4], f32>) -> ()
}

// What is asked to clip does, in a debug build too; what is asked to drop is masked.
// CHECK-LABEL: tgraph.func @asked(
// CHECK:         tgraph.clamp
// CHECK-NEXT:    tgraph.index_legal {{.*}} {axes = [0]} :
// CHECK:         tgraph.index_legal {{.*}} {axes = [0], masked = true} :
tgraph.func @asked(%x: !tgraph.tensor<[9, 4], f32>, %i: !tgraph.tensor<[K], i64>) -> (!tgraph.tensor<[K, 4], f32>, !tgraph.tensor<[K, 4], f32>) {
  %0 = tgraph.take %x, %i {axis = 0, mode = "clip"} : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32>
  %1 = tgraph.take %x, %i {axis = 0, mode = "drop"} : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[K, 4], f32>, !tgraph.tensor<[K, 4], f32>) -> ()
}

// A function without indices has nothing to say.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NOT:     checked
tgraph.func @leave(%x: !tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.softmax %x {axis = 1} : (!tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}
