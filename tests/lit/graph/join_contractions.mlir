// RUN: tessera-opt %s -p "graph-split-contractions{blocks=132}" | filecheck %s

// A few segments of results that fill the machine are left to one kernel, which joins them.
// CHECK-LABEL: tgraph.func @few(
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.matmul %a, %b {accumulate = f32, segment = 1024} :
// CHECK-NEXT:    tgraph.return %[[P]]
tgraph.func @few(%a: !tgraph.tensor<[16384, 4096], bf16>, %b: !tgraph.tensor<[4096, 256], bf16>) -> !tgraph.tensor<[16384, 256], bf16> {
  %0 = tgraph.matmul %a, %b {accumulate = f32, segment = 1024} : (!tgraph.tensor<[16384, 4096], bf16>, !tgraph.tensor<[4096, 256], bf16>) -> !tgraph.tensor<[16384, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[16384, 256], bf16>) -> ()
}

// Fewer rows leave most of it idle: segments are programs of their own.
// CHECK-LABEL: tgraph.func @idle(
// CHECK:         tgraph.matmul %a, %b {{.*}}partial = true
tgraph.func @idle(%a: !tgraph.tensor<[512, 4096], bf16>, %b: !tgraph.tensor<[4096, 256], bf16>) -> !tgraph.tensor<[512, 256], bf16> {
  %0 = tgraph.matmul %a, %b {accumulate = f32, segment = 1024} : (!tgraph.tensor<[512, 4096], bf16>, !tgraph.tensor<[4096, 256], bf16>) -> !tgraph.tensor<[512, 256], bf16>
  tgraph.return %0 : (!tgraph.tensor<[512, 256], bf16>) -> ()
}
