#!/usr/bin/env bash
# Tests the module: fetches kernels, builds the module for each, boots them under emulation, and runs tests in the
# guests.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/planted.sh
. kmod/tests/planted.sh

usage() {
    cat <<'END'
Usage: scripts/test-kmod.sh [NAME…] [--all] [--kernel KERNEL] [--tests 'FILTERS'] [--shell] [--list]

Tests the Linux module in virtual machines (QEMU, software emulation: no KVM, no module on this
machine). Without a NAME: the runs of kmod/tests/runs.sh on Debian 12's kernels, some at a time.

  --all           every run, on all kernels: 5.10, 6.1, 6.12, 7.2, 7.3
  --kernel 7.3    only the runs on this kernel; 6.1-debug, with KASAN and lockdep, is built first
  --tests 'A B'   only the guests' tests whose names contain A or B
  --shell         boot the one NAME to a shell instead
  --list          the names

  BULKMEM_KMOD_CACHE   where kernels are kept [default: ~/.cache/bulkmem/kmod]
  BULKMEM_KMOD_JOBS    virtual machines at a time [default: one for each processor and 4.5 GiB, at most 4]
END
}

names=()
options=()
shell=
list=
everything=
only_kernel=
while (($# > 0)); do
    case $1 in
    --tests) options+=(--tests "${2:?--tests needs filters}") && shift ;;
    --shell) shell=1 ;;
    --list) list=1 ;;
    --all) everything=1 ;;
    --kernel) only_kernel=${2:?--kernel needs a kernel} && everything=1 && shift ;;
    -h | --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) names+=("$1") ;;
    esac
    shift
done

# Runs of runs.sh: the names in its order, and for each "KERNEL VARIANT" to build.
all=()
default=()
declare -A module_of=() needs_libpmem=() needs_fio=()
guest() {
    local name=$1 kernel=$2 variant=plain
    all+=("$name")
    [[ ${when-} == all ]] || default+=("$name")
    shift 2
    while (($# > 0)); do
        case $1 in
        --variant) variant=$2 ;;
        --planted) variant=planted ;;
        --program)
            [[ $2 != "$TARGET_DIR/fio/bulkmem-fio.so" ]] || needs_fio[$name]=1
            ;;
        esac
        shift
    done
    module_of[$name]="$kernel $variant"
}
# The arguments of a script tell its requirements: the name of a kernel, the path of libpmem.so.1.
# A word can also be the name of a variant.
declare -A kernels_of=() variants_of=()
# shellcheck disable=SC2317 # runs.sh calls it
script() {
    local name=$1 word
    all+=("$name")
    [[ ${when-} == all ]] || default+=("$name")
    shift
    for word in "$@"; do
        [[ -z ${KERNELS[$word]-} ]] || kernels_of[$name]+=" $word"
        [[ $(type -t "variant_${word//-/_}") != function ]] || variants_of[$name]+=" $word"
        [[ $word != "$KMOD_TARGET/libpmem.so.1" ]] || needs_libpmem[$name]=1
    done
}
# shellcheck source=kmod/tests/runs.sh
. kmod/tests/runs.sh

if [[ -n $list ]]; then
    printf '%s\n' "${all[@]}"
    exit
fi
if [[ -n $only_kernel && -z ${KERNELS[$only_kernel]-} ]]; then
    fail "there is no kernel $only_kernel; there are: $(printf '%s\n' "${!KERNELS[@]}" | sort -V | xargs)"
fi
# runs_on KERNEL NAME: true if the run uses the kernel.
runs_on() {
    local module=${module_of[$2]-}
    [[ " ${module% *} ${kernels_of[$2]-} " == *" $1 "* ]]
}
if ((${#names[@]} == 0)); then
    names=("${default[@]}")
    if [[ -n $everything ]]; then
        names=()
        for name in "${all[@]}"; do
            # Not the debug kernel, which takes long to build.
            if [[ -n $only_kernel ]]; then runs_on "$only_kernel" "$name"; else ! runs_on 6.1-debug "$name"; fi && names+=("$name")
        done
    fi
fi
for name in "${names[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || fail "kmod/tests/runs.sh has no run $name; there are: ${all[*]}"
done

# skip WHY: skips the tests because of a missing program, which is not a fault of the module. BULKMEM_KMOD_REQUIRED=1,
# for continuous integration, makes it a failure.
skip() {
    [[ -z ${BULKMEM_KMOD_REQUIRED-} ]] || fail "$1"
    echo "skipped: the Linux module: $1"
    echo "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"
    exit
}

# drop WHAT WHY COMMAND…: skips only the runs for whose name COMMAND succeeds. Ends if no other is left.
drop() {
    local name what=$1 why=$2
    local -a left=()
    shift 2
    for name in "${names[@]}"; do
        "$@" "$name" || left+=("$name")
    done
    if ((${#left[@]} == 0)) || [[ -n ${BULKMEM_KMOD_REQUIRED-} ]]; then
        skip "$why"
    fi
    names=("${left[@]}")
    echo "skipped: the Linux module with $what: $why"
    echo "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"
}
# shellcheck disable=SC2317 # drop calls it
uses_fio() { [[ -n ${needs_fio[$1]-} ]]; }

# need_programs: installs missing programs that the tests need, from Debian's packages.
need_programs() {
    local program package
    local -a packages=()
    while read -r program package; do
        command -v "$program" >/dev/null || compgen -G "$program" >/dev/null || packages+=("$package")
    done <<'END'
qemu-system-x86_64 qemu-system-x86
cpio cpio
xz xz-utils
zstd zstd
depmod kmod
gcc-12 gcc-12
make make
bc bc
strip binutils
setpriv util-linux
bochs bochs
/usr/lib/*/bochs/plugins/libbx_term_gui.so bochs-term
/usr/share/bochs/BIOS-bochs-latest bochsbios
/usr/share/vgabios/vgabios.bin vgabios
/usr/lib/ISOLINUX/isolinux.bin isolinux
/usr/lib/syslinux/modules/bios/ldlinux.c32 syslinux-common
xorriso xorriso
dkms dkms
ndctl ndctl
mkfs.ext4 e2fsprogs
dmsetup dmsetup
fio fio
/lib/systemd/systemd systemd
END
    # The guest has only the libraries that are copied into it.
    { command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1; } || packages+=(busybox-static)
    ((${#packages[@]} == 0)) || install_packages "${packages[@]}" ||
        skip "its tests need these Debian packages, which could not be installed: ${packages[*]}"
}

[[ $(uname -m) == x86_64 ]] || skip "it is for x86-64, this machine is $(uname -m)"
need_tools
need_programs

logs=$KMOD_TARGET/logs
mkdir -p "$logs" "$KMOD_CACHE"
exec {ours}>"$KMOD_TARGET/lock"
flock -n "$ours" || fail "another run of the module's tests uses $KMOD_TARGET; wait for its end"

# The table of times at the end: seconds, and seconds of processor time, which other work on the machine changes less.
declare -A seconds_of=() work_of=()
phase_began=$SECONDS
worked=0
# work: sets work to the processor time of the commands that have ended since the last call.
work() {
    local before=$worked
    times >"$KMOD_TARGET/times"
    worked=$(seconds_in "$KMOD_TARGET/times")
    work=$((worked - before))
}
# phase NAME: ends a phase.
phase() {
    work
    work_of[$1]=$work
    seconds_of[$1]=$((SECONDS - phase_began))
    phase_began=$SECONDS
}

heading "programs"
# As `cargo test` builds them, so that `make test` builds nothing twice: all packages, because they share the features of
# their dependencies, and with a test, because only then those of their tests count.
cargo build --locked --profile test --workspace --exclude hostile --lib --bins --test calibrate
for name in "${names[@]}"; do
    [[ -n ${needs_libpmem[$name]-} ]] || continue
    scripts/link-c.sh libpmem "$TARGET_DIR/debug/libbulkmem_libpmem.a" "$KMOD_TARGET"
    gcc-12 -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -o "$KMOD_TARGET/without_map_sync.so" kmod/tests/without_map_sync.c
    break
done
for name in "${names[@]}"; do
    [[ -n ${needs_fio[$name]-} ]] || continue
    if ! command -v fio >/dev/null && ! install_packages fio; then
        drop fio "the Debian package fio could not be installed" uses_fio
    elif ! scripts/build-fio.sh "$TARGET_DIR/debug/libbulkmem_c.a"; then
        drop fio "the engine for fio cannot be built: see above" uses_fio
    fi
    break
done
# The example of the book, unchanged.
# shellcheck disable=SC2016 # fences of Markdown
sed -n '/^```c$/,/^```$/{/^```/!p}' docs/kernel/device.md >"$KMOD_TARGET/device-example.c"
gcc-12 -std=gnu11 -Wall -Wextra -Werror -Ikmod -o "$KMOD_TARGET/device-example" "$KMOD_TARGET/device-example.c" ||
    fail "the C example of docs/kernel/device.md does not compile: see above"

phase '(programs)'

heading "kernels"
for kernel in $(printf '%s\n' "${!KERNELS[@]}" | sort -V); do
    wanted=
    for name in "${names[@]}"; do
        ! runs_on "$kernel" "$name" || wanted=1
    done
    [[ -n $wanted ]] || continue
    # One at a time, also if two checkouts are tested concurrently.
    exec {lock}>"$KMOD_CACHE/lock$([[ $kernel != *-debug ]] || echo "-$kernel")"
    flock "$lock"
    if (fetch_kernel "$kernel"); then
        use_kernel "$kernel"
        unpack_image
        echo "$kernel: $kernel_release"
    else
        drop "kernel $kernel" "kernel $kernel is unavailable: see above" runs_on "$kernel"
    fi
    exec {lock}>&-
done
declare -A modules=()
for name in "${names[@]}"; do
    for kernel in ${kernels_of[$name]-}; do
        for variant in plain ${variants_of[$name]-}; do
            modules[$kernel $variant]=1
        done
    done
    [[ -n ${module_of[$name]-} ]] || continue
    # With the unchanged one, which the others are built from.
    modules[${module_of[$name]}]=1
    modules[${module_of[$name]% *} plain]=1
done

if [[ -n $shell ]]; then
    ((${#names[@]} == 1)) || fail "--shell wants one NAME"
    read -r kernel variant <<<"${module_of[${names[0]}]}"
    build_variant "$kernel" plain
    [[ $variant == plain ]] || build_variant "$kernel" "$variant"
    exec kmod/tests/run-one.sh "${names[0]}" --shell
fi

phase '(kernels)'

heading "the module, with warnings as errors"
# build_each MODULE…: builds each "KERNEL VARIANT"; prints a line of libtest for each. Fails if one does not build.
build_each() {
    local module kernel variant result failed=0
    for module in "$@"; do
        read -r kernel variant <<<"$module"
        result=ok
        (build_variant "$kernel" "$variant") || { result=FAILED && failed=$((failed + 1)); }
        printf 'test build::%s::%s ... %s\n' "$kernel" "$variant" "$result"
    done
    echo "test result: $( ((failed)) && echo FAILED || echo ok). $(($# - failed)) passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
    ((failed == 0))
}
mapfile -t plain < <(printf '%s\n' "${!modules[@]}" | grep ' plain$' | sort -V)
mapfile -t changed < <(printf '%s\n' "${!modules[@]}" | grep -v ' plain$' | sort -V)
# Otherwise a guest would test the results of an earlier build.
build_each "${plain[@]}" | tee "$KMOD_TARGET/plain" || fail "the module does not build: see above"

phase '(modules)'

# A guest has up to 4 GiB, and some use all of it. `make test` builds other tests next to them.
room=$(awk '/^MemAvailable:/ { print int(($2 / 1024 - 2048) / 4608) }' /proc/meminfo)
jobs=$(($(nproc) < 4 ? $(nproc) : 4))
jobs=${BULKMEM_KMOD_JOBS:-$((room < 1 ? 1 : room < jobs ? room : jobs))}
heading "${#names[@]} runs, $jobs at a time"
declare -A running=() began=()
status=0

# reap: waits for one run and prints its output.
reap() {
    local process name result=0
    wait -n -p process "${!running[@]}" || result=$?
    name=${running[$process]}
    work
    work_of[$name]=$work
    seconds_of[$name]=$((SECONDS - began[$name]))
    unset "running[$process]"
    [[ $name != changed-modules ]] || trap - EXIT
    # tally.awk counts a run without a result as one failure.
    printf '\n     Running %s\n' "$name"
    cat "$logs/$name.out"
    ((result == 0)) || status=1
}

# is_ready NAME: true if the modules that the run uses are built.
is_ready() {
    [[ " ${running[*]} " != *" changed-modules "* ]] || [[ -z ${variants_of[$1]-} && ${module_of[$1]-plain} == *plain ]]
}

# Builds changed modules during the first runs; counts as one of `jobs`. It has a process group of its own, so that it ends
# together with this script.
: >"$logs/changed-modules.out"
if ((${#changed[@]} > 0)); then
    set -m
    build_each "${changed[@]}" >"$logs/changed-modules.out" 2>&1 &
    set +m
    running[$!]='changed-modules'
    began[changed-modules]=$SECONDS
    # shellcheck disable=SC2064 # the number of now
    trap "kill -- -$! 2>/dev/null || true" EXIT
fi
queue=("${names[@]}")
while ((${#queue[@]} > 0)); do
    if ((${#running[@]} < jobs)); then
        for at in "${!queue[@]}"; do
            name=${queue[at]}
            is_ready "$name" || continue
            unset "queue[at]"
            # Ends together with this script.
            setpriv --pdeathsig KILL kmod/tests/run-one.sh "$name" "${options[@]}" >"$logs/$name.out" 2>&1 &
            running[$!]=$name
            began[$name]=$SECONDS
            continue 2
        done
    fi
    reap
done
while ((${#running[@]} > 0)); do
    reap
done

heading "seconds, and seconds of processor time"
for name in "${!seconds_of[@]}"; do
    printf '%6d %6d %s\n' "${seconds_of[$name]}" "${work_of[$name]}" "$name"
done | sort -k 2,2nr
printf '%6d %6d in total\n' "$SECONDS" "$worked"

if [[ -n $everything ]]; then
    heading "tests by kernel"
    {
        for kernel in $(printf '%s\n' "${!KERNELS[@]}" | sort -V); do
            sed -n "s/^test build::$kernel::/$kernel\t&/p" "$KMOD_TARGET/plain" "$logs/changed-modules.out"
        done
        for kernel in $(printf '%s\n' "${!KERNELS[@]}" | sort -V); do
            for name in "${names[@]}"; do
                # Not runs that use several kernels.
                module=${module_of[$name]-}
                [[ "${module% *}${kernels_of[$name]-}" =~ ^\ *"$kernel"\ *$ ]] || continue
                sed "s/^/$kernel\t/" "$logs/$name.out"
            done
        done
    } | awk -f kmod/tests/matrix.awk
    [[ -n $only_kernel ]] || echo "for one kernel: scripts/test-kmod.sh --kernel 7.3"
fi
exit "$status"
