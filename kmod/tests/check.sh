#!/usr/bin/env bash
# sparse on the module, with the headers of the kernels that it is tested on; a proof that it would see a fence left
# out; and a look at the instructions. `make lint` runs it; `--fetch` instead gets what it needs.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh

# The cloud kernel's headers say nothing new.
checked=(6.1 6.12)

# ready: what a check needs is there.
ready() {
    local kernel
    for kernel in "${checked[@]}"; do
        [[ -n $(cached_release "$kernel") ]] || return
    done
    command -v sparse >/dev/null && command -v gcc-12 >/dev/null
}

if [[ ${1-} == --fetch ]]; then
    command -v sparse >/dev/null || install_packages sparse || fail "sparse is missing (Debian: apt-get install sparse)"
    command -v gcc-12 >/dev/null || install_packages gcc-12 || fail "gcc-12 is missing (Debian: apt-get install gcc-12)"
    mkdir -p "$KMOD_CACHE"
    exec {lock}>"$KMOD_CACHE/lock"
    flock "$lock"
    for kernel in "${checked[@]}"; do
        fetch_kernel "$kernel"
    done
    exec {lock}>&-
    exit
fi

# check KERNEL FOLDER: `make check` of the copy of the module that lies in FOLDER.
check() {
    use_kernel "$1"
    make -s --no-print-directory -C "$2" check "KDIR=$kernel_root/lib/modules/$kernel_release/build" CONFIG_DEBUG_INFO_BTF_MODULES=
}

# copy FOLDER: the module's sources, as they are.
copy() {
    mkdir -p "$1"
    rm -f "$1"/*.[ch]
    cp kmod/Kbuild kmod/Makefile kmod/*.[ch] "$1"
}

# emits FUNCTION INSTRUCTION: what the compiler made of it. A fence that sparse sees may yet be none to the processor.
emits() {
    local code
    code=$(objdump --no-show-raw-insn "--disassemble=$1" "$folder/bulkmem.o")
    grep -qE "\s$2(\s|\$)" <<<"$code" || fail "in the module for $kernel, $1 has no $2"
}

# stays_on_the_stack FUNCTION: it calls what does its work. After a jump no task would have it on its stack, and the
# livepatch would be taken out, and its code freed, while one is still at work.
stays_on_the_stack() {
    local code
    code=$(objdump --reloc --no-show-raw-insn "--disassemble=$1" "$folder/bulkmem.o" | grep -B 1 '_PLT32\s*bulkmem_clear_huge-')
    if ! grep -qE '\scall\s' <<<"$code" || grep -qE '\sjmp\s' <<<"$code"; then
        fail "in the module for $kernel, $1 does not call bulkmem_clear_huge: ${code:-nothing refers to it}"
    fi
}

# must_report FAULT EDIT WANTED: sparse says WANTED where the sed expression EDIT has changed clear.c.
must_report() {
    local fault=$1 edit=$2 wanted=$3 said
    copy "$folder"
    sed -i "$edit" "$folder/clear.c"
    ! cmp -s kmod/clear.c "$folder/clear.c" || fail "clear.c has no place for the fault \"$fault\": mend check.sh"
    if said=$(check "$kernel" "$folder" 2>&1); then
        fail "sparse has nothing to say of this fault: $fault"
    fi
    grep -q "clear\.c:.*$wanted" <<<"$said" || fail "of the fault \"$fault\" sparse does not say \"$wanted\", but: $said"
    echo "seen: $fault"
}

if ! ready; then
    missing "sparse, gcc-12 or the headers of the tested kernels; the module's fences were not checked (kmod/tests/check.sh --fetch)"
    exit
fi

for kernel in "${checked[@]}"; do
    folder=$KMOD_TARGET/check/$kernel
    copy "$folder"
    check "$kernel" "$folder" || fail "sparse on the module for $kernel: see above"
    stays_on_the_stack "$([[ $kernel == 6.1 ]] && echo bulkmem_clear_huge_page || echo bulkmem_folio_zero_user)"
    emits bulkmem_clear_around sfence
    emits bulkmem_store_rep_stosb 'rep stos'
    emits bulkmem_store_movnti movnti
    emits bulkmem_store_clzero clzero
    emits bulkmem_store_prefetchw prefetchw
    echo "$kernel: no warnings, and every method has its instruction"
done
must_report "a fence left out" 's/kaddr = incoherent_end(addr);/;/' "context imbalance in 'bulkmem_clear_around'"
must_report "weakly ordered stores to an ordinary pointer" 's/clear_weak(plan, addr, head)/clear_weak(plan, kaddr, head)/' \
    "incorrect type in argument 2 (different address spaces)"
must_report "an ordinary pointer without a fence" 's/kaddr = incoherent_end(addr);/kaddr = addr;/' \
    "incorrect type in assignment (different address spaces)"
