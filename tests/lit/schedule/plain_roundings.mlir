// RUN: tessera-opt %s -p schedule-emit-tiles | filecheck %s

// A rounding to nearest that is cast to that format next is the cast alone: its bits are the same.
// CHECK-LABEL: ttile.kernel @plain(
// CHECK:         %[[SUM:[a-z0-9]+]] = ttile.elementwise {{.*}}{fn = "add"}
// CHECK-NOT:     ttile.round
// CHECK:         ttile.cast %[[SUM]] {rounding = "nearest_even"}
// CHECK-NOT:     ttile.round
// CHECK:         ttile.return
tsched.module @one(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16> attributes {tessera.numerics.policy = {storage = bf16}} {
  %a = tsched.fuse @plain(%x) {kind = "map", sizes = []} : !tgraph.tensor<[64], bf16>
  tsched.return %a
}
tgraph.func @plain(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16> {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %1 = tgraph.round_to %0 {format = "bf16"} : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16>
  tgraph.return %1 : (!tgraph.tensor<[64], bf16>) -> ()
}

// What saturates is held at the ends of its format, and then cast.
// CHECK-LABEL: ttile.kernel @held(
// CHECK:         %[[SUM:[a-z0-9]+]] = ttile.elementwise {{.*}}{fn = "add"}
// CHECK-NEXT:    %[[LOW:[a-z0-9]+]] = ttile.constant {value = -65504.0}
// CHECK-NEXT:    %[[ABOVE:[a-z0-9]+]] = ttile.elementwise %[[SUM]], %[[LOW]] {fn = "max"}
// CHECK-NEXT:    %[[HIGH:[a-z0-9]+]] = ttile.constant {value = 65504.0}
// CHECK-NEXT:    %[[BOTH:[a-z0-9]+]] = ttile.elementwise %[[ABOVE]], %[[HIGH]] {fn = "min"}
// CHECK-NEXT:    ttile.cast %[[BOTH]] {rounding = "nearest_even"}
// CHECK-NOT:     ttile.round
// CHECK:         ttile.return
tsched.module @two(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f16> attributes {tessera.numerics.policy = {storage = f16, saturation = "saturate"}} {
  %a = tsched.fuse @held(%x) {kind = "map", sizes = []} : !tgraph.tensor<[64], f16>
  tsched.return %a
}
tgraph.func @held(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f16> {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %1 = tgraph.round_to %0 {format = "f16", saturation = "saturate"} : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f16>
  tgraph.return %1 : (!tgraph.tensor<[64], f16>) -> ()
}

// Any other rounding stays as it is.
// CHECK-LABEL: ttile.kernel @cut(
// CHECK:         ttile.round {{.*}}format = "bf16", rounding = "toward_zero"
// CHECK:         ttile.return
tsched.module @three(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16> attributes {tessera.numerics.policy = {storage = bf16, rounding = "toward_zero"}} {
  %a = tsched.fuse @cut(%x) {kind = "map", sizes = []} : !tgraph.tensor<[64], bf16>
  tsched.return %a
}
tgraph.func @cut(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16> {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %1 = tgraph.round_to %0 {format = "bf16", rounding = "toward_zero"} : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], bf16>
  tgraph.return %1 : (!tgraph.tensor<[64], bf16>) -> ()
}
