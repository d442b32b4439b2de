// RUN: not tessera-opt %s 2>&1 | filecheck %s

// A kernel lives in the process that declared it; a text can only name it.
// CHECK: error[T0301]: there is no kernel `positive` in this process
tgraph.func @main(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> {
  %0 = tgraph.kernel_call %x {kernel = "positive"} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}
