// RUN: tessera-opt %s -p graph-merge-collectives | filecheck %s

// Two sums that do not need each other become one of all elements; what used the first waits for it.
// CHECK-LABEL: tgraph.func @independent(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[B], f32>, %[[Y:[a-z0-9]+]]: !tgraph.tensor<[2, 3], f32>
// CHECK-NOT:     tgraph.exp
// CHECK:         %[[A:[a-z0-9]+]] = tgraph.reshape %[[X]]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.reshape %[[Y]]
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.concat %[[A]], %[[B]]
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.all_reduce %[[C]] {axis = "dp", size = [4]} : (!tgraph.tensor<[B + 6], f32>)
// CHECK-NEXT:    %[[XS:[a-z0-9]+]] = tgraph.slice %[[R]] {start = [0], stop = [B], step = [1]}
// CHECK-NEXT:    %[[XR:[a-z0-9]+]] = tgraph.reshape %[[XS]]
// CHECK-NEXT:    %[[YS:[a-z0-9]+]] = tgraph.slice %[[R]] {start = [B], stop = [B + 6], step = [1]}
// CHECK-NEXT:    %[[YR:[a-z0-9]+]] = tgraph.reshape %[[YS]] {shape = [2, 3]}
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[XR]]
// CHECK-NEXT:    tgraph.return %[[E]], %[[YR]]
tgraph.func @independent(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[2, 3], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2, 3], f32>) {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.all_reduce %y {axis = "dp", size = [4]} : (!tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[2, 3], f32>
  tgraph.return %1, %2 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2, 3], f32>) -> ()
}

// What is printed between them must be printed between them.
// CHECK-LABEL: tgraph.func @said_between(
// CHECK-NEXT:    tgraph.all_reduce
// CHECK-NEXT:    tgraph.debug_print
// CHECK-NEXT:    tgraph.all_reduce
// CHECK-NEXT:    tgraph.return
tgraph.func @said_between(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[B], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.debug_print %y {format = "y = {}"} : (!tgraph.tensor<[B], f32>) -> ()
  %1 = tgraph.all_reduce %y {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> ()
}

// The second needs the first.
// CHECK-LABEL: tgraph.func @dependent(
// CHECK-COUNT-2: tgraph.all_reduce
tgraph.func @dependent(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.neg %0 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.all_reduce %1 {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %2 : (!tgraph.tensor<[B], f32>) -> ()
}

// Other reductions, axes and dtypes are other collectives, and may not pass each other either.
// CHECK-LABEL: tgraph.func @different(
// CHECK-NOT:     tgraph.concat
// CHECK-COUNT-4: tgraph.all_reduce
tgraph.func @different(%x: !tgraph.tensor<[B], f32>, %h: !tgraph.tensor<[B], bf16>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[B], bf16>) {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.all_reduce %x {axis = "dp", size = [4], op = "max"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.all_reduce %x {axis = "tp", size = [4], op = "max"} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %3 = tgraph.all_reduce %h {axis = "tp", size = [4], op = "max"} : (!tgraph.tensor<[B], bf16>) -> !tgraph.tensor<[B], bf16>
  tgraph.return %0, %1, %2, %3 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[B], bf16>) -> ()
}

// Large collectives take long: each starts when it can and overlaps with compute.
// CHECK-LABEL: tgraph.func @large(
// CHECK-NOT:     tgraph.concat
// CHECK-COUNT-2: tgraph.all_reduce
tgraph.func @large(%x: !tgraph.tensor<[100000], f32>, %y: !tgraph.tensor<[100000], f32>) -> (!tgraph.tensor<[100000], f32>, !tgraph.tensor<[100000], f32>) {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[100000], f32>) -> !tgraph.tensor<[100000], f32>
  %1 = tgraph.all_reduce %y {axis = "dp", size = [4]} : (!tgraph.tensor<[100000], f32>) -> !tgraph.tensor<[100000], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[100000], f32>, !tgraph.tensor<[100000], f32>) -> ()
}
