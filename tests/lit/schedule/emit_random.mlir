// RUN: tessera-opt %s -p schedule-form-groups,schedule-emit-tiles | filecheck %s

// 64 random bits by Philox4x32-10 for each u64 counter, under a key and a stream (upper counter words). The first of ten rounds, with Philox's multipliers and the bumps of its key.
// CHECK-LABEL: tsched.module @philox(
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [N3*N37]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.load %1, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [0], bounds = [N3*N37]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.load %2, %{{[a-z0-9]+}} {coords = ["_p0"], axes = ["_p0"], map = [0], bounds = [N3*N37]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.constant {value = 32} : {{.*}} -> !ttile.tile<{{.*}}, u64>
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.cast %[[V0]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.elementwise %[[V0]], %[[V3]] {fn = "shr"}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = ttile.cast %[[V5]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = ttile.cast %[[V2]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = ttile.elementwise %[[V2]], %[[V3]] {fn = "shr"}
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = ttile.cast %[[V8]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = ttile.cast %[[V1]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = ttile.elementwise %[[V1]], %[[V3]] {fn = "shr"}
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = ttile.cast %[[V11]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = ttile.cast %[[V4]] : {{.*}} -> !ttile.tile<{{.*}}, u64>
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = ttile.constant {value = 3528531795} : {{.*}} -> !ttile.tile<{{.*}}, u64>
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = ttile.elementwise %[[V13]], %[[V14]] {fn = "mul"}
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = ttile.cast %[[V7]] : {{.*}} -> !ttile.tile<{{.*}}, u64>
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = ttile.constant {value = 3449720151} : {{.*}} -> !ttile.tile<{{.*}}, u64>
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = ttile.elementwise %[[V16]], %[[V17]] {fn = "mul"}
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = ttile.elementwise %[[V18]], %[[V3]] {fn = "shr"}
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = ttile.cast %[[V19]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V21:[a-z0-9]+]] = ttile.elementwise %[[V20]], %[[V6]] {fn = "xor"}
// CHECK-NEXT:  %[[V22:[a-z0-9]+]] = ttile.elementwise %[[V21]], %[[V10]] {fn = "xor"}
// CHECK-NEXT:  %[[V23:[a-z0-9]+]] = ttile.cast %[[V18]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V24:[a-z0-9]+]] = ttile.elementwise %[[V15]], %[[V3]] {fn = "shr"}
// CHECK-NEXT:  %[[V25:[a-z0-9]+]] = ttile.cast %[[V24]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V26:[a-z0-9]+]] = ttile.elementwise %[[V25]], %[[V9]] {fn = "xor"}
// CHECK-NEXT:  %[[V27:[a-z0-9]+]] = ttile.elementwise %[[V26]], %[[V12]] {fn = "xor"}
// CHECK-NEXT:  %[[V28:[a-z0-9]+]] = ttile.cast %[[V15]] {rounding = "wrap"} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V29:[a-z0-9]+]] = ttile.constant {value = 2654435769} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V30:[a-z0-9]+]] = ttile.elementwise %[[V10]], %[[V29]] {fn = "add"}
// CHECK-NEXT:  %[[V31:[a-z0-9]+]] = ttile.constant {value = 3144134277} : {{.*}} -> !ttile.tile<{{.*}}, u32>
// CHECK-NEXT:  %[[V32:[a-z0-9]+]] = ttile.elementwise %[[V12]], %[[V31]] {fn = "add"}
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK:       value = 3528531795
// CHECK-NOT:   value = 3528531795
// CHECK:       ttile.store %{{[a-z0-9]+}}, %3,
tgraph.func @philox(%x0: !tgraph.tensor<[N3, N37], u64>, %x1: !tgraph.tensor<[], u64>, %x2: !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], u64> attributes {names = ["x0", "x1", "x2"]} {
  %0 = tgraph.philox %x0, %x1, %x2 : (!tgraph.tensor<[N3, N37], u64>, !tgraph.tensor<[], u64>, !tgraph.tensor<[1], u64>) -> !tgraph.tensor<[N3, N37], u64>
  tgraph.return %0 : (!tgraph.tensor<[N3, N37], u64>) -> ()
}
