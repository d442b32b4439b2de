// RUN: tessera-opt %s -p 'graph-chunk-collective-matmuls{count = 2}' | filecheck %s

// RS_MM_AG: chunk 0 of what is scattered are rows 0 and 2, of rank 0 and 1, so that each rank gets one row of a chunk.
// CHECK-LABEL: tgraph.func @all_three(
// CHECK:         tgraph.slice {{.*}} {start = [0, 0, 0], stop = [2, 1, 3]
// CHECK:         %[[R0:[a-z0-9]+]] = tgraph.reduce_scatter
// CHECK:         tgraph.slice {{.*}} {start = [0, 1, 0], stop = [2, 2, 3]
// CHECK:         %[[R1:[a-z0-9]+]] = tgraph.reduce_scatter
// CHECK:         %[[M0:[a-z0-9]+]] = tgraph.matmul %[[R0]], %w {segment = 4096}
// CHECK-NEXT:    %[[M1:[a-z0-9]+]] = tgraph.matmul %[[R1]], %w {segment = 4096}
// CHECK-NEXT:    %[[G0:[a-z0-9]+]] = tgraph.all_gather %[[M0]]
// CHECK-NEXT:    %[[G1:[a-z0-9]+]] = tgraph.all_gather %[[M1]]
// CHECK:         tgraph.concat {{.*}} {axis = 1} {{.*}} -> !tgraph.tensor<[2, 2, 5], f32>
tgraph.func @all_three(%x: !tgraph.tensor<[4, 3], f32>, %w: !tgraph.tensor<[3, 5], f32>) -> !tgraph.tensor<[4, 5], f32> attributes {names = ["x", "w"]} {
  %0 = tgraph.reduce_scatter %x {axis = "tp", size = [2]} : (!tgraph.tensor<[4, 3], f32>) -> !tgraph.tensor<[2, 3], f32>
  %1 = tgraph.matmul %0, %w {segment = 4096} : (!tgraph.tensor<[2, 3], f32>, !tgraph.tensor<[3, 5], f32>) -> !tgraph.tensor<[2, 5], f32>
  %2 = tgraph.all_gather %1 {axis = "tp", size = [2]} : (!tgraph.tensor<[2, 5], f32>) -> !tgraph.tensor<[4, 5], f32>
  tgraph.return %2 : (!tgraph.tensor<[4, 5], f32>) -> ()
}

// What is gathered along K stays: chunks of it would be summed in another order.
// CHECK-LABEL: tgraph.func @contracted(
// CHECK-NEXT:    tgraph.all_gather
// CHECK-NEXT:    tgraph.matmul
// CHECK-NEXT:    tgraph.return
tgraph.func @contracted(%x: !tgraph.tensor<[4, 2], f32>, %w: !tgraph.tensor<[4, 5], f32>) -> !tgraph.tensor<[4, 5], f32> attributes {names = ["x", "w"]} {
  %0 = tgraph.all_gather %x {axis = "tp", size = [2], dim = 1} : (!tgraph.tensor<[4, 2], f32>) -> !tgraph.tensor<[4, 4], f32>
  %1 = tgraph.matmul %0, %w : (!tgraph.tensor<[4, 4], f32>, !tgraph.tensor<[4, 5], f32>) -> !tgraph.tensor<[4, 5], f32>
  tgraph.return %1 : (!tgraph.tensor<[4, 5], f32>) -> ()
}
