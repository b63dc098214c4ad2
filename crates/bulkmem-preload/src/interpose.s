# The functions that programs call in place of the C library's, under the names preload_…, and those that this library calls
# instead, c_library_….
#
# All data is addressed relative to RIP, so that the code runs before the library is relocated. Until the constructor has
# run, every pointer is null and every length counts as long; such calls end in one REP instruction.

.section .text.bulkmem_preload, "ax", @progbits

.macro FUNCTION name
    .globl preload_\name
    .type preload_\name, @function
    .p2align 5
preload_\name:
.L\name:
    .cfi_startproc
.endm

.macro END name
    .cfi_endproc
    .size preload_\name, . - preload_\name
.endm

# dst in rdi, src in rsi, length in rdx.
.macro COPY name, pointer
FUNCTION \name
    cmp rdx, [rip + {table} + {copy_from}]
    jae .Llonger_\name
    jmp [rip + {table} + \pointer]
END \name
.endm

COPY memcpy, {memmove}
COPY memmove, {memmove}
COPY mempcpy, {mempcpy}

# dst in rdi, byte in esi, length in rdx.
.macro SET number
    cmp rdx, [rip + {table} + {set_from}]
    jae 2f
    jmp [rip + {table} + {memset}]
2:  mov ecx, \number
    jmp .Llong_set
.endm

FUNCTION memset
    SET {MEMSET}
END memset

# dst in rdi, length in rsi.
.macro ZERO name, number
FUNCTION \name
    mov rdx, rsi
    xor esi, esi
    SET \number
END \name
.endm

ZERO bzero, {BZERO}
ZERO explicit_bzero, {EXPLICIT_BZERO}

# As the function without _chk, with the length of the destination after its other arguments.
.macro CHECKED name, size, length
FUNCTION __\name\()_chk
    cmp \size, \length
    jae .L\name
    jmp .Loverflow
END __\name\()_chk
.endm

CHECKED memcpy, rcx, rdx
CHECKED memmove, rcx, rdx
CHECKED mempcpy, rcx, rdx
CHECKED memset, rcx, rdx
CHECKED explicit_bzero, rdx, rsi

# The C library does copies of medium length, unless page aliasing may slow it down: the destination begins a few bytes after the
# source modulo the page size. Apart from the functions, so that these stay in half a cache line each.
.macro LONGER name, pointer, number
    .p2align 5
.Llonger_\name:
    .cfi_startproc
    cmp rdx, [rip + {table} + {copy_always_from}]
    jae 2f
    lea eax, [rdi - 1]
    sub eax, esi
    and eax, {LAST_OF_PAGE}
    cmp eax, {MOST_DISTANCE}
    jb 2f
    jmp [rip + {table} + \pointer]
2:  mov ecx, \number
    jmp .Llong_copy
    .cfi_endproc
.endm

LONGER memcpy, {memmove}, {MEMCPY}
LONGER memmove, {memmove}, {MEMMOVE}
LONGER mempcpy, {mempcpy}, {MEMPCPY}

.Loverflow:
    cmp qword ptr [rip + {table} + {chk_fail}], 0
    je 2f
    jmp [rip + {table} + {chk_fail}]
2:  ud2

# The stack is aligned for the Rust function, because memcpy does not depend on the caller's alignment.
.macro LONG name, function, pointer
    .p2align 5
.Llong_\name:
    .cfi_startproc
    cmp qword ptr [rip + {table} + \pointer], 0
    je .Lrep_\name
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    and rsp, -16
    call \function
    leave
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
.endm

LONG copy, {copy}, {memmove}
LONG set, {set}, {memset}

.Lrep_copy:
    .cfi_startproc
    mov rax, rdi
    cmp ecx, {MEMPCPY}
    jne 2f
    add rax, rdx
2:  mov r8, rdi
    sub r8, rsi
    mov rcx, rdx
    # dst is inside of src..src+length: the last byte first.
    cmp r8, rdx
    jb 2f
    rep movsb
    ret
2:  lea rdi, [rdi + rdx - 1]
    lea rsi, [rsi + rdx - 1]
    std
    rep movsb
    cld
    ret
    .cfi_endproc

.Lrep_set:
    .cfi_startproc
    mov r8, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
    .cfi_endproc

.macro C_LIBRARY name, pointer, otherwise
    .globl c_library_\name
    .hidden c_library_\name
    .type c_library_\name, @function
    .p2align 4
c_library_\name:
    .cfi_startproc
    cmp qword ptr [rip + {table} + \pointer], 0
    je 2f
    jmp [rip + {table} + \pointer]
2:  mov ecx, {MEMMOVE}
    jmp \otherwise
    .cfi_endproc
    .size c_library_\name, . - c_library_\name
.endm

C_LIBRARY memcpy, {memmove}, .Lrep_copy
C_LIBRARY memmove, {memmove}, .Lrep_copy
C_LIBRARY memset, {memset}, .Lrep_set
