// RUN: tessera-opt %s -p schedule-read-plan | filecheck %s
// RUN: tessera-opt %s -p schedule-read-plan,schedule-choose-tiles,schedule-emit-tiles | filecheck %s --check-prefix=TILES

// The groups of the plan take the place of the function: two where one would do, in the order that the plan has. Kinds
// and axes that it leaves out are those of the ops; what was chosen comes from the plan.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    %[[SUM:[a-z0-9]+]] = tsched.fuse @total(%x) {kind = "row", axes = [1]
// CHECK-NEXT:    %[[ADD:[a-z0-9]+]] = tsched.fuse @shift(%x, %[[SUM]]) {kind = "map"
// CHECK-NEXT:    tsched.tile %[[ADD]] chosen = 32 {source = "plan", knob = "map.tile"}
// CHECK-NEXT:    %[[EXP:[a-z0-9]+]] = tsched.fuse @power(%[[ADD]]) {kind = "map"
// CHECK-NEXT:    tsched.return %[[EXP]]
// CHECK-NOT:   tgraph.func @main
// CHECK:       tgraph.func @total(
// CHECK:       tgraph.func @shift(
// CHECK:       tgraph.func @power(

// Each is a kernel, and choices that the plan leaves out are made.
// TILES:       tsched.tile %{{[a-z0-9]+}} chosen = 32 {source = "plan", knob = "map.tile"}
// TILES:       source = "default", knob = "map.tile"
// TILES-DAG:   ttile.kernel @total(
// TILES-DAG:   ttile.kernel @shift(
// TILES-DAG:   ttile.kernel @power(
tgraph.func @main(%x: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32> attributes {names = ["x"]} {
  %0 = tgraph.sum %x {axes = [1], keepdims = true, accumulate = f32} : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 1], f32>
  %1 = tgraph.add %x, %0 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[8, 1], f32>) -> !tgraph.tensor<[8, 64], f32>
  %2 = tgraph.exp %1 : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32>
  tgraph.return %2 : (!tgraph.tensor<[8, 64], f32>) -> ()
}

builtin.module {
  tsched.module @main(%x: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32> attributes {names = ["x"]} {
    %sum = tsched.fuse @total(%x) : !tgraph.tensor<[8, 1], f32>
    %add = tsched.fuse @shift(%x, %sum) : !tgraph.tensor<[8, 64], f32>
    tsched.tile %add chosen = 32 {knob = "map.tile"}
    %exp = tsched.fuse @power(%add) : !tgraph.tensor<[8, 64], f32>
    tsched.return %exp
  }
  tgraph.func @total(%a0: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 1], f32> attributes {names = ["a0"]} {
    %0 = tgraph.sum %a0 {axes = [1], keepdims = true, accumulate = f32} : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 1], f32>
    tgraph.return %0 : (!tgraph.tensor<[8, 1], f32>) -> ()
  }
  tgraph.func @shift(%a0: !tgraph.tensor<[8, 64], f32>, %a1: !tgraph.tensor<[8, 1], f32>) -> !tgraph.tensor<[8, 64], f32> attributes {names = ["a0", "a1"]} {
    %0 = tgraph.add %a0, %a1 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[8, 1], f32>) -> !tgraph.tensor<[8, 64], f32>
    tgraph.return %0 : (!tgraph.tensor<[8, 64], f32>) -> ()
  }
  tgraph.func @power(%a0: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32> attributes {names = ["a0"]} {
    %0 = tgraph.exp %a0 : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32>
    tgraph.return %0 : (!tgraph.tensor<[8, 64], f32>) -> ()
  }
}
