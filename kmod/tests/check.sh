#!/usr/bin/env bash
# Runs sparse on the module with the headers of the tested kernels, checks that sparse reports planted faults, and checks
# the compiled instructions. `make lint` runs this; `--fetch` fetches what it needs.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh

# The cloud kernel's headers do not differ where the module uses them.
checked=(6.1 6.12)

# ready: true if everything that the check needs is installed.
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

# check KERNEL FOLDER: runs `make check` on the copy of the module in FOLDER.
check() {
    use_kernel "$1"
    make -s --no-print-directory -j "$(nproc)" -C "$2" check "KDIR=$kernel_root/lib/modules/$kernel_release/build" CONFIG_DEBUG_INFO_BTF_MODULES=
}

# copy FOLDER: copies the module's sources to FOLDER.
copy() {
    mkdir -p "$1"
    rm -f "$1"/*.[ch]
    cp kmod/Kbuild kmod/Makefile kmod/*.[ch] "$1"
}

# emits FUNCTION INSTRUCTION: checks that the compiled function contains it. sparse sees the macro, not the instruction.
emits() {
    local code
    code=$(objdump --no-show-raw-insn "--disassemble=$1" "$folder/bulkmem.o")
    grep -qE "\s$2(\s|\$)" <<<"$code" || fail "in the module for $kernel, $1 has no $2"
}

# stays_on_the_stack FUNCTION CALLEE: checks that it calls CALLEE. After a jump it would not be on the task's stack,
# and the livepatch could be removed and its code freed while the task still runs it.
stays_on_the_stack() {
    local code
    code=$(objdump --reloc --no-show-raw-insn "--disassemble=$1" "$folder/bulkmem.o" | grep -B 1 "_PLT32\s*$2-")
    if ! grep -qE '\scall\s' <<<"$code" || grep -qE '\sjmp\s' <<<"$code"; then
        fail "in the module for $kernel, $1 does not call $2: ${code:-nothing refers to it}"
    fi
}

# must_report FAULT EDIT WANTED [FILE]: checks that sparse reports WANTED after the sed expression EDIT has changed FILE,
# by default clear.c. The other files stay as they were compiled.
must_report() {
    local fault=$1 edit=$2 wanted=$3 file=${4:-clear.c} said
    sed "$edit" "kmod/$file" >"$folder/$file"
    ! cmp -s "kmod/$file" "$folder/$file" || fail "$file does not contain what the fault \"$fault\" changes: adapt check.sh"
    if said=$(check "$kernel" "$folder" 2>&1); then
        fail "sparse does not report this fault: $fault"
    fi
    grep -q "${file/./\\.}:.*$wanted" <<<"$said" || fail "for the fault \"$fault\" sparse does not report \"$wanted\", but: $said"
    cp "kmod/$file" "$folder/$file"
    echo "reported: $fault"
}

if ! ready; then
    missing "sparse, gcc-12 or the headers of the tested kernels; the module's fences were not checked (kmod/tests/check.sh --fetch)"
    exit
fi

for kernel in "${checked[@]}"; do
    folder=$KMOD_TARGET/check/$kernel
    copy "$folder"
    check "$kernel" "$folder" || fail "sparse on the module for $kernel: see above"
    stays_on_the_stack "$([[ $kernel == 6.1 ]] && echo bulkmem_clear_huge_page || echo bulkmem_folio_zero_user)" bulkmem_clear_huge
    stays_on_the_stack "$([[ $kernel == 6.1 ]] && echo bulkmem_copy_user_huge_page || echo bulkmem_copy_user_large_folio)" bulkmem_copy_huge
    stays_on_the_stack bulkmem_memcpy_flushcache bulkmem_flushcache
    emits bulkmem_clear_around sfence
    emits bulkmem_store_rep_stosb 'rep stos %al,%es:.*'
    emits bulkmem_store_rep_stosq 'rep stos %rax,%es:.*'
    emits bulkmem_store_movnti movnti
    emits bulkmem_store_clzero clzero
    emits bulkmem_store_prefetchw prefetchw
    emits bulkmem_copy_around sfence
    emits bulkmem_store_copy_movnti movnti
    emits bulkmem_store_copy_movnti prefetchnta
    emits bulkmem_flushcache_store_stock movnti
    emits bulkmem_flushcache_store_words movnti
    emits bulkmem_flushcache_store_half movnti
    emits bulkmem_flushcache_store_movnti movnti
    emits bulkmem_flushcache_store_clwb clwb
    emits bulkmem_flushcache_store_clflushopt clflushopt
    emits bulkmem_flushcache_clwb clwb
    emits bulkmem_flushcache_clflushopt clflushopt
    parameters=$(PATH=$PATH:/sbin:/usr/sbin modinfo -p "$folder/bulkmem.ko")
    ! grep 'For tests' <<<"$parameters" || fail "in the module for $kernel, a production build has this parameter"
    [[ $parameters == *threshold:* ]] || fail "modinfo shows no parameters of the module for $kernel: $parameters"
    # So that traces read well. The exceptions are inline functions of the kernel, and those that TRACE_EVENT defines.
    unprefixed=$(nm "$folder/bulkmem.o" | grep ' [tT] ' |
        grep -v '[tT] \(__pfx_\|bulkmem_\|init_module\|cleanup_module\|jhash\|rht_key_get_hash\|[a-zA-Z_]*_bulkmem_extent$\)') || true
    [[ -z $unprefixed ]] || fail "in the module for $kernel, functions without the prefix bulkmem_: $unprefixed"
    echo "$kernel: no warnings, and every method has its instruction"
done
must_report "a fence left out" 's/kaddr = incoherent_end(addr);/;/' "context imbalance in 'bulkmem_clear_around'"
must_report "weakly ordered stores to an ordinary pointer" 's/clear_weak(plan, addr, head)/clear_weak(plan, kaddr, head)/' \
    "incorrect type in argument 2 (different address spaces)"
must_report "an ordinary pointer without a fence" 's/kaddr = incoherent_end(addr);/kaddr = addr;/' \
    "incorrect type in assignment (different address spaces)"
must_report "a fence of a copy left out" 's/to = incoherent_end(addr);/;/' "context imbalance in 'bulkmem_copy_around'" copy.c
must_report "weakly ordered copies to an ordinary pointer" 's/copy_weak(plan, addr, from, first)/copy_weak(plan, to, from, first)/' \
    "incorrect type in argument 2 (different address spaces)" copy.c
must_report "weakly ordered copies to persistent memory by an ordinary pointer" 's/method->weak(weak + done/method->weak(to + done/' \
    "incorrect type in argument 1 (different address spaces)" flushcache.c
