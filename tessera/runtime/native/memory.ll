; A caching allocator of 64-byte aligned blocks, for outputs, workspaces and scratch.
; Freed blocks wait in bins by size class (four classes to a power of two), so the pages of a large output are faulted in
; once and not at every call. From 2 MiB on, blocks are mapped apart, aligned for huge pages.

; Limit, cached, in use, peak in use (bytes); requests, hits, evictions; the bin the next eviction starts from. In use are
; the bytes asked for, as a memory plan predicts them; cached are whole blocks, each as large as its class.
%MemoryStats = type { i64, i64, i64, i64, i64, i64, i64, i64 }

; Lies in the 64 bytes before a block: next block of its bin, its class, the mapping it came from, bytes of the mapping
; (0: the block is libc's), bytes that were asked for.
%Header = type { ptr, i64, ptr, i64, i64 }

@memory_lock = internal global i32 0, align 64
@memory_bins = internal global [256 x ptr] zeroinitializer, align 64
@tessera_memory_stats = global %MemoryStats { i64 1073741824, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0 }, align 64

define void @tessera_memory_lock() #0 {
entry:
  br label %try
try:
  %n = phi i32 [ 0, %entry ], [ %n.next, %spin ], [ 0, %yield ]
  %swap = cmpxchg ptr @memory_lock, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %done, label %held
held:
  %n.next = add i32 %n, 1
  %long = icmp ugt i32 %n.next, 64
  br i1 %long, label %yield, label %spin
spin:
  call void @llvm.x86.sse2.pause()
  br label %try
yield:
  %ignored = call i32 @sched_yield()
  br label %try
done:
  ret void
}

define void @tessera_memory_unlock() #0 {
  store atomic i32 0, ptr @memory_lock release, align 4
  ret void
}

; The class of a block of `bytes`: with u = bytes in units of 64, classes 0..3 hold 1..4 units and class 4(e-1)+t, where
; e is the exponent and t the next two bits of u-1, holds (5+t) << (e-2).
define internal i64 @class_of(i64 %bytes) #0 {
entry:
  %up = add i64 %bytes, 63
  %whole = lshr i64 %up, 6
  %none = icmp eq i64 %whole, 0
  %units = select i1 %none, i64 1, i64 %whole
  %m = sub i64 %units, 1
  %small = icmp ult i64 %m, 4
  br i1 %small, label %few, label %many
few:
  ret i64 %m
many:
  %zeros = call i64 @llvm.ctlz.i64(i64 %m, i1 true)
  %e = sub i64 63, %zeros
  %shift = sub i64 %e, 2
  %top = lshr i64 %m, %shift
  %t = and i64 %top, 3
  %row = sub i64 %e, 1
  %base = shl i64 %row, 2
  %class = add i64 %base, %t
  ret i64 %class
}

define internal i64 @class_bytes(i64 %class) #0 {
entry:
  %small = icmp ult i64 %class, 4
  br i1 %small, label %few, label %many
few:
  %units = add i64 %class, 1
  %few.bytes = shl i64 %units, 6
  ret i64 %few.bytes
many:
  %row = lshr i64 %class, 2
  %t = and i64 %class, 3
  %mantissa = add i64 %t, 5
  %shift = add i64 %row, 5
  %bytes = shl i64 %mantissa, %shift
  ret i64 %bytes
}

; A block of `bytes` nobody has used before, of which `asked` were asked for, or null.
define internal ptr @block_new(i64 %class, i64 %bytes, i64 %asked) #0 {
entry:
  %large = icmp uge i64 %bytes, 2097152
  br i1 %large, label %map, label %small
small:
  %with_header = add i64 %bytes, 64
  %raw = call ptr @aligned_alloc(i64 64, i64 %with_header)
  %raw.null = icmp eq ptr %raw, null
  br i1 %raw.null, label %fail, label %raw.ok
raw.ok:
  %raw.block = getelementptr i8, ptr %raw, i64 64
  br label %finish
map:
  ; Room for one page with the header, then the data at a multiple of 2 MiB; what is left over on both sides goes back.
  %up = add i64 %bytes, 2097151
  %data = and i64 %up, -2097152
  %room = add i64 %data, 2101248
  %start = call ptr @mmap(ptr null, i64 %room, i32 3, i32 34, i32 -1, i64 0)
  %start.int = ptrtoint ptr %start to i64
  %failed = icmp eq i64 %start.int, -1
  br i1 %failed, label %fail, label %mapped
mapped:
  %first = add i64 %start.int, 2101247
  %aligned = and i64 %first, -2097152
  %page = sub i64 %aligned, 4096
  %page.ptr = inttoptr i64 %page to ptr
  %before = sub i64 %page, %start.int
  %has_before = icmp ne i64 %before, 0
  br i1 %has_before, label %trim_before, label %check_after
trim_before:
  %r0 = call i32 @munmap(ptr %start, i64 %before)
  br label %check_after
check_after:
  %end = add i64 %aligned, %data
  %room.end = add i64 %start.int, %room
  %after = sub i64 %room.end, %end
  %has_after = icmp ne i64 %after, 0
  br i1 %has_after, label %trim_after, label %advise
trim_after:
  %end.ptr = inttoptr i64 %end to ptr
  %r1 = call i32 @munmap(ptr %end.ptr, i64 %after)
  br label %advise
advise:
  %block.ptr = inttoptr i64 %aligned to ptr
  %r2 = call i32 @madvise(ptr %block.ptr, i64 %data, i32 14)
  %span = add i64 %data, 4096
  br label %finish
finish:
  %block = phi ptr [ %raw.block, %raw.ok ], [ %block.ptr, %advise ]
  %origin = phi ptr [ %raw, %raw.ok ], [ %page.ptr, %advise ]
  %mapping = phi i64 [ 0, %raw.ok ], [ %span, %advise ]
  %header = getelementptr i8, ptr %block, i64 -64
  store ptr null, ptr %header, align 8
  %class.at = getelementptr %Header, ptr %header, i32 0, i32 1
  store i64 %class, ptr %class.at, align 8
  %origin.at = getelementptr %Header, ptr %header, i32 0, i32 2
  store ptr %origin, ptr %origin.at, align 8
  %mapping.at = getelementptr %Header, ptr %header, i32 0, i32 3
  store i64 %mapping, ptr %mapping.at, align 8
  %asked.at = getelementptr %Header, ptr %header, i32 0, i32 4
  store i64 %asked, ptr %asked.at, align 8
  ret ptr %block
fail:
  ret ptr null
}

; Give a chain of blocks (linked through their headers) back to the system.
define internal void @chain_release(ptr %first) #1 {
entry:
  br label %loop
loop:
  %block = phi ptr [ %first, %entry ], [ %next, %again ]
  %end = icmp eq ptr %block, null
  br i1 %end, label %done, label %one
one:
  %header = getelementptr i8, ptr %block, i64 -64
  %next = load ptr, ptr %header, align 8
  %origin.at = getelementptr %Header, ptr %header, i32 0, i32 2
  %origin = load ptr, ptr %origin.at, align 8
  %mapping.at = getelementptr %Header, ptr %header, i32 0, i32 3
  %mapping = load i64, ptr %mapping.at, align 8
  %libc = icmp eq i64 %mapping, 0
  br i1 %libc, label %release, label %unmap
release:
  call void @free(ptr %origin)
  br label %again
unmap:
  %r = call i32 @munmap(ptr %origin, i64 %mapping)
  br label %again
again:
  br label %loop
done:
  ret void
}

; Under the lock: take blocks out of the bins, one bin after another, until at most `target` bytes are cached; gives the
; chain of them. Rotating over the bins lets sizes that are no longer asked for leave first or last by chance, never stay.
define internal ptr @evict(i64 %target) #1 {
entry:
  %cached.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 1
  %evicted.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 6
  %cursor.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 7
  br label %loop
loop:
  %chain = phi ptr [ null, %entry ], [ %chain, %empty ], [ %block, %take ]
  %cached = load i64, ptr %cached.at, align 8
  %enough = icmp sle i64 %cached, %target
  br i1 %enough, label %done, label %look
look:
  %cursor = load i64, ptr %cursor.at, align 8
  %bin = getelementptr [256 x ptr], ptr @memory_bins, i64 0, i64 %cursor
  %block = load ptr, ptr %bin, align 8
  %none = icmp eq ptr %block, null
  br i1 %none, label %empty, label %take
empty:
  %cursor.next = add i64 %cursor, 1
  %cursor.wrapped = and i64 %cursor.next, 255
  store i64 %cursor.wrapped, ptr %cursor.at, align 8
  br label %loop
take:
  %header = getelementptr i8, ptr %block, i64 -64
  %next = load ptr, ptr %header, align 8
  store ptr %next, ptr %bin, align 8
  store ptr %chain, ptr %header, align 8
  %bytes = call i64 @class_bytes(i64 %cursor)
  %left = sub i64 %cached, %bytes
  store i64 %left, ptr %cached.at, align 8
  %evicted = load i64, ptr %evicted.at, align 8
  %evicted.next = add i64 %evicted, 1
  store i64 %evicted.next, ptr %evicted.at, align 8
  br label %loop
done:
  ret ptr %chain
}

; `bytes` bytes at a multiple of 64, contents undefined; null when there is no memory.
define ptr @tessera_alloc(i64 %bytes) #0 {
entry:
  %huge = icmp ugt i64 %bytes, 140737488355328
  br i1 %huge, label %fail, label %sized
sized:
  %class = call i64 @class_of(i64 %bytes)
  %size = call i64 @class_bytes(i64 %class)
  %bin = getelementptr [256 x ptr], ptr @memory_bins, i64 0, i64 %class
  %cached.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 1
  %used.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 2
  %peak.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 3
  %requests.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 4
  %hits.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 5
  call void @tessera_memory_lock()
  %used = load i64, ptr %used.at, align 8
  %used.next = add i64 %used, %bytes
  store i64 %used.next, ptr %used.at, align 8
  %peak = load i64, ptr %peak.at, align 8
  %higher = icmp sgt i64 %used.next, %peak
  %peak.next = select i1 %higher, i64 %used.next, i64 %peak
  store i64 %peak.next, ptr %peak.at, align 8
  %requests = load i64, ptr %requests.at, align 8
  %requests.next = add i64 %requests, 1
  store i64 %requests.next, ptr %requests.at, align 8
  %head = load ptr, ptr %bin, align 8
  %miss = icmp eq ptr %head, null
  br i1 %miss, label %new, label %hit
hit:
  %header = getelementptr i8, ptr %head, i64 -64
  %next = load ptr, ptr %header, align 8
  store ptr %next, ptr %bin, align 8
  %asked.at = getelementptr %Header, ptr %header, i32 0, i32 4
  store i64 %bytes, ptr %asked.at, align 8
  %cached = load i64, ptr %cached.at, align 8
  %cached.next = sub i64 %cached, %size
  store i64 %cached.next, ptr %cached.at, align 8
  %hits = load i64, ptr %hits.at, align 8
  %hits.next = add i64 %hits, 1
  store i64 %hits.next, ptr %hits.at, align 8
  call void @tessera_memory_unlock()
  ret ptr %head
new:
  call void @tessera_memory_unlock()
  %fresh = call ptr @block_new(i64 %class, i64 %size, i64 %bytes)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %drop, label %give
give:
  ret ptr %fresh
drop:
  ; Give the cache up and try once more before saying no.
  call void @tessera_memory_trim(i64 0)
  %second = call ptr @block_new(i64 %class, i64 %size, i64 %bytes)
  %refused.again = icmp eq ptr %second, null
  br i1 %refused.again, label %undo, label %give.second
give.second:
  ret ptr %second
undo:
  call void @tessera_memory_lock()
  %used.now = load i64, ptr %used.at, align 8
  %used.less = sub i64 %used.now, %bytes
  store i64 %used.less, ptr %used.at, align 8
  call void @tessera_memory_unlock()
  br label %fail
fail:
  ret ptr null
}

; Take back a block of `tessera_alloc` (null is allowed), on any thread.
define void @tessera_free(ptr %block) #0 {
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %some
some:
  %header = getelementptr i8, ptr %block, i64 -64
  %class.at = getelementptr %Header, ptr %header, i32 0, i32 1
  %class = load i64, ptr %class.at, align 8
  %size = call i64 @class_bytes(i64 %class)
  %asked.at = getelementptr %Header, ptr %header, i32 0, i32 4
  %asked = load i64, ptr %asked.at, align 8
  %bin = getelementptr [256 x ptr], ptr @memory_bins, i64 0, i64 %class
  %limit.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 0
  %cached.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 1
  %used.at = getelementptr %MemoryStats, ptr @tessera_memory_stats, i32 0, i32 2
  call void @tessera_memory_lock()
  %used = load i64, ptr %used.at, align 8
  %used.next = sub i64 %used, %asked
  store i64 %used.next, ptr %used.at, align 8
  %limit = load i64, ptr %limit.at, align 8
  %room = sub i64 %limit, %size
  %too_big = icmp slt i64 %room, 0
  br i1 %too_big, label %refuse, label %keep
refuse:
  store ptr null, ptr %header, align 8
  call void @tessera_memory_unlock()
  call void @chain_release(ptr %block)
  ret void
keep:
  %victims = call ptr @evict(i64 %room)
  %cached = load i64, ptr %cached.at, align 8
  %cached.next = add i64 %cached, %size
  store i64 %cached.next, ptr %cached.at, align 8
  %head = load ptr, ptr %bin, align 8
  store ptr %head, ptr %header, align 8
  store ptr %block, ptr %bin, align 8
  call void @tessera_memory_unlock()
  call void @chain_release(ptr %victims)
  br label %done
done:
  ret void
}

; Give cached blocks back to the system until at most `target` bytes stay cached.
define void @tessera_memory_trim(i64 %target) #1 {
  call void @tessera_memory_lock()
  %victims = call ptr @evict(i64 %target)
  call void @tessera_memory_unlock()
  call void @chain_release(ptr %victims)
  ret void
}
