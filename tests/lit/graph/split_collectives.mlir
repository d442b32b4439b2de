// RUN: tessera-opt %s -p graph-split-collectives | filecheck %s

// A sum over ranks is an all-gather and a reduction of its slices: rank 0 first, in f32, rounded once.
// CHECK-LABEL: tgraph.func @sum(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[B], bf16>
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.reshape %[[X]] {shape = [1, B]}
// CHECK-NEXT:    %[[G:[a-z0-9]+]] = tgraph.all_gather %[[R]] {axis = "dp", size = [3], purpose = "`all_reduce` (sum)"} : (!tgraph.tensor<[1, B], bf16>) -> !tgraph.tensor<[3, B], bf16>
// CHECK-NEXT:    %[[S0:[a-z0-9]+]] = tgraph.slice %[[G]] {start = [0, 0], stop = [1, B]
// CHECK-NEXT:    %[[S1:[a-z0-9]+]] = tgraph.slice %[[G]] {start = [1, 0], stop = [2, B]
// CHECK-NEXT:    %[[S2:[a-z0-9]+]] = tgraph.slice %[[G]] {start = [2, 0], stop = [3, B]
// CHECK-NEXT:    %[[A0:[a-z0-9]+]] = tgraph.reshape %[[S0]] {shape = [B]}
// CHECK-NEXT:    %[[F0:[a-z0-9]+]] = tgraph.cast %[[A0]] {dtype = f32}
// CHECK-NEXT:    %[[A1:[a-z0-9]+]] = tgraph.reshape %[[S1]] {shape = [B]}
// CHECK-NEXT:    %[[F1:[a-z0-9]+]] = tgraph.cast %[[A1]] {dtype = f32}
// CHECK-NEXT:    %[[A2:[a-z0-9]+]] = tgraph.reshape %[[S2]] {shape = [B]}
// CHECK-NEXT:    %[[F2:[a-z0-9]+]] = tgraph.cast %[[A2]] {dtype = f32}
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.add %[[F0]], %[[F1]]
// CHECK-NEXT:    %[[U:[a-z0-9]+]] = tgraph.add %[[T]], %[[F2]]
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.cast %[[U]] {dtype = bf16}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @sum(%x: !tgraph.tensor<[B], bf16>) -> !tgraph.tensor<[B], bf16> {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [3]} : (!tgraph.tensor<[B], bf16>) -> !tgraph.tensor<[B], bf16>
  tgraph.return %0 : (!tgraph.tensor<[B], bf16>) -> ()
}

// A mean divides the sum by the number of ranks, before it is rounded.
// CHECK-LABEL: tgraph.func @mean(
// CHECK:         purpose = "`all_reduce` (mean)"
// CHECK:         %[[T:[a-z0-9]+]] = tgraph.add
// CHECK-NEXT:    %[[U:[a-z0-9]+]] = tgraph.add %[[T]]
// CHECK-NEXT:    %[[N:[a-z0-9]+]] = tgraph.full {value = 3.0, shape = [], dtype = f32}
// CHECK-NEXT:    %[[M:[a-z0-9]+]] = tgraph.div %[[U]], %[[N]]
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.cast %[[M]] {dtype = bf16}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @mean(%x: !tgraph.tensor<[B], bf16>) -> !tgraph.tensor<[B], bf16> {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [3], op = "mean"} : (!tgraph.tensor<[B], bf16>) -> !tgraph.tensor<[B], bf16>
  tgraph.return %0 : (!tgraph.tensor<[B], bf16>) -> ()
}

// A reduce-scatter: the axis is split and transposed to the front, each rank receives its parts from all, and reduces them.
// CHECK-LABEL: tgraph.func @share(
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.reshape %x {shape = [4, 2, 3]}
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tgraph.transpose %[[C]] {axes = [1, 0, 2]}
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.all_to_all %[[A]] {axis = "tp", size = [2], purpose = "`reduce_scatter` (max, dim 1)"} : (!tgraph.tensor<[2, 4, 3], f32>) -> !tgraph.tensor<[2, 4, 3], f32>
// CHECK-COUNT-2: tgraph.slice %[[E]]
// CHECK:         tgraph.maximum
// CHECK-NEXT:    tgraph.return
tgraph.func @share(%x: !tgraph.tensor<[4, 6], f32>) -> !tgraph.tensor<[4, 3], f32> {
  %0 = tgraph.reduce_scatter %x {axis = "tp", size = [2], dim = 1, op = "max"} : (!tgraph.tensor<[4, 6], f32>) -> !tgraph.tensor<[4, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 3], f32>) -> ()
}

// Along another axis than the first, the gathered axis is transposed to where it belongs.
// CHECK-LABEL: tgraph.func @across(
// CHECK:         %[[G:[a-z0-9]+]] = tgraph.all_gather %{{.*}} {axis = "dp", size = [2], purpose = "`all_gather` (dim 1)"} : (!tgraph.tensor<[1, A, 5], i8>) -> !tgraph.tensor<[2, A, 5], i8>
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.transpose %[[G]] {axes = [1, 0, 2]}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.reshape %[[P]] {shape = [A, 10]}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @across(%x: !tgraph.tensor<[A, 5], i8>) -> !tgraph.tensor<[A, 10], i8> {
  %0 = tgraph.all_gather %x {axis = "dp", size = [2], dim = 1} : (!tgraph.tensor<[A, 5], i8>) -> !tgraph.tensor<[A, 10], i8>
  tgraph.return %0 : (!tgraph.tensor<[A, 10], i8>) -> ()
}

// What only moves bytes, and what moves none, is left alone.
// CHECK-LABEL: tgraph.func @plain(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tgraph.all_gather %x {axis = "dp", size = [2]}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.all_to_all %x {axis = "dp", size = [2]}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.all_reduce %x {axis = "one", size = [1]}
// CHECK-NEXT:    tgraph.return %[[A]], %[[B]], %[[C]]
tgraph.func @plain(%x: !tgraph.tensor<[4], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[4], f32>) {
  %0 = tgraph.all_gather %x {axis = "dp", size = [2]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.all_to_all %x {axis = "dp", size = [2]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
  %2 = tgraph.all_reduce %x {axis = "one", size = [1]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[4], f32>) -> ()
}

// Many bytes: reduce-scatter, then all-gather.
// CHECK-LABEL: tgraph.func @large(
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tgraph.reshape %x {shape = [400000]}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.reshape %[[R]] {shape = [4, 100000]}
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.all_to_all %[[C]] {axis = "dp", size = [4], purpose = "`all_reduce` (sum)"}
// CHECK-COUNT-3: tgraph.add
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.reshape %{{.*}} {shape = [1, 100000]}
// CHECK-NEXT:    %[[G:[a-z0-9]+]] = tgraph.all_gather %[[S]] {axis = "dp", size = [4], purpose = "`all_reduce` (sum)"} : (!tgraph.tensor<[1, 100000], f32>) -> !tgraph.tensor<[4, 100000], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.reshape %[[G]] {shape = [8, 50000]}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @large(%x: !tgraph.tensor<[8, 50000], f32>) -> !tgraph.tensor<[8, 50000], f32> {
  %0 = tgraph.all_reduce %x {axis = "dp", size = [4]} : (!tgraph.tensor<[8, 50000], f32>) -> !tgraph.tensor<[8, 50000], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 50000], f32>) -> ()
}
