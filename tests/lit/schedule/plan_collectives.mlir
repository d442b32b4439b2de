// RUN: tessera-opt %s --split -p schedule-plan-collectives | filecheck %s
// RUN: tessera-opt %s --split -p 'schedule-plan-collectives{deterministic = true}' | filecheck %s --check-prefix=BITS

// Few bytes go by a tree, many by a ring, which goes through each node once; each rank sends 2 * 7/8 of them.
// CHECK-LABEL: tsched.module @node(
// CHECK:         tsched.collective %{{.*}} {pattern = "all_reduce", axis = "tp", algo = "tree", topology = {devices = 8}, plan = {hops = 6, bytes = 128, time = 3601}}
// CHECK:         tsched.collective %{{.*}} {pattern = "all_reduce", axis = "tp", algo = "ring", topology = {devices = 8}, plan = {hops = 14, bytes = 117440512, time = 269379, ring = [0, 1, 2, 3, 4, 5, 6, 7]}}
// BITS-LABEL:  tsched.module @node(
// BITS-COUNT-2: algo = "direct"
tsched.module @node(%x: !tgraph.tensor<[16], f32>, %y: !tgraph.tensor<[4096, 4096], f32>) attributes {mesh = {tp = 8}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[16], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", topology = {devices = 8}}
  %b = tsched.fuse @k(%y) : !tgraph.tensor<[4096, 4096], f32>
  tsched.collective %b {pattern = "all_reduce", axis = "tp", topology = {devices = 8}}
  tsched.return
}

// -----

// Another order of the devices is another ring; what names its algorithm keeps it.
// CHECK-LABEL: tsched.module @placed(
// CHECK:         plan = {hops = 6, bytes = 100663296, time = {{[0-9]+}}, ring = [0, 2, 1, 3]}}
// BITS-LABEL:  tsched.module @placed(
// BITS:          algo = "direct"
tsched.module @placed(%y: !tgraph.tensor<[4096, 4096], f32>) attributes {mesh = {dp = 4}} {
  %b = tsched.fuse @k(%y) : !tgraph.tensor<[4096, 4096], f32>
  tsched.collective %b {pattern = "all_reduce", axis = "dp", topology = {nodes = 1, devices = 4, peers = [[0, 2], [2, 1], [1, 3], [3, 0]]}}
  tsched.return
}

// -----

// Switches that reduce are used where the topology says that they do, and bits may change.
// CHECK-LABEL: tsched.module @switches(
// CHECK:         algo = "in_network"
// BITS-LABEL:  tsched.module @switches(
// BITS:          algo = "direct"
tsched.module @switches(%y: !tgraph.tensor<[4096, 4096], f32>) attributes {mesh = {dp = 2, tp = 8}} {
  %b = tsched.fuse @k(%y) : !tgraph.tensor<[4096, 4096], f32>
  tsched.collective %b {pattern = "all_reduce", axis = "tp", topology = {nodes = 2, devices = 8, in_network = true}}
  tsched.return
}

// -----

// Of a symbolic size nothing is known, and a pattern with a matmul is planned with it.
// CHECK-LABEL: tsched.module @left(
// CHECK:         tsched.collective %{{.*}} {pattern = "all_reduce", axis = "tp", topology = {devices = 8}}
// CHECK:         tsched.collective %{{.*}} {pattern = "RS_MM_AG", axis = "tp", topology = {devices = 8}}
// BITS-LABEL:  tsched.module @left(
tsched.module @left(%y: !tgraph.tensor<[B], f32>) attributes {mesh = {tp = 8}} {
  %b = tsched.fuse @k(%y) : !tgraph.tensor<[B], f32>
  tsched.collective %b {pattern = "all_reduce", axis = "tp", topology = {devices = 8}}
  tsched.collective %b {pattern = "RS_MM_AG", axis = "tp", topology = {devices = 8}}
  tsched.return
}

// -----

// In a region a collective is over its axis: one device of each of two nodes, whose links eight groups share.
// CHECK-LABEL: tsched.module @region(
// CHECK-NEXT:    %{{.*}} = tsched.mesh.region(axis = "dp") {
// CHECK:           tsched.collective %{{.*}} {pattern = "all_gather", axis = "dp", algo = "ring", topology = {nodes = 2, devices = 8}, plan = {hops = 1, bytes = 67108864, time = 10742418, ring = [0, 1]}}
// BITS-LABEL:  tsched.module @region(
tsched.module @region(%y: !tgraph.tensor<[4096, 4096], f32>) attributes {mesh = {dp = 2, tp = 8}} {
  %r = tsched.mesh.region(axis = "dp") {
    %b = tsched.fuse @k(%y) : !tgraph.tensor<[4096, 4096], f32>
    tsched.collective %b {pattern = "all_gather", axis = "dp", topology = {nodes = 2, devices = 8}}
    tsched.yield %b
  }
  tsched.return
}
