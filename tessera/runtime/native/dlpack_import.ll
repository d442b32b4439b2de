; DLPack, inwards: tensors of other libraries, whose types have a table of C functions (`DLPackExchangeAPI` of dlpack.h),
; are read in place by calls, and shared; capsules of all others are shared too. What does not fit is left to Python.
; DLPackExchangeAPI: major 0, minor 4, older 8, allocator 16, managed tensor of an object 24, object of a managed tensor
; 32, tensor of an object 40, current stream 48. An entry of the table: type, functions, two names (see `layout.ll`).

@dlpack_used = internal constant [14 x i8] c"used_dltensor\00"
@dlpack_versioned_used = internal constant [24 x i8] c"used_dltensor_versioned\00"
@managed_name = internal constant [16 x i8] c"tessera.managed\00"

; The entry of a type, or null.
define internal ptr @exchange_of(ptr %type) #0 {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %more = icmp slt i64 %i, 8
  br i1 %more, label %look, label %none
look:
  %at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 7, i64 %i
  %known = load ptr, ptr %at, align 8
  %same = icmp eq ptr %known, %type
  br i1 %same, label %found, label %next
next:
  %i.next = add i64 %i, 1
  %last = icmp eq ptr %known, null
  br i1 %last, label %none, label %loop
found:
  ret ptr %at
none:
  ret ptr null
}

; Whether an attribute, or the answer of a method, is False; takes the reference.
define internal i1 @is_false(ptr %answer) #0 {
entry:
  %none = icmp eq ptr %answer, null
  br i1 %none, label %raised, label %compare
raised:
  call void @PyErr_Clear()
  ret i1 false
compare:
  %same = icmp eq ptr %answer, @_Py_FalseStruct
  call void @Py_DecRef(ptr %answer)
  ret i1 %same
}

; Whether memory says all of a tensor: it has no gradient, and no bit that means the opposite of each element.
define internal i1 @is_plain(ptr %object, ptr %known) #0 {
entry:
  %gradient.at = getelementptr ptr, ptr %known, i64 2
  %gradient = load ptr, ptr %gradient.at, align 8
  %no_gradient = icmp eq ptr %gradient, null
  br i1 %no_gradient, label %bits, label %ask
ask:
  %found = call ptr @PyObject_GetAttr(ptr %object, ptr %gradient)
  %without = call i1 @is_false(ptr %found)
  br i1 %without, label %bits, label %fail
bits:
  %negative.at = getelementptr ptr, ptr %known, i64 3
  %negative = load ptr, ptr %negative.at, align 8
  %no_bit = icmp eq ptr %negative, null
  br i1 %no_bit, label %plain, label %call
call:
  %answer = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %object, ptr %negative, ptr null)
  %upright = call i1 @is_false(ptr %answer)
  br i1 %upright, label %plain, label %fail
plain:
  ret i1 true
fail:
  ret i1 false
}

; Whether elements follow one another in C order; strides (in elements) of dims of 1, or of no elements, do not matter.
define internal i1 @is_in_order(ptr %dims, ptr %strides, i64 %rank) #0 {
entry:
  %left_out = icmp eq ptr %strides, null
  br i1 %left_out, label %yes, label %loop
loop:
  %i = phi i64 [ %rank, %entry ], [ %i.next, %one ]
  %step = phi i64 [ 1, %entry ], [ %step.next, %one ]
  %so_far = phi i1 [ true, %entry ], [ %holds, %one ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %look, label %done
look:
  %i.next = sub i64 %i, 1
  %dim.at = getelementptr i64, ptr %dims, i64 %i.next
  %dim = load i64, ptr %dim.at, align 8
  %empty = icmp eq i64 %dim, 0
  br i1 %empty, label %yes, label %one
one:
  %stride.at = getelementptr i64, ptr %strides, i64 %i.next
  %stride = load i64, ptr %stride.at, align 8
  %same = icmp eq i64 %stride, %step
  %single = icmp eq i64 %dim, 1
  %fits = or i1 %same, %single
  %holds = and i1 %so_far, %fits
  %step.next = mul i64 %step, %dim
  br label %loop
done:
  ret i1 %so_far
yes:
  ret i1 true
}

define internal i1 @is_on_host(ptr %view) #0 {
  %device.at = getelementptr i8, ptr %view, i64 8
  %device = load i32, ptr %device.at, align 4
  %cpu = icmp eq i32 %device, 1
  %pinned = icmp eq i32 %device, 3
  %here = or i1 %cpu, %pinned
  ret i1 %here
}

; Where the first element of a DLTensor is.
define internal ptr @data_of(ptr %view) #0 {
  %data = load ptr, ptr %view, align 8
  %offset.at = getelementptr i8, ptr %view, i64 40
  %offset = load i64, ptr %offset.at, align 8
  %first = getelementptr i8, ptr %data, i64 %offset
  ret ptr %first
}

; Whether elements of a DLTensor, if it has any, are somewhere: PyTorch has zeros without memory.
define internal i1 @has_memory(ptr %view) #0 {
entry:
  %data = load ptr, ptr %view, align 8
  %there = icmp ne ptr %data, null
  %rank.at = getelementptr i8, ptr %view, i64 16
  %rank = load i32, ptr %rank.at, align 4
  %dims.at = getelementptr i8, ptr %view, i64 24
  %dims = load ptr, ptr %dims.at, align 8
  br i1 %there, label %yes, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp slt i32 %i, %rank
  br i1 %more, label %one, label %no
one:
  %dim.at = getelementptr i64, ptr %dims, i32 %i
  %dim = load i64, ptr %dim.at, align 8
  %empty = icmp eq i64 %dim, 0
  %i.next = add i32 %i, 1
  br i1 %empty, label %yes, label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Look at an argument of a call without owning it: the call holds on to the object. Stores where data and dims are.
define internal i1 @unpack_exchanged(ptr %object, ptr %known, i32 %dtype, i32 %rank, ptr %data.to, ptr %dims.to) #0 {
entry:
  %view = alloca [6 x i64], align 16
  %plain = call i1 @is_plain(ptr %object, ptr %known)
  br i1 %plain, label %which, label %fail
which:
  %table.at = getelementptr ptr, ptr %known, i64 1
  %table = load ptr, ptr %table.at, align 8
  %function.at = getelementptr i8, ptr %table, i64 40
  %function = load ptr, ptr %function.at, align 8
  %missing = icmp eq ptr %function, null
  br i1 %missing, label %fail, label %ask
ask:
  %code = call i32 %function(ptr %object, ptr %view)
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %raised, label %compare
raised:
  call void @PyErr_Clear()
  br label %fail
compare:
  %here = call i1 @is_on_host(ptr %view)
  %rank.at = getelementptr i8, ptr %view, i64 16
  %own.rank = load i32, ptr %rank.at, align 4
  %word.at = getelementptr i8, ptr %view, i64 20
  %word = load i32, ptr %word.at, align 4
  %wanted.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 8, i32 %dtype
  %wanted = load i32, ptr %wanted.at, align 4
  %same.rank = icmp eq i32 %own.rank, %rank
  %same.dtype = icmp eq i32 %word, %wanted
  %ok.0 = and i1 %here, %same.rank
  %ok.1 = and i1 %ok.0, %same.dtype
  br i1 %ok.1, label %order, label %fail
order:
  %wide = zext i32 %rank to i64
  %dims.at = getelementptr i8, ptr %view, i64 24
  %dims = load ptr, ptr %dims.at, align 8
  %strides.at = getelementptr i8, ptr %view, i64 32
  %strides = load ptr, ptr %strides.at, align 8
  %in_order = call i1 @is_in_order(ptr %dims, ptr %strides, i64 %wide)
  %data = call ptr @data_of(ptr %view)
  %item.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 6, i32 %dtype
  %item = load i64, ptr %item.at, align 8
  %address = ptrtoint ptr %data to i64
  ; Bytes of an element are a power of two.
  %mask = sub i64 %item, 1
  %beyond = and i64 %address, %mask
  %aligned = icmp eq i64 %beyond, 0
  %there = call i1 @has_memory(ptr %view)
  %ok.2 = and i1 %in_order, %aligned
  %ok.3 = and i1 %ok.2, %there
  br i1 %ok.3, label %done, label %fail
done:
  store ptr %data, ptr %data.to, align 8
  store ptr %dims, ptr %dims.to, align 8
  ret i1 true
fail:
  ret i1 false
}

; The dtype code of a DLTensor, or -1.
define internal i32 @code_of_view(ptr %view) #0 {
entry:
  %word.at = getelementptr i8, ptr %view, i64 20
  %word = load i32, ptr %word.at, align 4
  br label %loop
loop:
  %code = phi i32 [ 0, %entry ], [ %code.next, %other ]
  %more = icmp slt i32 %code, 32
  br i1 %more, label %look, label %none
look:
  %at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 8, i32 %code
  %known = load i32, ptr %at, align 4
  %same = icmp eq i32 %known, %word
  br i1 %same, label %found, label %other
other:
  %code.next = add i32 %code, 1
  br label %loop
found:
  ret i32 %code
none:
  ret i32 -1
}

; The record of a managed tensor in host memory, which it owns from now on; null for what does not fit.
define internal ptr @record_of(ptr %view, ptr %managed, i32 %kind, i32 %read_only) #0 {
entry:
  %steps = alloca [64 x i64], align 16
  %here = call i1 @is_on_host(ptr %view)
  %code = call i32 @code_of_view(ptr %view)
  %known = icmp sge i32 %code, 0
  %rank.at = getelementptr i8, ptr %view, i64 16
  %rank = load i32, ptr %rank.at, align 4
  %few = icmp ult i32 %rank, 65
  %there = call i1 @has_memory(ptr %view)
  %ok.0 = and i1 %here, %known
  %ok.1 = and i1 %ok.0, %few
  %ok = and i1 %ok.1, %there
  br i1 %ok, label %strided, label %fail
strided:
  %wide = zext i32 %rank to i64
  %item.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 6, i32 %code
  %item = load i64, ptr %item.at, align 8
  %data = call ptr @data_of(ptr %view)
  %dims.at = getelementptr i8, ptr %view, i64 24
  %dims = load ptr, ptr %dims.at, align 8
  %strides.at = getelementptr i8, ptr %view, i64 32
  %strides = load ptr, ptr %strides.at, align 8
  %in_order = call i1 @is_in_order(ptr %dims, ptr %strides, i64 %wide)
  %ordered = zext i1 %in_order to i32
  %fixed = shl i32 %read_only, 1
  %flags = or i32 %ordered, %fixed
  br label %loop
loop:
  %i = phi i64 [ 0, %strided ], [ %i.next, %fits ]
  %more = icmp slt i64 %i, %wide
  %left_out = icmp eq ptr %strides, null
  %is_over = xor i1 %more, true
  %stop = or i1 %is_over, %left_out
  br i1 %stop, label %make, label %one
one:
  %stride.at = getelementptr i64, ptr %strides, i64 %i
  %stride = load i64, ptr %stride.at, align 8
  %checked = call { i64, i1 } @llvm.smul.with.overflow.i64(i64 %stride, i64 %item)
  %bytes = extractvalue { i64, i1 } %checked, 0
  %wrapped = extractvalue { i64, i1 } %checked, 1
  br i1 %wrapped, label %fail, label %fits
fits:
  %step.at = getelementptr i64, ptr %steps, i64 %i
  store i64 %bytes, ptr %step.at, align 8
  %i.next = add i64 %i, 1
  br label %loop
make:
  %given = select i1 %left_out, ptr null, ptr %steps
  %record = call ptr @tessera_tensor_make(ptr %data, i32 %code, i32 %rank, ptr %dims, ptr %given, ptr %managed, i32 %kind, i32 %flags)
  ret ptr %record
fail:
  ret ptr null
}

; Whether a DLManagedTensorVersioned says that it may not be written.
define internal i32 @is_fixed(ptr %managed) #0 {
  %flags.at = getelementptr i8, ptr %managed, i64 24
  %flags = load i64, ptr %flags.at, align 8
  %bit = and i64 %flags, 1
  %fixed = trunc i64 %bit to i32
  ret i32 %fixed
}

; A Tensor that shares what a DLPack capsule shows, and takes it; NotImplemented for whatever does not fit.
define ptr @tessera_tensor_from_capsule(ptr %self, ptr %capsule) #0 {
entry:
  %modern = call i32 @PyCapsule_IsValid(ptr %capsule, ptr @dlpack_versioned_name)
  %is_modern = icmp ne i32 %modern, 0
  br i1 %is_modern, label %versioned, label %older
versioned:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @dlpack_versioned_name)
  %major = load i32, ptr %managed, align 4
  %known = icmp eq i32 %major, 1
  br i1 %known, label %read, label %refuse
read:
  %fixed = call i32 @is_fixed(ptr %managed)
  %view = getelementptr i8, ptr %managed, i64 32
  %made = call ptr @record_of(ptr %view, ptr %managed, i32 4, i32 %fixed)
  br label %take
older:
  %plain = call i32 @PyCapsule_IsValid(ptr %capsule, ptr @dlpack_name)
  %is_plain = icmp ne i32 %plain, 0
  br i1 %is_plain, label %unversioned, label %refuse
unversioned:
  %older.managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @dlpack_name)
  %older.made = call ptr @record_of(ptr %older.managed, ptr %older.managed, i32 3, i32 0)
  br label %take
take:
  %record = phi ptr [ %made, %read ], [ %older.made, %unversioned ]
  %used = phi ptr [ @dlpack_versioned_used, %read ], [ @dlpack_used, %unversioned ]
  %none = icmp eq ptr %record, null
  br i1 %none, label %refuse, label %wrap
wrap:
  %ignored = call i32 @PyCapsule_SetName(ptr %capsule, ptr %used)
  %object = call ptr @tensor_object(ptr %record)
  ret ptr %object
refuse:
  %no = call ptr @not_implemented()
  ret ptr %no
}

define internal void @delete_import(ptr %managed) #0 {
entry:
  %deleter.at = getelementptr i8, ptr %managed, i64 16
  %deleter = load ptr, ptr %deleter.at, align 8
  %has = icmp ne ptr %deleter, null
  br i1 %has, label %call, label %done
call:
  call void %deleter(ptr %managed)
  br label %done
done:
  ret void
}

define internal void @destroy_import(ptr %capsule) #0 {
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @managed_name)
  call void @delete_import(ptr %managed)
  ret void
}

; What Python needs of a contiguous tensor of a GPU: (capsule that owns it, (address, dtype code, device, the stream that
; its library works in), dims). Null where it does not fit, or with an error set.
define internal ptr @describe_import(ptr %managed, ptr %table) #0 {
entry:
  %words = alloca [4 x i64], align 16
  %view = getelementptr i8, ptr %managed, i64 32
  %code = call i32 @code_of_view(ptr %view)
  %known = icmp sge i32 %code, 0
  %rank.at = getelementptr i8, ptr %view, i64 16
  %rank = load i32, ptr %rank.at, align 4
  %wide = zext i32 %rank to i64
  %dims.at = getelementptr i8, ptr %view, i64 24
  %dims = load ptr, ptr %dims.at, align 8
  %strides.at = getelementptr i8, ptr %view, i64 32
  %strides = load ptr, ptr %strides.at, align 8
  %in_order = call i1 @is_in_order(ptr %dims, ptr %strides, i64 %wide)
  %there = call i1 @has_memory(ptr %view)
  %ok.0 = and i1 %known, %in_order
  %ok = and i1 %ok.0, %there
  br i1 %ok, label %ask, label %fail
ask:
  %device.at = getelementptr i8, ptr %view, i64 8
  %device = load i32, ptr %device.at, align 4
  %number.at = getelementptr i8, ptr %view, i64 12
  %number = load i32, ptr %number.at, align 4
  %stream.at = getelementptr i64, ptr %words, i64 3
  %function.at = getelementptr i8, ptr %table, i64 48
  %function = load ptr, ptr %function.at, align 8
  %answer = call i32 %function(i32 %device, i32 %number, ptr %stream.at)
  %refused = icmp ne i32 %answer, 0
  br i1 %refused, label %fail, label %fill
fill:
  %data = call ptr @data_of(ptr %view)
  store ptr %data, ptr %words, align 8
  %code.wide = zext i32 %code to i64
  %word1 = getelementptr i64, ptr %words, i64 1
  store i64 %code.wide, ptr %word1, align 8
  %number.wide = sext i32 %number to i64
  %word2 = getelementptr i64, ptr %words, i64 2
  store i64 %number.wide, ptr %word2, align 8
  %facts = call ptr @tuple_of_words(ptr %words, i64 4)
  %shape = call ptr @tuple_of_words(ptr %dims, i64 %wide)
  %owner = call ptr @PyCapsule_New(ptr %managed, ptr @managed_name, ptr null)
  %result = call ptr @PyTuple_New(i64 3)
  %no_facts = icmp eq ptr %facts, null
  %no_shape = icmp eq ptr %shape, null
  %no_owner = icmp eq ptr %owner, null
  %no_result = icmp eq ptr %result, null
  %bad.0 = or i1 %no_facts, %no_shape
  %bad.1 = or i1 %no_owner, %no_result
  %bad = or i1 %bad.0, %bad.1
  ; Without memory for these few objects nothing else goes on either: they are not taken apart again.
  br i1 %bad, label %fail, label %done
done:
  %armed = call i32 @PyCapsule_SetDestructor(ptr %owner, ptr @destroy_import)
  %set.0 = call i32 @PyTuple_SetItem(ptr %result, i64 0, ptr %owner)
  %set.1 = call i32 @PyTuple_SetItem(ptr %result, i64 1, ptr %facts)
  %set.2 = call i32 @PyTuple_SetItem(ptr %result, i64 2, ptr %shape)
  ret ptr %result
fail:
  ret ptr null
}

; A tensor of a type of the table: a Tensor that shares its memory, or the facts of one on a GPU; else NotImplemented.
define ptr @tessera_tensor_from_exchange(ptr %self, ptr %object) #0 {
entry:
  %slot = alloca ptr, align 8
  %type.at = getelementptr i8, ptr %object, i64 $PyObject.ob_type
  %type = load ptr, ptr %type.at, align 8
  %known = call ptr @exchange_of(ptr %type)
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %refuse, label %look
look:
  %plain = call i1 @is_plain(ptr %object, ptr %known)
  br i1 %plain, label %ask, label %refuse
ask:
  %table.at = getelementptr ptr, ptr %known, i64 1
  %table = load ptr, ptr %table.at, align 8
  %function.at = getelementptr i8, ptr %table, i64 24
  %function = load ptr, ptr %function.at, align 8
  store ptr null, ptr %slot, align 8
  %answer = call i32 %function(ptr %object, ptr %slot)
  %managed = load ptr, ptr %slot, align 8
  %refused = icmp ne i32 %answer, 0
  %nothing = icmp eq ptr %managed, null
  %failed = or i1 %refused, %nothing
  br i1 %failed, label %clear, label %version
version:
  %major = load i32, ptr %managed, align 4
  %current = icmp eq i32 %major, 1
  br i1 %current, label %where, label %drop
where:
  %view = getelementptr i8, ptr %managed, i64 32
  %device.at = getelementptr i8, ptr %view, i64 8
  %device = load i32, ptr %device.at, align 4
  switch i32 %device, label %host [ i32 2, label %gpu
                                    i32 13, label %gpu ]
host:
  %fixed = call i32 @is_fixed(ptr %managed)
  %record = call ptr @record_of(ptr %view, ptr %managed, i32 4, i32 %fixed)
  %none = icmp eq ptr %record, null
  br i1 %none, label %drop, label %wrap
wrap:
  %tensor = call ptr @tensor_object(ptr %record)
  ret ptr %tensor
gpu:
  %facts = call ptr @describe_import(ptr %managed, ptr %table)
  %unfit = icmp eq ptr %facts, null
  br i1 %unfit, label %drop, label %done
done:
  ret ptr %facts
drop:
  call void @delete_import(ptr %managed)
  br label %clear
clear:
  call void @PyErr_Clear()
  br label %refuse
refuse:
  %no = call ptr @not_implemented()
  ret ptr %no
}
