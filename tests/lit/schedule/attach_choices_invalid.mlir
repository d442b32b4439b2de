// RUN: not tessera-opt %s --split -p 'schedule-attach-choices{tile = [32, 32, 32]}' 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split -p 'schedule-attach-choices{algo = "rings"}' 2>&1 | filecheck %s --check-prefix=ALGO

// A tile that is none of the candidates is refused at its line, and so is an algorithm that there is not.
// CHECK: error[T0401]: `chosen` is none of the candidates [(128, 64, 64), (64, 64, 64)], got (32, 32, 32)
// ALGO: error[T0401]: `algo` of `tsched.collective` is one of ring, tree, direct, hierarchical, in_network, got 'rings'
tsched.module {
  %a = tsched.fuse @f(%x)
  tsched.tile %a candidates = [[128, 64, 64], [64, 64, 64]]
  tsched.collective %a {pattern = "all_reduce", axis = "tp"}
  tsched.return %a
}
