// RUN: tessera-opt %s --split -p schedule-infer-halos | filecheck %s

// A padded window of 3 by 5 reads one row of each neighbour, and two columns; channels are read in whole.
// CHECK-LABEL: tsched.module @window(
// CHECK-NEXT:    tsched.layout %x {partition = ["2", "3"], mesh_axes = ["rows", "columns"], halo = [{{\[}}1, 1], [2, 2]]}
tsched.module @window(%w: !tgraph.tensor<[8, 4, 3, 5], f32>, %x: !tgraph.tensor<[2, 4, 32, 32], f32>) -> !tgraph.tensor<[2, 8, 32, 32], f32> attributes {mesh = {rows = 4, columns = 2}} {
  tsched.layout %x {partition = ["2", "3"], mesh_axes = ["rows", "columns"]}
  %a = tsched.fuse @conv(%w, %x) : !tgraph.tensor<[2, 8, 32, 32], f32>
  tsched.return %a
}
tgraph.func @conv(%w: !tgraph.tensor<[8, 4, 3, 5], f32>, %x: !tgraph.tensor<[2, 4, 32, 32], f32>) -> !tgraph.tensor<[2, 8, 32, 32], f32> {
  %0 = tgraph.conv_windows %w, %x {stride = [1, 1], low = [1, 2], high = [1, 2], dilation = [1, 1]} : (!tgraph.tensor<[8, 4, 3, 5], f32>, !tgraph.tensor<[2, 4, 32, 32], f32>) -> !tgraph.tensor<[2, 8, 32, 32], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 8, 32, 32], f32>) -> ()
}

// -----

// The channels of a convolution are summed: each rank needs all of them.
// CHECK-LABEL: tsched.module @channels(
// CHECK-NEXT:    tsched.layout %x {partition = ["1"], mesh_axes = ["tp"], halo = ["all"]}
tsched.module @channels(%w: !tgraph.tensor<[8, 4, 3], f32>, %x: !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32> attributes {mesh = {tp = 2}} {
  tsched.layout %x {partition = ["1"], mesh_axes = ["tp"]}
  %a = tsched.fuse @conv(%w, %x) : !tgraph.tensor<[2, 8, 30], f32>
  tsched.return %a
}
tgraph.func @conv(%w: !tgraph.tensor<[8, 4, 3], f32>, %x: !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32> {
  %0 = tgraph.conv_windows %w, %x {stride = [1], low = [0], high = [0], dilation = [1]} : (!tgraph.tensor<[8, 4, 3], f32>, !tgraph.tensor<[2, 4, 32], f32>) -> !tgraph.tensor<[2, 8, 30], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 8, 30], f32>) -> ()
}

// -----

// A difference of neighbours, of a symbolic size: `x - x moved by one`, made with a pad and a slice.
// CHECK-LABEL: tsched.module @difference(
// CHECK-NEXT:    tsched.layout %x {partition = ["N"], mesh_axes = ["sp"], halo = [{{\[}}1, 0]]}
tsched.module @difference(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> attributes {guards = [[dim<N>, dim<4*n>, "shards"]], mesh = {sp = 4}} {
  tsched.layout %x {partition = ["N"], mesh_axes = ["sp"]}
  %a = tsched.fuse @minus(%x) : !tgraph.tensor<[N], f32>
  tsched.return %a
}
tgraph.func @minus(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.pad %x {low = [1], high = [0], value = 0.0} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N + 1], f32>
  %1 = tgraph.slice %0 {start = [0], stop = [N], step = [1]} : (!tgraph.tensor<[N + 1], f32>) -> !tgraph.tensor<[N], f32>
  %2 = tgraph.sub %x, %1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %2 : (!tgraph.tensor<[N], f32>) -> ()
}
