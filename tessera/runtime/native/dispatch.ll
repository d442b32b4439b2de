; The call path: from a vector of Python objects to a compiled function and back, in about the time of one Python call.
; Whatever does not fit is answered with NotImplemented, and Python takes the slow path, which explains or repairs it.

; Check one argument against its port; store its data pointer and its dims. Tensors, NumPy arrays and
; tensors of libraries with a table of C functions are read in place.
define internal i1 @unpack(ptr %object, ptr %port, ptr %data.to, ptr %dims.to) #0 {
entry:
  %x.data.at = alloca ptr, align 8
  %x.dims.at = alloca ptr, align 8
  %dtype = load i32, ptr %port, align 4
  %rank.at = getelementptr %Port, ptr %port, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %wide = zext i32 %rank to i64
  %type.at = getelementptr i8, ptr %object, i64 $PyObject.ob_type
  %type = load ptr, ptr %type.at, align 8
  %ours = load ptr, ptr @tessera_environment, align 8
  %is_ours = icmp eq ptr %type, %ours
  br i1 %is_ours, label %tensor, label %foreign
tensor:
  %slot.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 1
  %slot = load i64, ptr %slot.at, align 8
  %handle.at = getelementptr i8, ptr %object, i64 %slot
  %handle = load ptr, ptr %handle.at, align 8
  %no_handle = icmp eq ptr %handle, null
  br i1 %no_handle, label %fail, label %record
record:
  ; A capsule keeps its pointer right after the object header.
  %record.at = getelementptr i8, ptr %handle, i64 $PyCapsule.pointer
  %record.ptr = load ptr, ptr %record.at, align 8
  %r.rank.at = getelementptr %Tensor, ptr %record.ptr, i32 0, i32 1
  %r.rank = load i32, ptr %r.rank.at, align 4
  %r.dtype.at = getelementptr %Tensor, ptr %record.ptr, i32 0, i32 2
  %r.dtype = load i32, ptr %r.dtype.at, align 4
  %r.flags.at = getelementptr %Tensor, ptr %record.ptr, i32 0, i32 6
  %r.flags = load i32, ptr %r.flags.at, align 4
  %r.rank.ok = icmp eq i32 %r.rank, %rank
  %r.dtype.ok = icmp eq i32 %r.dtype, %dtype
  %r.plain = trunc i32 %r.flags to i1
  %r.ok.0 = and i1 %r.rank.ok, %r.dtype.ok
  %r.ok = and i1 %r.ok.0, %r.plain
  %r.dims = getelementptr i8, ptr %record.ptr, i64 40
  br i1 %r.ok, label %take.tensor, label %fail
take.tensor:
  %r.data = load ptr, ptr %record.ptr, align 8
  br label %take
foreign:
  %array.type.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 2
  %array.type = load ptr, ptr %array.type.at, align 8
  %is_array = icmp eq ptr %type, %array.type
  br i1 %is_array, label %array, label %other
array:
  ; Of the flags, C-contiguous is 0x1 and aligned 0x100.
  %a.rank.at = getelementptr i8, ptr %object, i64 $PyArrayObject.nd
  %a.rank = load i32, ptr %a.rank.at, align 4
  %a.descr.at = getelementptr i8, ptr %object, i64 $PyArrayObject.descr
  %a.descr = load ptr, ptr %a.descr.at, align 8
  %a.flags.at = getelementptr i8, ptr %object, i64 $PyArrayObject.flags
  %a.flags = load i32, ptr %a.flags.at, align 4
  %descr.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 4, i32 %dtype
  %descr = load ptr, ptr %descr.at, align 8
  %a.rank.ok = icmp eq i32 %a.rank, %rank
  %a.descr.ok = icmp eq ptr %a.descr, %descr
  %a.bits = and i32 %a.flags, 257
  %a.plain = icmp eq i32 %a.bits, 257
  %a.ok.0 = and i1 %a.rank.ok, %a.descr.ok
  %a.ok = and i1 %a.ok.0, %a.plain
  br i1 %a.ok, label %take.array, label %fail
take.array:
  %a.data.at = getelementptr i8, ptr %object, i64 $PyArrayObject.data
  %a.data = load ptr, ptr %a.data.at, align 8
  %a.dims.at = getelementptr i8, ptr %object, i64 $PyArrayObject.dimensions
  %a.dims = load ptr, ptr %a.dims.at, align 8
  br label %take
other:
  %known = call ptr @exchange_of(ptr %type)
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %fail, label %exchanged
exchanged:
  %x.ok = call i1 @unpack_exchanged(ptr %object, ptr %known, i32 %dtype, i32 %rank, ptr %x.data.at, ptr %x.dims.at)
  br i1 %x.ok, label %take.exchanged, label %fail
take.exchanged:
  %x.data = load ptr, ptr %x.data.at, align 8
  %x.dims = load ptr, ptr %x.dims.at, align 8
  br label %take
take:
  %data = phi ptr [ %r.data, %take.tensor ], [ %a.data, %take.array ], [ %x.data, %take.exchanged ]
  %dims = phi ptr [ %r.dims, %take.tensor ], [ %a.dims, %take.array ], [ %x.dims, %take.exchanged ]
  store ptr %data, ptr %data.to, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %take ], [ %i.next, %copy ]
  %more = icmp slt i64 %i, %wide
  br i1 %more, label %copy, label %done
copy:
  %dim.at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim.at, align 8
  %dim.to = getelementptr i64, ptr %dims.to, i64 %i
  store i64 %dim, ptr %dim.to, align 8
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret i1 true
fail:
  ret i1 false
}

; Drop the first `count` records of `tensors`.
define internal void @drop_all(ptr %tensors, i64 %count) #0 {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %at = getelementptr ptr, ptr %tensors, i64 %i
  %tensor = load ptr, ptr %at, align 8
  call void @tessera_tensor_drop(ptr %tensor)
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; Make all outputs from their dims; false (and nothing left behind) when there is no memory.
define internal i1 @make_outputs(ptr %program, ptr %dims, ptr %tensors, ptr %data) #0 {
entry:
  %count.at = getelementptr %Program, ptr %program, i32 0, i32 5
  %count = load i64, ptr %count.at, align 8
  %ports.at = getelementptr %Program, ptr %program, i32 0, i32 10
  %ports = load ptr, ptr %ports.at, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %put ]
  %here = phi ptr [ %dims, %entry ], [ %here.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %port = getelementptr %Port, ptr %ports, i64 %i
  %dtype = load i32, ptr %port, align 4
  %rank.at = getelementptr %Port, ptr %port, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %tensor = call ptr @tessera_tensor_new(i32 %dtype, i32 %rank, ptr %here)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %undo, label %put
put:
  %tensor.to = getelementptr ptr, ptr %tensors, i64 %i
  store ptr %tensor, ptr %tensor.to, align 8
  %block = load ptr, ptr %tensor, align 8
  %data.to = getelementptr ptr, ptr %data, i64 %i
  store ptr %block, ptr %data.to, align 8
  %rank.wide = zext i32 %rank to i64
  %here.next = getelementptr i64, ptr %here, i64 %rank.wide
  %i.next = add i64 %i, 1
  br label %loop
undo:
  call void @drop_all(ptr %tensors, i64 %i)
  ret i1 false
done:
  ret i1 true
}

; Records to the Python result: a Tensor for one output, a tuple for any other number. Takes the records.
define internal ptr @wrap_outputs(ptr %tensors, i64 %count) #0 {
entry:
  %single = icmp eq i64 %count, 1
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %tensors, align 8
  %object = call ptr @tensor_object(ptr %only)
  ret ptr %object
several:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %drop, label %loop
loop:
  %i = phi i64 [ 0, %several ], [ %i.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %next, label %done
next:
  %at = getelementptr ptr, ptr %tensors, i64 %i
  %tensor = load ptr, ptr %at, align 8
  %item = call ptr @tensor_object(ptr %tensor)
  %i.next = add i64 %i, 1
  %failed = icmp eq ptr %item, null
  br i1 %failed, label %undo, label %put
put:
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %item)
  br label %loop
undo:
  call void @Py_DecRef(ptr %tuple)
  %rest = getelementptr ptr, ptr %tensors, i64 %i.next
  %left = sub i64 %count, %i.next
  call void @drop_all(ptr %rest, i64 %left)
  ret ptr null
drop:
  call void @drop_all(ptr %tensors, i64 %count)
  ret ptr null
done:
  ret ptr %tuple
}

define internal ptr @not_implemented() #0 {
  call void @Py_IncRef(ptr @_Py_NotImplementedStruct)
  ret ptr @_Py_NotImplementedStruct
}

; Let Python raise for want of memory: of outputs (`what` 0, the numbers are the symbols), of the workspace (1, its bytes)
; or of a kernel's scratch (2, its bytes); always null.
define internal ptr @no_memory(ptr %program, i64 %what, ptr %numbers, i64 %count) #1 {
entry:
  %report.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 3
  %report = load ptr, ptr %report.at, align 8
  %tuple = call ptr @tuple_of_words(ptr %numbers, i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %done, label %call
call:
  %address = ptrtoint ptr %program to i64
  %which = call ptr @PyLong_FromLongLong(i64 %address)
  %kind = call ptr @PyLong_FromLongLong(i64 %what)
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %report, ptr %which, ptr %kind, ptr %tuple, ptr null)
  call void @Py_DecRef(ptr %which)
  call void @Py_DecRef(ptr %kind)
  call void @Py_DecRef(ptr %tuple)
  %returned = icmp ne ptr %result, null
  br i1 %returned, label %drop, label %done
drop:
  call void @Py_DecRef(ptr %result)
  br label %done
done:
  ret ptr null
}

; Everything after the arguments fit: outputs, workspace, the call itself without the GIL, the result.
define internal ptr @launch(ptr %program, ptr %inputs, ptr %symbols, ptr %dims, ptr %tensors, ptr %outputs) #0 {
entry:
  %mode = alloca i32, align 4
  %asked = alloca i64, align 8
  %shapes.at = getelementptr %Program, ptr %program, i32 0, i32 1
  %shapes = load ptr, ptr %shapes.at, align 8
  call void %shapes(ptr %symbols, ptr %dims)
  %count.at = getelementptr %Program, ptr %program, i32 0, i32 5
  %count = load i64, ptr %count.at, align 8
  %made = call i1 @make_outputs(ptr %program, ptr %dims, ptr %tensors, ptr %outputs)
  br i1 %made, label %room, label %full
room:
  %workspace.at = getelementptr %Program, ptr %program, i32 0, i32 2
  %workspace = load ptr, ptr %workspace.at, align 8
  %bytes = call i64 %workspace(ptr %symbols)
  %needed = icmp ne i64 %bytes, 0
  br i1 %needed, label %take, label %go
take:
  %taken = call ptr @tessera_alloc(i64 %bytes)
  %refused = icmp eq ptr %taken, null
  br i1 %refused, label %short, label %go
go:
  %space = phi ptr [ null, %room ], [ %taken, %take ]
  %start.at = getelementptr %Program, ptr %program, i32 0, i32 3
  %start = load ptr, ptr %start.at, align 8
  %calls.at = getelementptr %Program, ptr %program, i32 0, i32 12
  %calls = load i64, ptr %calls.at, align 8
  %calls.next = add i64 %calls, 1
  store i64 %calls.next, ptr %calls.at, align 8
  %main = call i1 @is_main()
  br i1 %main, label %fresh, label %run
fresh:
  store i64 0, ptr @asked, align 8
  br label %run
run:
  %state = call ptr @PyEval_SaveThread()
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  call void @llvm.x86.sse.ldmxcsr(ptr @float_mode)
  %code = call i64 %start(ptr %inputs, ptr %outputs, ptr %symbols, ptr %space)
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @PyEval_RestoreThread(ptr %state)
  call void @tessera_free(ptr %space)
  %ok = icmp eq i64 %code, 0
  br i1 %ok, label %wrap, label %failed
wrap:
  %result = call ptr @wrap_outputs(ptr %tensors, i64 %count)
  ret ptr %result
failed:
  ; A handler of a signal has raised between two rounds of a loop (`tessera_poll`); the thread still has what.
  %interrupted = icmp eq i64 %code, -2
  br i1 %interrupted, label %leave, label %short
leave:
  call void @drop_all(ptr %tensors, i64 %count)
  ret ptr null
short:
  ; A workspace that was refused, or a kernel's scratch.
  %what = phi i64 [ 1, %take ], [ 2, %failed ]
  %missing = phi i64 [ %bytes, %take ], [ %code, %failed ]
  call void @drop_all(ptr %tensors, i64 %count)
  store i64 %missing, ptr %asked, align 8
  %raised = call ptr @no_memory(ptr %program, i64 %what, ptr %asked, i64 1)
  ret ptr null
full:
  %symbols.at = getelementptr %Program, ptr %program, i32 0, i32 6
  %bound = load i64, ptr %symbols.at, align 8
  %raised.full = call ptr @no_memory(ptr %program, i64 0, ptr %symbols, i64 %bound)
  ret ptr null
}

; METH_FASTCALL: `self` is a capsule of the program.
define ptr @tessera_dispatch(ptr %self, ptr %arguments, i64 %given) #0 {
entry:
  %program.at = getelementptr i8, ptr %self, i64 $PyCapsule.pointer
  %program = load ptr, ptr %program.at, align 8
  %inputs.at = getelementptr %Program, ptr %program, i32 0, i32 4
  %inputs = load i64, ptr %inputs.at, align 8
  %arity = icmp eq i64 %given, %inputs
  br i1 %arity, label %room, label %refuse
room:
  %outputs.at = getelementptr %Program, ptr %program, i32 0, i32 5
  %outputs = load i64, ptr %outputs.at, align 8
  %symbols.at = getelementptr %Program, ptr %program, i32 0, i32 6
  %symbols = load i64, ptr %symbols.at, align 8
  %in_dims.at = getelementptr %Program, ptr %program, i32 0, i32 7
  %in_dims = load i64, ptr %in_dims.at, align 8
  %out_dims.at = getelementptr %Program, ptr %program, i32 0, i32 8
  %out_dims = load i64, ptr %out_dims.at, align 8
  %ports.at = getelementptr %Program, ptr %program, i32 0, i32 9
  %ports = load ptr, ptr %ports.at, align 8
  %binding.at = getelementptr %Program, ptr %program, i32 0, i32 11
  %binding = load ptr, ptr %binding.at, align 8
  %data = alloca ptr, i64 %inputs, align 16
  %dims = alloca i64, i64 %in_dims, align 16
  %values = alloca i64, i64 %symbols, align 16
  %shapes = alloca i64, i64 %out_dims, align 16
  %tensors = alloca ptr, i64 %outputs, align 16
  %blocks = alloca ptr, i64 %outputs, align 16
  br label %loop
loop:
  %i = phi i64 [ 0, %room ], [ %i.next, %fits ]
  %here = phi ptr [ %dims, %room ], [ %here.next, %fits ]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %one, label %bind
one:
  %object.at = getelementptr ptr, ptr %arguments, i64 %i
  %object = load ptr, ptr %object.at, align 8
  %port = getelementptr %Port, ptr %ports, i64 %i
  %data.to = getelementptr ptr, ptr %data, i64 %i
  %ok = call i1 @unpack(ptr %object, ptr %port, ptr %data.to, ptr %here)
  br i1 %ok, label %fits, label %refuse
fits:
  %rank.at = getelementptr %Port, ptr %port, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %rank.wide = zext i32 %rank to i64
  %here.next = getelementptr i64, ptr %here, i64 %rank.wide
  %i.next = add i64 %i, 1
  br label %loop
bind:
  %k = phi i64 [ 0, %loop ], [ %k.next, %set ]
  %unbound = icmp slt i64 %k, %symbols
  br i1 %unbound, label %set, label %check
set:
  %from.at = getelementptr i64, ptr %binding, i64 %k
  %from = load i64, ptr %from.at, align 8
  %dim.at = getelementptr i64, ptr %dims, i64 %from
  %dim = load i64, ptr %dim.at, align 8
  %value.to = getelementptr i64, ptr %values, i64 %k
  store i64 %dim, ptr %value.to, align 8
  %k.next = add i64 %k, 1
  br label %bind
check:
  %check.fn = load ptr, ptr %program, align 8
  %broken = call i64 %check.fn(ptr %values, ptr %dims)
  %holds = icmp eq i64 %broken, 0
  br i1 %holds, label %run, label %refuse
run:
  %result = call ptr @launch(ptr %program, ptr %data, ptr %values, ptr %shapes, ptr %tensors, ptr %blocks)
  ret ptr %result
refuse:
  %no = call ptr @not_implemented()
  ret ptr %no
}
