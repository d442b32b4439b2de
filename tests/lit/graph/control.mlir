// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s --print-generic | tessera-opt | filecheck %s
// RUN: tessera-opt %s -p graph-canonicalize,graph-eliminate-common,graph-decompose | filecheck %s

// One of two bodies, each isolated: its values come in as arguments and go out through `yield`.
// CHECK-LABEL: tgraph.func @cond(
// CHECK:         %[[R:[a-z0-9]+]] = tgraph.cond %{{[a-z0-9]+}}, %{{[a-z0-9]+}} ({
// CHECK-NEXT:    ^bb0(%[[V:[a-z0-9_]+]]: !tgraph.tensor<[], f32>):
// CHECK-NEXT:      %[[W:[a-z0-9_]+]] = tgraph.add %[[V]], %[[V]]
// CHECK-NEXT:      tgraph.yield %[[W]]
// CHECK-NEXT:    }, {
// CHECK:         }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
// CHECK-NEXT:    tgraph.return %[[R]]
tgraph.func @cond(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.cond %x0, %x1 ({
  ^bb0(%v: !tgraph.tensor<[], f32>):
    %1 = tgraph.add %v, %v : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %1 : (!tgraph.tensor<[], f32>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[], f32>):
    %2 = tgraph.add %v_1, %v_1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %2 : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}

// The condition is a body too.
// CHECK-LABEL: tgraph.func @while(
// CHECK:         tgraph.while %{{[a-z0-9]+}} {carried = 1} ({
// CHECK:           %[[C:[a-z0-9_]+]] = tgraph.lt
// CHECK-NEXT:      tgraph.yield %[[C]] : (!tgraph.tensor<[], bool>) -> ()
tgraph.func @while(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.while %x0 {carried = 1} ({
  ^bb0(%v: !tgraph.tensor<[], f32>):
    %1 = tgraph.full {value = 100.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
    %2 = tgraph.lt %v, %1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
    tgraph.yield %2 : (!tgraph.tensor<[], bool>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[], f32>):
    %3 = tgraph.add %v_1, %v_1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %3 : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}

// CHECK-LABEL: tgraph.func @fori(
// CHECK:         tgraph.fori
// CHECK-NEXT:    ^bb0(%{{[a-z0-9_]+}}: !tgraph.tensor<[], i64>, %{{[a-z0-9_]+}}: !tgraph.tensor<[], f32>):
tgraph.func @fori(%x0: !tgraph.tensor<[], i64>, %x1: !tgraph.tensor<[], i64>, %x2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.fori %x0, %x1, %x2 {carried = 1} ({
  ^bb0(%i: !tgraph.tensor<[], i64>, %v: !tgraph.tensor<[], f32>):
    %1 = tgraph.add %v, %v : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %1 : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}

// What is carried and what is stacked are results; a free dim is the number of rounds.
// CHECK-LABEL: tgraph.func @scan(
// CHECK:         %[[A:[a-z0-9]+]], %[[B:[a-z0-9]+]] = tgraph.scan
// CHECK-SAME:      {carried = 1, scanned = 1}
// CHECK:         }) : (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>)
// CHECK-NEXT:    tgraph.return %[[A]], %[[B]]
tgraph.func @scan(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>) attributes {names = ["x0", "x1"]} {
  %0, %1 = tgraph.scan %x0, %x1 {carried = 1, scanned = 1} ({
  ^bb0(%total: !tgraph.tensor<[], f32>, %x: !tgraph.tensor<[], f32>):
    %2 = tgraph.add %total, %x : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %2, %2 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[N], f32>) -> ()
}
