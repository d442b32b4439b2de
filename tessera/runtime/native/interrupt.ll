; Ctrl-C while compiled code runs: Python's main thread asks for signals now and then, and whoever works for it stops.

; Python's main thread, which alone handles signals, by its `pthread_self`.
@tessera_main_thread = global i64 0, align 8
; What follows is the main thread's alone, but for `@stopped`, which workers read while it has the pool.
; When it asked Python last, in cycles; 0 where it has not in this program.
@asked = internal global i64 0, align 8
; Whether a handler has raised, and the kernel that runs is to end.
@raised = internal global i32 0, align 4
; Whether the pool works for the main thread, and whether its workers are to leave what they do.
@owned = internal global i32 0, align 4
@stopped = internal global i32 0, align 64
; What workers of the pool are known by: a thread of Python's that runs a kernel is none of them, and is never stopped.
@worker_key = internal global i32 0, align 4
@has_key = internal global i32 0, align 4

define internal i1 @is_main() #0 {
  %self = call i64 @pthread_self()
  %main = load i64, ptr @tessera_main_thread, align 8
  %same = icmp eq i64 %self, %main
  ret i1 %same
}

; On the main thread: whether a handler of a signal has raised. Python is asked, with the GIL, where the last time is a
; twentieth of a second ago (2^27 cycles). What it raised stays with the thread, and the program must end with -2.
define internal i1 @ask_main(i64 %now) #0 {
entry:
  %known = load i32, ptr @raised, align 4
  %already = icmp ne i32 %known, 0
  br i1 %already, label %stop, label %look
look:
  %asked = load i64, ptr @asked, align 8
  %passed = sub i64 %now, %asked
  %early = icmp ult i64 %passed, 134217728
  br i1 %early, label %go_on, label %late
late:
  store i64 %now, ptr @asked, align 8
  %first = icmp eq i64 %asked, 0
  br i1 %first, label %go_on, label %ask
ask:
  ; A handler may run programs of its own: what stops them must not stop the workers of this one.
  %owned = load i32, ptr @owned, align 4
  store i32 0, ptr @owned, align 4
  %state = call i32 @PyGILState_Ensure()
  %failed = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  store i32 %owned, ptr @owned, align 4
  store i32 0, ptr @raised, align 4
  %none = icmp eq i32 %failed, 0
  br i1 %none, label %go_on, label %raise
raise:
  store i32 1, ptr @raised, align 4
  %has_pool = icmp ne i32 %owned, 0
  br i1 %has_pool, label %tell, label %stop
tell:
  store atomic i32 1, ptr @stopped release, align 4
  br label %stop
go_on:
  ret i1 false
stop:
  ret i1 true
}

; Asked by kernels between long blocks of work: whether this one is to return, its result being of no use any more.
define i1 @tessera_is_stopped() #0 {
entry:
  %main = call i1 @is_main()
  br i1 %main, label %ask, label %other
ask:
  %now = call i64 @llvm.readcyclecounter()
  %raised = call i1 @ask_main(i64 %now)
  ret i1 %raised
other:
  %key = load i32, ptr @worker_key, align 4
  %mark = call ptr @pthread_getspecific(i32 %key)
  %is_worker = icmp ne ptr %mark, null
  br i1 %is_worker, label %look, label %go_on
look:
  %stopped = load atomic i32, ptr @stopped acquire, align 4
  %stop = icmp ne i32 %stopped, 0
  ret i1 %stop
go_on:
  ret i1 false
}

; After a kernel, on the main thread: -2 where a handler has raised while it ran, else 0; Python is asked where it is
; time, of long kernels alone.
define internal i64 @end_kernel(i1 %is_long) #0 {
entry:
  br i1 %is_long, label %ask, label %look
look:
  %known = load i32, ptr @raised, align 4
  %already = icmp ne i32 %known, 0
  br i1 %already, label %stop, label %go_on
ask:
  %now = call i64 @llvm.readcyclecounter()
  %raised = call i1 @ask_main(i64 %now)
  br i1 %raised, label %stop, label %go_on
stop:
  store i32 0, ptr @raised, align 4
  ret i64 -2
go_on:
  ret i64 0
}

; Between rounds of a loop: whether a signal of this process has come that Python must handle.

; The caller's: rounds that it may go on without asking here, when it asked last, when Python was asked last.
%Rounds = type { i64, i64, i64 }

; Once in about a tenth of a second (2^28 cycles) Python's handlers get their turn, with the GIL. Where the last rounds
; were short (2^20 cycles for all of them), the caller is let go for 15 more. Gives 0, or -2 when a handler has raised:
; what it raised stays with the thread, and the caller must end its program at once.
define i64 @tessera_poll(ptr %rounds) #0 {
entry:
  %now = call i64 @llvm.readcyclecounter()
  %here.at = getelementptr %Rounds, ptr %rounds, i32 0, i32 1
  %here = load i64, ptr %here.at, align 8
  store i64 %now, ptr %here.at, align 8
  %since = sub i64 %now, %here
  %short = icmp ult i64 %since, 1048576
  %more = select i1 %short, i64 15, i64 0
  store i64 %more, ptr %rounds, align 8
  %asked.at = getelementptr %Rounds, ptr %rounds, i32 0, i32 2
  %asked = load i64, ptr %asked.at, align 8
  %passed = sub i64 %now, %asked
  %early = icmp ult i64 %passed, 268435456
  br i1 %early, label %go_on, label %late
late:
  store i64 %now, ptr %asked.at, align 8
  %first = icmp eq i64 %asked, 0
  br i1 %first, label %go_on, label %ask
ask:
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %go_on, label %stop
go_on:
  ret i64 0
stop:
  ret i64 -2
}
