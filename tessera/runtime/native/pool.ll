; The thread pool: the caller helps, tasks are taken from one counter, and a call is complete when all tasks are done and
; no worker is inside. A worker that the system has put aside before it entered is never waited for.

; Each field that threads fight over has a cache line of its own.
;  0 generation (the futex workers sleep on)   2 next task
;  4 kernel  5 context  6 tasks  7 scratch bytes  8 the caller's CPU  9 the most parts of a task
; 10 how many workers are inside, plus 2^30 while the call is open
; 12 sleepers
; 14 busy  15 threads  16 workers started  17 epoch (workers of an older one leave)  18 nanoseconds to spin
%Pool = type { i32, [60 x i8], i64, [56 x i8], ptr, ptr, i64, i64, i32, { i64, [16 x i8] },
               i32, [60 x i8], i32, [60 x i8],
               i32, i32, i32, i32, i64, [40 x i8] }

@pool = internal global %Pool { i32 0, [60 x i8] zeroinitializer, i64 0, [56 x i8] zeroinitializer, ptr null, ptr null,
  i64 0, i64 0, i32 0, { i64, [16 x i8] } zeroinitializer, i32 0, [60 x i8] zeroinitializer, i32 0, [60 x i8] zeroinitializer,
  i32 0, i32 1, i32 0, i32 0, i64 200000, [40 x i8] zeroinitializer }, align 64

define internal i64 @now() #0 {
  %time = alloca [2 x i64], align 16
  %ignored = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; How a thread does its tasks: into how many parts it cuts one, the most that it may, when it began the last part (in
; cycles), and how it learns that the call is stopped: never (0), by asking Python, as the main thread (1), or by being
; told, as one who works with the pool (2).
%Pace = type { i64, i64, i64, i32 }

; A task in parts, so that between two of them the thread sees that the call is stopped; whether it is. A part is the
; task of that number where there were so many tasks, which kernels allow. The first parts are quarters, as nobody knows
; how long they take; after one that is done in a millisecond (2^22 cycles) parts are twice as large, above 20 ms an
; eighth. Quarters cost a kernel of 6 us 150 ns (two calls, four divisions); one is 0.3 s of 10 s on two threads.
define internal i1 @run_task(ptr %kernel, ptr %context, i64 %task, i64 %tasks, ptr %scratch, ptr %pace) #0 {
entry:
  %most.at = getelementptr %Pace, ptr %pace, i32 0, i32 1
  %began.at = getelementptr %Pace, ptr %pace, i32 0, i32 2
  %role.at = getelementptr %Pace, ptr %pace, i32 0, i32 3
  %parts.before = load i64, ptr %pace, align 8
  %most = load i64, ptr %most.at, align 8
  %began.before = load i64, ptr %began.at, align 8
  %role = load i32, ptr %role.at, align 4
  br label %run
run:
  %parts = phi i64 [ %parts.before, %entry ], [ %parts.next, %go_on ]
  %part = phi i64 [ 0, %entry ], [ %part.next, %go_on ]
  %began = phi i64 [ %began.before, %entry ], [ %now, %go_on ]
  %earlier = mul i64 %task, %parts
  %number = add i64 %earlier, %part
  %count = mul i64 %tasks, %parts
  call void %kernel(ptr %context, i64 %number, i64 %count, ptr %scratch)
  %now = call i64 @llvm.readcyclecounter()
  %took = sub i64 %now, %began
  %after = add i64 %part, 1
  %odd.bit = and i64 %after, 1
  %even = icmp eq i64 %odd.bit, 0
  %short = icmp ult i64 %took, 4194304
  %several = icmp ugt i64 %parts, 1
  %may_halve = and i1 %short, %several
  %halve = and i1 %may_halve, %even
  %long = icmp ugt i64 %took, 67108864
  %few = icmp ult i64 %parts, %most
  %refine = and i1 %long, %few
  %parts.half = lshr i64 %parts, 1
  %part.half = lshr i64 %after, 1
  %parts.many = shl i64 %parts, 3
  %part.many = shl i64 %after, 3
  %parts.finer = select i1 %refine, i64 %parts.many, i64 %parts
  %part.finer = select i1 %refine, i64 %part.many, i64 %after
  %parts.next = select i1 %halve, i64 %parts.half, i64 %parts.finer
  %part.next = select i1 %halve, i64 %part.half, i64 %part.finer
  switch i32 %role, label %go_on [ i32 1, label %ask  i32 2, label %look ]
ask:
  %raised = call i1 @ask_main(i64 %now)
  br i1 %raised, label %stop, label %go_on
look:
  %stopped = load atomic i32, ptr @stopped acquire, align 4
  %stop_here = icmp ne i32 %stopped, 0
  br i1 %stop_here, label %stop, label %go_on
go_on:
  %all = icmp eq i64 %after, %parts
  br i1 %all, label %done, label %run
done:
  store i64 %parts.next, ptr %pace, align 8
  store i64 %now, ptr %began.at, align 8
  ret i1 false
stop:
  ret i1 true
}

; Run tasks until the counter is used up, or the call is stopped.
define internal void @drain(ptr %kernel, ptr %context, i64 %tasks, ptr %scratch, i64 %most, i32 %role) #0 {
entry:
  %pace = alloca %Pace, align 8
  call void @set_pace(ptr %pace, i64 %most, i32 %role)
  %next.at = getelementptr %Pool, ptr @pool, i32 0, i32 2
  br label %loop
loop:
  %task = atomicrmw add ptr %next.at, i64 1 monotonic
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %run, label %done
run:
  %stop = call i1 @run_task(ptr %kernel, ptr %context, i64 %task, i64 %tasks, ptr %scratch, ptr %pace)
  br i1 %stop, label %done, label %loop
done:
  ret void
}

define internal void @set_pace(ptr %pace, i64 %most, i32 %role) #0 {
  %cut = icmp ugt i64 %most, 1
  %parts = select i1 %cut, i64 4, i64 1
  store i64 %parts, ptr %pace, align 8
  %most.at = getelementptr %Pace, ptr %pace, i32 0, i32 1
  store i64 %most, ptr %most.at, align 8
  %began.at = getelementptr %Pace, ptr %pace, i32 0, i32 2
  %now = call i64 @llvm.readcyclecounter()
  store i64 %now, ptr %began.at, align 8
  %role.at = getelementptr %Pace, ptr %pace, i32 0, i32 3
  store i32 %role, ptr %role.at, align 4
  ret void
}

; Wait for a generation other than `seen`: spin for a while, then sleep; gives the new one.
define internal i32 @await(i32 %seen) #0 {
entry:
  %generation.at = getelementptr %Pool, ptr @pool, i32 0, i32 0
  %sleepers.at = getelementptr %Pool, ptr @pool, i32 0, i32 12
  %spin.at = getelementptr %Pool, ptr @pool, i32 0, i32 18
  %spin = load i64, ptr %spin.at, align 8
  %start = call i64 @now()
  %end = add i64 %start, %spin
  br label %poll
poll:
  %n = phi i32 [ 0, %entry ], [ %n.next, %pause ], [ 0, %clock ]
  %early = load atomic i32, ptr %generation.at acquire, align 4
  %early.new = icmp ne i32 %early, %seen
  br i1 %early.new, label %now_early, label %wait
wait:
  %n.next = add i32 %n, 1
  %look = icmp ugt i32 %n.next, 32
  br i1 %look, label %clock, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  br label %poll
clock:
  %time = call i64 @now()
  %young = icmp slt i64 %time, %end
  br i1 %young, label %poll, label %sleep
sleep:
  %s0 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  br label %doze
doze:
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %generation.at, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %late = load atomic i32, ptr %generation.at seq_cst, align 4
  %late.new = icmp ne i32 %late, %seen
  br i1 %late.new, label %now_late, label %doze
now_late:
  %s1 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  ret i32 %late
now_early:
  ret i32 %early
}

; A woken worker tends to land on the CPU of the one who woke it, and two threads on one CPU are slower than one: move
; to any other CPU of `allowed`.
define internal void @leave_cpu_of_caller(ptr %allowed) #1 {
entry:
  %cpu.at = getelementptr %Pool, ptr @pool, i32 0, i32 8
  %taken = load i32, ptr %cpu.at, align 4
  %mine = call i32 @sched_getcpu()
  %same = icmp eq i32 %taken, %mine
  %known = icmp ult i32 %mine, 1024
  %move = and i1 %same, %known
  br i1 %move, label %other, label %done
other:
  %mask = alloca [16 x i64], align 16
  %copied = call ptr @memcpy(ptr %mask, ptr %allowed, i64 128)
  %word = lshr i32 %mine, 6
  %bit = and i32 %mine, 63
  %bit.wide = zext i32 %bit to i64
  %one = shl i64 1, %bit.wide
  %rest = xor i64 %one, -1
  %at = getelementptr [16 x i64], ptr %mask, i32 0, i32 %word
  %old = load i64, ptr %at, align 8
  %new = and i64 %old, %rest
  store i64 %new, ptr %at, align 8
  ; An empty mask (one CPU in all) is refused by the system, and the worker stays where it is.
  %ignored = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}

; `argument` is the epoch the worker belongs to.
define internal ptr @worker(ptr %argument) #0 {
entry:
  %epoch.wide = ptrtoint ptr %argument to i64
  %epoch = trunc i64 %epoch.wide to i32
  %allowed = alloca [16 x i64], align 16
  %scratch.var = alloca ptr, align 8
  %held.var = alloca i64, align 8
  store ptr null, ptr %scratch.var, align 8
  store i64 0, ptr %held.var, align 8
  call void @llvm.x86.sse.ldmxcsr(ptr @float_mode)
  %key = load i32, ptr @worker_key, align 4
  %marked = call i32 @pthread_setspecific(i32 %key, ptr @pool)
  %zeroed = call ptr @memset(ptr %allowed, i32 0, i64 128)
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr %allowed)
  %epoch.at = getelementptr %Pool, ptr @pool, i32 0, i32 17
  %inside.at = getelementptr %Pool, ptr @pool, i32 0, i32 10
  %kernel.at = getelementptr %Pool, ptr @pool, i32 0, i32 4
  %context.at = getelementptr %Pool, ptr @pool, i32 0, i32 5
  %tasks.at = getelementptr %Pool, ptr @pool, i32 0, i32 6
  %need.at = getelementptr %Pool, ptr @pool, i32 0, i32 7
  %most.at = getelementptr %Pool, ptr @pool, i32 0, i32 9, i32 0
  br label %loop
loop:
  %seen = phi i32 [ 0, %entry ], [ %generation, %leave ]
  %generation = call i32 @await(i32 %seen)
  %current = load atomic i32, ptr %epoch.at acquire, align 4
  %stay = icmp eq i32 %current, %epoch
  br i1 %stay, label %enter, label %quit
enter:
  call void @leave_cpu_of_caller(ptr %allowed)
  %inside = atomicrmw add ptr %inside.at, i32 1 seq_cst
  %open.bit = and i32 %inside, 1073741824
  %open = icmp ne i32 %open.bit, 0
  br i1 %open, label %inspect, label %leave
inspect:
  ; Between entering and leaving nobody changes the call or the epoch.
  %epoch.now = load i32, ptr %epoch.at, align 4
  %mine = icmp eq i32 %epoch.now, %epoch
  br i1 %mine, label %join, label %leave
join:
  %kernel = load ptr, ptr %kernel.at, align 8
  %context = load ptr, ptr %context.at, align 8
  %tasks = load i64, ptr %tasks.at, align 8
  %need = load i64, ptr %need.at, align 8
  %held = load i64, ptr %held.var, align 8
  %short = icmp slt i64 %held, %need
  br i1 %short, label %grow, label %work
grow:
  %old = load ptr, ptr %scratch.var, align 8
  call void @tessera_free(ptr %old)
  %new = call ptr @tessera_alloc(i64 %need)
  %none = icmp eq ptr %new, null
  %new.held = select i1 %none, i64 0, i64 %need
  store ptr %new, ptr %scratch.var, align 8
  store i64 %new.held, ptr %held.var, align 8
  ; Without scratch this worker does not help: the caller has its own, and does all that nobody else takes.
  br i1 %none, label %leave, label %work
work:
  %scratch = load ptr, ptr %scratch.var, align 8
  %most = load i64, ptr %most.at, align 8
  call void @drain(ptr %kernel, ptr %context, i64 %tasks, ptr %scratch, i64 %most, i32 2)
  br label %leave
leave:
  %left = atomicrmw sub ptr %inside.at, i32 1 release
  br label %loop
quit:
  %last = load ptr, ptr %scratch.var, align 8
  call void @tessera_free(ptr %last)
  ret ptr null
}

; While busy: start the workers of this epoch. They take no signals, so that Ctrl-C still reaches Python's main thread.
define internal void @start_workers() #1 {
entry:
  %all = alloca [16 x i64], align 16
  %before = alloca [16 x i64], align 16
  %thread = alloca i64, align 8
  %threads.at = getelementptr %Pool, ptr @pool, i32 0, i32 15
  %started.at = getelementptr %Pool, ptr @pool, i32 0, i32 16
  %epoch.at = getelementptr %Pool, ptr @pool, i32 0, i32 17
  %threads = load i32, ptr %threads.at, align 4
  %epoch = load i32, ptr %epoch.at, align 4
  %epoch.wide = zext i32 %epoch to i64
  %argument = inttoptr i64 %epoch.wide to ptr
  %filled = call ptr @memset(ptr %all, i32 255, i64 128)
  %r0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)
  br label %loop
loop:
  %n = phi i32 [ 1, %entry ], [ %n.next, %made ]
  %more = icmp slt i32 %n, %threads
  br i1 %more, label %make, label %done
make:
  %r1 = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %r1, 0
  br i1 %ok, label %made, label %done
made:
  %id = load i64, ptr %thread, align 8
  %r2 = call i32 @pthread_detach(i64 %id)
  %n.next = add i32 %n, 1
  br label %loop
done:
  store i32 1, ptr %started.at, align 4
  %r3 = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

; All tasks in order on the calling thread; a single one, which is small or cannot be cut, as it is.
define internal void @run_alone(ptr %kernel, ptr %context, i64 %tasks, ptr %scratch, i64 %most, i1 %main) #0 {
entry:
  %pace = alloca %Pace, align 8
  %single = icmp eq i64 %tasks, 1
  br i1 %single, label %once, label %several
once:
  call void %kernel(ptr %context, i64 0, i64 1, ptr %scratch)
  ret void
several:
  %role = zext i1 %main to i32
  call void @set_pace(ptr %pace, i64 %most, i32 %role)
  br label %loop
loop:
  %task = phi i64 [ 0, %several ], [ %task.next, %run ]
  %more = icmp slt i64 %task, %tasks
  br i1 %more, label %run, label %done
run:
  %stop = call i1 @run_task(ptr %kernel, ptr %context, i64 %task, i64 %tasks, ptr %scratch, ptr %pace)
  %task.next = add i64 %task, 1
  br i1 %stop, label %done, label %loop
done:
  ret void
}

; Busy was taken: hand the call to the workers, help, and wait until nobody is inside.
define internal void @run_together(ptr %kernel, ptr %context, i64 %tasks, i64 %bytes, ptr %scratch, i64 %most, i1 %main) #0 {
entry:
  %own = zext i1 %main to i32
  %most.at = getelementptr %Pool, ptr @pool, i32 0, i32 9, i32 0
  store i64 %most, ptr %most.at, align 8
  br i1 %main, label %own_pool, label %begin
own_pool:
  store i32 1, ptr @owned, align 4
  br label %begin
begin:
  %generation.at = getelementptr %Pool, ptr @pool, i32 0, i32 0
  %next.at = getelementptr %Pool, ptr @pool, i32 0, i32 2
  %kernel.at = getelementptr %Pool, ptr @pool, i32 0, i32 4
  %context.at = getelementptr %Pool, ptr @pool, i32 0, i32 5
  %tasks.at = getelementptr %Pool, ptr @pool, i32 0, i32 6
  %bytes.at = getelementptr %Pool, ptr @pool, i32 0, i32 7
  %cpu.at = getelementptr %Pool, ptr @pool, i32 0, i32 8
  %inside.at = getelementptr %Pool, ptr @pool, i32 0, i32 10
  %sleepers.at = getelementptr %Pool, ptr @pool, i32 0, i32 12
  store ptr %kernel, ptr %kernel.at, align 8
  store ptr %context, ptr %context.at, align 8
  store i64 %tasks, ptr %tasks.at, align 8
  store i64 %bytes, ptr %bytes.at, align 8
  store i64 0, ptr %next.at, align 8
  %cpu = call i32 @sched_getcpu()
  store i32 %cpu, ptr %cpu.at, align 4
  %opened = atomicrmw or ptr %inside.at, i32 1073741824 seq_cst
  %called = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %help
wake:
  %others = sub i64 %tasks, 1
  %many = icmp sgt i64 %others, 1024
  %count.wide = select i1 %many, i64 1024, i64 %others
  %count = trunc i64 %count.wide to i32
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %generation.at, i32 129, i32 %count, ptr null, ptr null, i32 0)
  br label %help
help:
  %role = sub i32 2, %own
  call void @drain(ptr %kernel, ptr %context, i64 %tasks, ptr %scratch, i64 %most, i32 %role)
  %closed = atomicrmw and ptr %inside.at, i32 1073741823 seq_cst
  br label %wait
wait:
  %n = phi i32 [ 0, %help ], [ %n.next, %pause ], [ 0, %yield ]
  %inside = load atomic i32, ptr %inside.at acquire, align 4
  %empty = icmp eq i32 %inside, 0
  br i1 %empty, label %done, label %still
still:
  %n.next = add i32 %n, 1
  %long = icmp ugt i32 %n.next, 2000
  br i1 %long, label %yield, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  br label %wait
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
done:
  br i1 %main, label %release, label %end
release:
  store i32 0, ptr @owned, align 4
  store atomic i32 0, ptr @stopped release, align 4
  br label %end
end:
  ret void
}

; Where somebody records, what is noted of each kernel: room for how many, how many there were, and for each its address,
; when it began and ended, and the thread that called it.
@tessera_timeline = global ptr null, align 8

; Run kernel(context, task, tasks, scratch) for every task; returns 0 when all are done, and -2 where a handler of a
; signal has raised meanwhile: then some are not, and no thread works on any. Where there is no memory for the caller's
; scratch nothing runs, and the bytes asked for come back (2^63 - 1 where they are more than that). Tasks are run in
; parts: the kernel may be called with more tasks, each a part of one, in this order. `tasks` plus 2^62 asks for tasks as
; they are, of kernels that know them by their numbers.
define i64 @tessera_pool_run(ptr %kernel, ptr %context, i64 %tasks, i64 %bytes) #0 {
entry:
  %record = load atomic ptr, ptr @tessera_timeline monotonic, align 8
  %silent = icmp eq ptr %record, null
  br i1 %silent, label %plain, label %count
plain:
  %result = call i64 @run_kernel(ptr %kernel, ptr %context, i64 %tasks, i64 %bytes)
  ret i64 %result
count:
  %counter = getelementptr i64, ptr %record, i64 1
  %number = atomicrmw add ptr %counter, i64 1 monotonic
  %room = load i64, ptr %record, align 8
  %fits = icmp slt i64 %number, %room
  br i1 %fits, label %note, label %plain
note:
  %skipped = mul i64 %number, 4
  %place = add i64 %skipped, 2
  %kernel.at = getelementptr i64, ptr %record, i64 %place
  %start.at = getelementptr i64, ptr %kernel.at, i64 1
  %end.at = getelementptr i64, ptr %kernel.at, i64 2
  %thread.at = getelementptr i64, ptr %kernel.at, i64 3
  %thread = call i64 (i64, ...) @syscall(i64 186)
  store ptr %kernel, ptr %kernel.at, align 8
  store i64 %thread, ptr %thread.at, align 8
  %start = call i64 @now()
  store atomic i64 %start, ptr %start.at release, align 8
  %noted = call i64 @run_kernel(ptr %kernel, ptr %context, i64 %tasks, i64 %bytes)
  %end = call i64 @now()
  store atomic i64 %end, ptr %end.at release, align 8
  ret i64 %noted
}

define internal i64 @run_kernel(ptr %kernel, ptr %context, i64 %wanted_tasks, i64 %bytes) #0 {
entry:
  %tasks = and i64 %wanted_tasks, 4611686018427387903
  %as_they_are = icmp ugt i64 %wanted_tasks, %tasks
  %most = select i1 %as_they_are, i64 1, i64 1048576
  %main = call i1 @is_main()
  %some = icmp sgt i64 %tasks, 0
  br i1 %some, label %prepare, label %done
prepare:
  %wanted = icmp ne i64 %bytes, 0
  br i1 %wanted, label %room, label %choose
room:
  %fresh = call ptr @tessera_alloc(i64 %bytes)
  %refused = icmp eq ptr %fresh, null
  br i1 %refused, label %short, label %choose
short:
  %wrapped = icmp slt i64 %bytes, 0
  %asked = select i1 %wrapped, i64 9223372036854775807, i64 %bytes
  ret i64 %asked
choose:
  %scratch = phi ptr [ null, %prepare ], [ %fresh, %room ]
  %threads.at = getelementptr %Pool, ptr @pool, i32 0, i32 15
  %threads = load atomic i32, ptr %threads.at monotonic, align 4
  %several.threads = icmp sgt i32 %threads, 1
  %several.tasks = icmp sgt i64 %tasks, 1
  %several = and i1 %several.threads, %several.tasks
  br i1 %several, label %try, label %alone
try:
  %busy.at = getelementptr %Pool, ptr @pool, i32 0, i32 14
  %swap = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %ready, label %alone
ready:
  %started.at = getelementptr %Pool, ptr @pool, i32 0, i32 16
  %started = load i32, ptr %started.at, align 4
  %cold = icmp eq i32 %started, 0
  br i1 %cold, label %start, label %together
start:
  call void @start_workers()
  br label %together
together:
  call void @run_together(ptr %kernel, ptr %context, i64 %tasks, i64 %bytes, ptr %scratch, i64 %most, i1 %main)
  store atomic i32 0, ptr %busy.at release, align 4
  br label %tidy
alone:
  call void @run_alone(ptr %kernel, ptr %context, i64 %tasks, ptr %scratch, i64 %most, i1 %main)
  br label %tidy
tidy:
  call void @tessera_free(ptr %scratch)
  br i1 %main, label %ask, label %done
ask:
  ; A single task is small, or asks by itself.
  %code = call i64 @end_kernel(i1 %several.tasks)
  ret i64 %code
done:
  ret i64 0
}

define i64 @tessera_threads() #0 {
  %threads.at = getelementptr %Pool, ptr @pool, i32 0, i32 15
  %threads = load atomic i32, ptr %threads.at monotonic, align 4
  %wide = sext i32 %threads to i64
  ret i64 %wide
}

; Use `threads` threads from the next call on, spinning `spin` nanoseconds before sleeping. Workers of before leave.
define void @tessera_pool_configure(i64 %threads, i64 %spin) #1 {
entry:
  %busy.at = getelementptr %Pool, ptr @pool, i32 0, i32 14
  %known = load i32, ptr @has_key, align 4
  %has_key = icmp ne i32 %known, 0
  br i1 %has_key, label %try, label %make_key
make_key:
  %key = call i32 @pthread_key_create(ptr @worker_key, ptr null)
  store i32 1, ptr @has_key, align 4
  br label %try
try:
  %swap = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %set, label %wait
wait:
  %ignored = call i32 @sched_yield()
  br label %try
set:
  %low = icmp slt i64 %threads, 1
  %least = select i1 %low, i64 1, i64 %threads
  %count = trunc i64 %least to i32
  %threads.at = getelementptr %Pool, ptr @pool, i32 0, i32 15
  store atomic i32 %count, ptr %threads.at monotonic, align 4
  %spin.at = getelementptr %Pool, ptr @pool, i32 0, i32 18
  store i64 %spin, ptr %spin.at, align 8
  %started.at = getelementptr %Pool, ptr @pool, i32 0, i32 16
  store i32 0, ptr %started.at, align 4
  %epoch.at = getelementptr %Pool, ptr @pool, i32 0, i32 17
  %older = atomicrmw add ptr %epoch.at, i32 1 seq_cst
  %generation.at = getelementptr %Pool, ptr @pool, i32 0, i32 0
  %called = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %generation.at, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
}

; In a child after fork: no worker exists here, whatever the counters say; the allocator's lock was taken by the parent.
define void @tessera_pool_after_fork() #1 {
  %inside.at = getelementptr %Pool, ptr @pool, i32 0, i32 10
  store i32 0, ptr %inside.at, align 4
  %sleepers.at = getelementptr %Pool, ptr @pool, i32 0, i32 12
  store i32 0, ptr %sleepers.at, align 4
  store i32 0, ptr @owned, align 4
  store i32 0, ptr @stopped, align 64
  store i32 0, ptr @raised, align 4
  ; The thread that forked is the only one, and Python's main thread.
  %self = call i64 @pthread_self()
  store i64 %self, ptr @tessera_main_thread, align 8
  %started.at = getelementptr %Pool, ptr @pool, i32 0, i32 16
  store i32 0, ptr %started.at, align 4
  %epoch.at = getelementptr %Pool, ptr @pool, i32 0, i32 17
  %older = atomicrmw add ptr %epoch.at, i32 1 seq_cst
  %busy.at = getelementptr %Pool, ptr @pool, i32 0, i32 14
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
}
