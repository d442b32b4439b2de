// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A layout names axes that there are.
// CHECK: error[T0401]: `tsched.layout` is over mesh axis `ep`, and the mesh of this program has `dp` (2 ranks), `tp` (4 ranks)
// CHECK: help: name one of them, or declare it: `mesh = {ep = 2}`
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["0"], mesh_axes = ["ep"]}
  tsched.return
}

// -----

// A shard is a whole number of elements.
// CHECK: error[T0401]: `tsched.layout` shards dim `0` over `tp`: 6 elements among 4 ranks leave 2 over
// CHECK: help: pad it to 8, or shard another dim; rule: a shard has 6/4 elements, an integer
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["0"], mesh_axes = ["tp"]}
  tsched.return
}

// -----

// Two axes on one dim divide it by both.
// CHECK: error[T0401]: `tsched.layout` shards dim `1` over `dp` and `tp`: 12 elements among 8 ranks leave 4 over
tsched.module @f(%x: !tgraph.tensor<[6, 12], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["1", "1"], mesh_axes = ["dp", "tp"]}
  tsched.return
}

// -----

// Of a symbolic dim it is proved, or refused.
// CHECK: error[T0401]: `tsched.layout` shards dim `B` over `tp`: B is not known to be a multiple of 4
// CHECK: help: declare `B % 4 == 0`; in IR, a guard of the program: `[dim<B>, dim<4*n>, "shards"]`
tsched.module @f(%x: !tgraph.tensor<[B, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["B"], mesh_axes = ["tp"]}
  tsched.return
}

// -----

// What the guards say may also refute it.
// CHECK: error[T0401]: `tsched.layout` shards dim `B` over `tp`: B is not a multiple of 4
tsched.module @f(%x: !tgraph.tensor<[B, 8], f32>) attributes {guards = [[dim<B>, dim<8*n + 2>, "odd"]], mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["B"], mesh_axes = ["tp"]}
  tsched.return
}

// -----

// A dim is one of the tensor.
// CHECK: error[T0401]: `partition` names dim `head`, and the dims of [6, 8] f32 are `0`, `1`
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["head"], mesh_axes = ["tp"]}
  tsched.return
}

// -----

// A rank has one position along an axis.
// CHECK: error[T0401]: mesh axis `dp` shards 2 dims of one tensor, ['0', '1']
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["0", "1"], mesh_axes = ["dp", "dp"]}
  tsched.return
}

// -----

// A value has one layout.
// CHECK: error[T0401]: a value has one layout, and this one has two
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["0"], mesh_axes = ["dp"]}
  tsched.layout %x {partition = ["1"], mesh_axes = ["tp"]}
  tsched.return
}

// -----

// A mesh has ranks.
// CHECK: error[T0401]: mesh axis `dp` has at least 1 rank, got 0
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 0}} {

  tsched.return
}

// -----

// A collective is over an axis that there is.
// CHECK: error[T0401]: `tsched.collective` is over mesh axis `pp`, and the mesh of this program has `dp` (2 ranks), `tp` (4 ranks)
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "pp"}
  tsched.return
}

// -----

// A pattern is one that is planned.
// CHECK: error[T0401]: `pattern` of `tsched.collective` is one of RS_MM_AG, AG_MM, MM_RS, all_reduce, all_gather, reduce_scatter, all_to_all, got 'broadcast'
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "broadcast", axis = "tp"}
  tsched.return
}

// -----

// So is an algorithm.
// CHECK: error[T0401]: `algo` of `tsched.collective` is one of ring, tree, direct, hierarchical, in_network, got 'butterfly'
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", algo = "butterfly"}
  tsched.return
}

// -----

// And a dtype on the wire.
// CHECK: error[T0401]: `quantize` of `tsched.collective` is one of off, fp8, fp8_e4m3, fp8_e5m2, bf16, got 'int3'
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", quantize = "int3"}
  tsched.return
}

// -----

// A tree leads to one rank.
// CHECK: error[T0401]: `tree` has no all_to_all: a tree reduces to one rank, or sends from one
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_to_all", axis = "tp", algo = "tree"}
  tsched.return
}

// -----

// What is scattered comes out even.
// CHECK: error[T0401]: `tsched.collective` shards the elements of [3, 5] f32 over `tp`: 15 elements among 4 ranks leave 3 over
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[3, 5], f32>
  tsched.collective %a {pattern = "reduce_scatter", axis = "tp"}
  tsched.return
}

// -----

// The ranks of an axis are devices of the topology.
// CHECK: error[T0401]: `tp` has 4 ranks, and the topology 1 x 6 = 6
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", topology = {nodes = 1, devices = 6}}
  tsched.return
}

// -----

// Only switches that reduce, reduce.
// CHECK: error[T0401]: `in_network` needs switches that reduce, and the topology says of none that it does
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", algo = "in_network", topology = {devices = 8}}
  tsched.return
}

// -----

// A topology is described by what it has.
// CHECK: error[T0401]: a topology has no `racks`; it has nodes, devices, inside, between
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.collective %a {pattern = "all_reduce", axis = "tp", topology = {racks = 2}}
  tsched.return
}

// -----

// A region is of an axis that there is.
// CHECK: error[T0401]: `tsched.mesh.region` is over mesh axis `sp`, and the mesh of this program has `dp` (2 ranks), `tp` (4 ranks)
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %y = tsched.mesh.region(axis = "sp") {

    tsched.yield %x
  }
  tsched.return
}

// -----

// With as many ranks.
// CHECK: error[T0401]: the region of `tp` is for 8 ranks, and that axis of the mesh has 4
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %y = tsched.mesh.region(axis = "tp", size = 8) {

    tsched.yield %x
  }
  tsched.return
}

// -----

// And not within another of that axis.
// CHECK: error[T0401]: a region of `dp` is within another of that axis
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %y = tsched.mesh.region(axis = "dp") {
    %z = tsched.mesh.region(axis = "dp") {
      tsched.yield %x
    }
    tsched.yield %x
  }
  tsched.return
}

// -----

// In a region values are one rank's part: they are not sharded over its axis once more.
// CHECK: error[T0401]: `tsched.layout` shards over `dp` within the region of that axis
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %y = tsched.mesh.region(axis = "dp") {
    tsched.layout %x {partition = ["1"], mesh_axes = ["dp"]}
    tsched.yield %x
  }
  tsched.return
}

// -----

// Collectives in a region are over axes of regions.
// CHECK: error[T0401]: `tsched.collective` is over `tp`, and the regions around it are of 'dp'
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %y = tsched.mesh.region(axis = "dp") {
    %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
    tsched.collective %a {pattern = "all_reduce", axis = "tp"}
    tsched.yield %x
  }
  tsched.return
}

// -----

// A pipeline has microbatches for all of its stages.
// CHECK: error[T0401]: 4 microbatches never fill 8 stages
// CHECK: help: write `microbatch = 8` or more, or fewer stages
tsched.pipeline @train {axis = "pp", stages = 8, microbatch = 4}

// -----

// A schedule is one that is known.
// CHECK: error[T0401]: `schedule` is one of 1f1b, interleaved, got 'zb-h1'
// CHECK: help: write `schedule = "1f1b"`
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "zb-h1", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// Each rank of the axis has a stage.
// CHECK: error[T0401]: `pp` has 4 ranks, and the pipeline 2 stages along it
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 4}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", stages = 2, microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// Interleaved stages take microbatches in groups.
// CHECK: error[T0401]: interleaved stages take microbatches 2 at a time, and 5 microbatches leave 1 over
// CHECK: help: write `microbatch = 6`, or `1f1b`
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "interleaved", axis = "pp", microbatch = 5, chunks = 2) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// They have several chunks on a rank, and 1f1b has one.
// CHECK: error[T0401]: 1f1b has 1 chunk on a rank, got 2
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8, chunks = 2) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// Every stage has work.
// CHECK: error[T0401]: nothing is in stage 1 of 2
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 0} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// Stages have the numbers of the pipeline.
// CHECK: error[T0401]: stage 2 of a pipeline of 2: they have the numbers 0 to 1
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 2} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// What a stage gives does not come back to an earlier one.
// CHECK: error[T0401]: stage 0 reads what stage 1 gives: 0 -> ... -> 1 -> 0 is a cycle
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    %c = tsched.stage @h(%b) {index = 0} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %c
  }
  tsched.return
}

// -----

// Nor does it pass a stage by.
// CHECK: error[T0401]: stage 2 reads what stage 0 gives, past stage 1
// CHECK: help: ranks send to their neighbours: let stage 1 take it and give it on
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 3}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    %c = tsched.stage @h(%a, %b) {index = 2} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %c
  }
  tsched.return
}

// -----

// And somebody takes it.
// CHECK: error[T0401]: nobody reads what stage 1 gives
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    tsched.yield %a
  }
  tsched.return
}

// -----

// What runs in a pipeline runs in a stage.
// CHECK: error[T0401]: `tsched.fuse` is in a pipeline, and in no stage of it
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", microbatch = 8) {
    %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
    %b = tsched.stage @g(%a) {index = 1} : !tgraph.tensor<[6, 8], f32>
    %c = tsched.fuse @k(%b) : !tgraph.tensor<[6, 8], f32>
    tsched.yield %b
  }
  tsched.return
}

// -----

// A stage stands in a pipeline.
// CHECK: error[T0401]: a stage stands in a `tsched.pipeline.region`, not in a `tsched.module`
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) attributes {mesh = {dp = 2, tp = 4}} {
  %a = tsched.stage @f(%x) {index = 0} : !tgraph.tensor<[6, 8], f32>
  tsched.return
}

// -----

// A function is one group.
// CHECK: error[T0401]: `tsched.func` is one fusion group, a future kernel, and this one has 2
tsched.func @f(%x: !tgraph.tensor<[6, 8], f32>) -> !tgraph.tensor<[6, 8], f32> {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  %b = tsched.fuse @k(%a) : !tgraph.tensor<[6, 8], f32>
  tsched.return %b
}

// -----

// And gives what the group gives.
// CHECK: error[T0401]: `tsched.func` returns the results of its group, all of them in their order
tsched.func @f(%x: !tgraph.tensor<[6, 8], f32>) -> !tgraph.tensor<[6, 8], f32> {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[6, 8], f32>
  tsched.return %x
}

// -----

// An annotation says how many buffers there are, once.
// CHECK: error[T0401]: `pipeline` says `double_buffer` or `stages`, one of them, got ['double_buffer', 'stages']
%0 = "tessera.schedule.pipeline"(%A) {double_buffer = true, stages = 3}

// -----

// And of what.
// CHECK: error[T0401]: `tessera.schedule.pipeline` names the values that loops are to prefetch, and there are none
%0 = "tessera.schedule.pipeline"() {double_buffer = true}

// -----

// Orders that are written by hand run every action.
// CHECK: error[T0401]: the order of rank 1 has `B1` not
// CHECK: help: leave the orders out, and those of the schedule are taken
tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2, orders = [["F0", "F1", "B0", "B1"], ["F0", "F1", "B0"]]}

// -----

// Once.
// CHECK: error[T0401]: the order of rank 0 has `F0` twice
tsched.pipeline @train {axis = "pp", stages = 1, microbatch = 1, orders = [["F0", "F0", "B0"]]}

// -----

// And ranks do not wait for each other.
// CHECK: error[T0401]: rank 0 waits at `B0` for `B0` of rank 1, which waits too: a deadlock
// CHECK: help: run what it waits for earlier
tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2, orders = [["F0", "B0", "F1", "B1"], ["F0", "F1", "B0", "B1"]]}

// -----

// There is an order for each rank.
// CHECK: error[T0401]: there are orders of 1 ranks, and 2 stages
tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2, orders = [["F0", "B0", "F1", "B1"]]}

// -----

// An action is a forward or a backward.
// CHECK: error[T0401]: `W0` is no action: they are `F3` and `B0.1`
tsched.pipeline @train {axis = "pp", stages = 1, microbatch = 1, orders = [["F0", "B0", "W0"]]}

// -----

// A list for each rank.
// CHECK: error[T0401]: `orders` has a list for each rank, got 3
tsched.pipeline @train {axis = "pp", stages = 1, microbatch = 1, orders = 3}

// -----

// Numbers that nobody has are refused before anything is written down.
// CHECK: error[T0401]: nothing is in stage 0 of 1000000000000
tsched.module {
  %y = tsched.pipeline.region(schedule = "1f1b", axis = "pp", stages = 1000000000000, microbatch = 1000000000000) {
    tsched.yield %x
  }
  tsched.return %y
}

// -----

// And so is a plan that is too long.
// CHECK: error[T0401]: 1 stages of 1 chunks and 1000000000 microbatches are too many to list
tsched.pipeline @train {axis = "pp", stages = 1, microbatch = 1000000000, orders = [["F0"]]}

// -----

// An order in memory has each dim once.
// CHECK: error[T0401]: `order` names each dim of the tensor once, the innermost last: it has 2, got [1, 1]
// CHECK: help: write an order of 0, 1
tsched.module @f(%x: !tgraph.tensor<[6, 8], f32>) {
  tsched.layout %x {order = [1, 1]}
  tsched.return
}
