// RUN: tessera-opt %s -p graph-eliminate-common | filecheck %s

// Equal ops become one, and so do their users; an op no one uses goes.
// CHECK-LABEL: tgraph.func @merge(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[X]]
// CHECK-NEXT:    %[[N:[a-z0-9]+]] = tgraph.neg %[[E]]
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.add %[[N]], %[[N]]
// CHECK-NEXT:    tgraph.return %[[S]]
tgraph.func @merge(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.neg %0 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %3 = tgraph.neg %2 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %4 = tgraph.tanh %3 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %5 = tgraph.add %1, %3 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %5 : (!tgraph.tensor<[B], f32>) -> ()
}

// Other attributes, or operands in another order, make another op: -0.0 is not 0.0.
// CHECK-LABEL: tgraph.func @apart(
// CHECK-COUNT-2: tgraph.sub
// CHECK-COUNT-2: tgraph.full
// CHECK:         tgraph.return
tgraph.func @apart(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[B], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) {
  %0 = tgraph.sub %x, %y : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.sub %y, %x : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.full {value = 0.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  %3 = tgraph.full {value = -0.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  tgraph.return %0, %1, %2, %3 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>, !tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> ()
}

// What is behind a barrier is computed again: an equal op before it is another.
// CHECK-LABEL: tgraph.func @behind_barrier(
// CHECK-COUNT-2: tgraph.exp
// CHECK:         tgraph.return
tgraph.func @behind_barrier(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[B], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.optimization_barrier %x, %y : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.exp %1 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0, %2 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> ()
}

// Two equal ops with bodies are one, and so is what their bodies compute twice.
// CHECK-LABEL: tgraph.func @bodies(
// CHECK-COUNT-1: tgraph.cond
// CHECK-COUNT-1: tgraph.exp
// CHECK-NOT:     tgraph.cond
// CHECK:         tgraph.return
tgraph.func @bodies(%p: !tgraph.tensor<[], bool>, %x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.cond %p, %x ({
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    %e = tgraph.exp %a : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    %f = tgraph.exp %a : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    %g = tgraph.mul %e, %f : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    tgraph.yield %g : (!tgraph.tensor<[B], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    tgraph.yield %a : (!tgraph.tensor<[B], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.cond %p, %x ({
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    %e = tgraph.exp %a : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    %f = tgraph.exp %a : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    %g = tgraph.mul %e, %f : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    tgraph.yield %g : (!tgraph.tensor<[B], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    tgraph.yield %a : (!tgraph.tensor<[B], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.add %0, %1 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %2 : (!tgraph.tensor<[B], f32>) -> ()
}

// Slices at equal starts are one, to read and to write; those at another start are others.
// CHECK-LABEL: tgraph.func @slices(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}, %[[I:[a-z0-9]+]]: {{.*}}, %[[J:[a-z0-9]+]]:
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tgraph.slice_legal %[[X]], %[[I]]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tgraph.slice_legal %[[X]], %[[J]]
// CHECK-NEXT:    %[[W:[a-z0-9]+]] = tgraph.slice_write %[[X]], %[[A]], %[[J]]
// CHECK-NEXT:    tgraph.return %[[B]], %[[W]], %[[W]]
tgraph.func @slices(%x: !tgraph.tensor<[8], f32>, %i: !tgraph.tensor<[], i64>, %j: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[3], f32>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) {
  %0 = tgraph.slice_legal %x, %i {axes = [0], lengths = [3]} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[3], f32>
  %1 = tgraph.slice_legal %x, %j {axes = [0], lengths = [3]} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[3], f32>
  %2 = tgraph.slice_legal %x, %i {axes = [0], lengths = [3]} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[3], f32>
  %3 = tgraph.slice_write %x, %0, %j {axes = [0]} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[3], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[8], f32>
  %4 = tgraph.slice_write %x, %2, %j {axes = [0]} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[3], f32>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[8], f32>
  tgraph.return %1, %3, %4 : (!tgraph.tensor<[3], f32>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> ()
}
