#!/usr/bin/env bash
# Runs one line of runs.sh and prints libtest's lines. test-kmod.sh fetches and builds everything first.
#   kmod/tests/run-one.sh NAME [--tests FILTERS] [--shell]
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh
# shellcheck source=kmod/tests/planted.sh
. kmod/tests/planted.sh
# shellcheck source=kmod/tests/bochs.sh
. kmod/tests/bochs.sh

wanted=$1
only=
shell=
shift
while (($# > 0)); do
    case $1 in
    --tests) only=$2 && shift ;;
    --shell) shell=1 ;;
    *) fail "run-one.sh: unknown option $1" ;;
    esac
    shift
done

script() {
    [[ $1 == "$wanted" ]] || return 0
    found=1
    shift
    exec "$@"
}

# plant_all KERNEL ROOT: adds each module with a fault, and a script that passes if the tests fail with it and pass with the
# unchanged module.
plant_all() {
    local row name test
    local -A sound=()
    cp "$(module_file "$1" plain)" "$2/plain.ko"
    for row in "${PLANTED[@]}"; do
        sound[${row##*|}]=1
    done
    cat >"$2/todo" <<END
passed=0 failed=0
# verdict NAME COMMAND…
verdict() {
    name=\$1
    shift
    if "\$@"; then
        passed=\$((passed + 1)); echo "test planted::\$name ... ok"
    else
        failed=\$((failed + 1)); echo "test planted::\$name ... FAILED"; cat /tmp/said
    fi
}
sound() {
    BULKMEM_MODULE=/plain.ko BULKMEM_TESTS='${!sound[*]}' bulkmem-kmod-tests --color never >/tmp/said 2>&1
}
# The module must load, so that the test and not the self-test detects the fault, and the test must fail instead of crashing.
seen() {
    ! BULKMEM_MODULE=/\$1.ko bulkmem-kmod-tests --color never \$2 >/tmp/said 2>&1 &&
        grep -q '^test result: FAILED' /tmp/said && grep -q '^bulkmem ' /proc/modules
}
verdict without_a_fault_all_tests_pass sound
END
    for row in "${PLANTED[@]}"; do
        IFS='|' read -r name _ _ test <<<"$row"
        cp "$(module_file "$1" "$name")" "$2/$name.ko"
        echo "verdict '$name is seen by $test' seen $name $test" >>"$2/todo"
    done
    # shellcheck disable=SC2016 # for the guest's shell
    echo 'word=ok; [ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
exit $failed' >>"$2/todo"
}

guest() {
    [[ $1 == "$wanted" ]] || return 0
    found=1
    local name=$wanted kernel=$2 tests='' line='' load='' variant=plain run='' planted='' emulator=qemu seconds=600 program root
    local -a qemu_words=() files=() programs=("$TARGET_DIR/debug/bulkmem-kmod-tests")
    shift 2
    while (($# > 0)); do
        case $1 in
        --tests) tests=$2 ;;
        --kernel-line) line=$2 ;;
        --qemu) read -r -a qemu_words <<<"$2" ;;
        --load) load=$2 ;;
        --program) programs+=("$2") ;;
        --file) files+=("$2") ;;
        --variant) variant=$2 ;;
        --run) run=$2 ;;
        --emulator) emulator=$2 ;;
        --seconds) seconds=$2 ;;
        --planted) planted=1 && shift && continue ;;
        *) fail "runs.sh: $wanted: unknown option $1" ;;
        esac
        shift 2
    done
    tests=${only:-$tests}

    use_kernel "$kernel"
    root=$KMOD_TARGET/guests/$wanted
    rm -rf "$root" "$root.cpio"
    mkdir -p "$root"
    for program in "${programs[@]}"; do
        add_program "$program" "$root"
    done
    ((${#files[@]} == 0)) || cp "${files[@]}" "$root/"
    # shellcheck disable=SC2086 # a list of words
    add_kernel_modules "$root" $load
    [[ -n $planted ]] || cp "$(module_file "$kernel" "$variant")" "$root/bulkmem.ko"
    for program in "${HELPERS[@]}"; do
        cp "$(helpers "$kernel")/$program.ko" "$root/"
    done
    echo "$wanted" >"$root/name"
    if [[ -n $run ]]; then
        cp "$run" "$root/todo"
    elif [[ -n $planted ]]; then
        plant_all "$kernel" "$root"
    else
        {
            echo "status=0"
            for program in $tests; do
                # Otherwise a filter that matches nothing would pass.
                # shellcheck disable=SC2016 # for the guest's shell
                printf '[ -n "$(bulkmem-kmod-tests --list %q)" ] || { echo "guest: no test matches %q"; status=1; }\n' \
                    "$program" "$program"
            done
            # In one process: each loads the module again.
            printf 'BULKMEM_TESTS=%q bulkmem-kmod-tests --color never || status=1\n' "$tests"
            # shellcheck disable=SC2016 # for the guest's shell
            echo 'exit $status'
        } >"$root/todo"
    fi
    make_initramfs "$root.cpio" "$root"
    rm -rf "$root"

    if [[ -n $shell ]]; then
        [[ $emulator == qemu ]] || fail "the guest $wanted has no shell: $emulator has no interactive console"
        echo "The guest $wanted, kernel $kernel_release: \`insmod /bulkmem.ko\`, \`sh /todo\`; \`poweroff -f\` or Ctrl-A X ends it."
        exec qemu-system-x86_64 -accel tcg,thread=single -cpu max -machine q35 -smp 2 -m 2G -nographic -no-reboot \
            -kernel "$kernel_image" -initrd "$root.cpio" \
            -append "$GUEST_KERNEL_LINE $line kmod_shell" "${qemu_words[@]}"
    fi

    local logs=$KMOD_TARGET/logs/$wanted end='' dead=''
    local -a boot=(boot_guest "$emulator" "$logs" "$seconds" "$root" "$line" "${qemu_words[@]}")
    "${boot[@]}" || dead=1
    # Our module taints the kernel, so a crash of one that is not tainted is a fault of the kernel or the emulator.
    if [[ -n $dead ]] && grep -qs 'Not tainted' "$logs/console"; then
        mv "$logs/console" "$logs/console-first"
        echo "the kernel crashed before our module was loaded ($logs/console-first); the guest starts once more"
        dead=''
        "${boot[@]}" || dead=1
    fi
    [[ -z $dead ]] || end="the guest died before its end. The console's last lines:
$(tail -n 15 "$logs/console" 2>/dev/null || echo none)"
    rm -f "$root.cpio"
    echo "kernel $kernel_release $line (logs: $logs)"
    [[ -f $logs/tests ]] && cat "$logs/tests"
    [[ -z $end && $guest_status != 0 ]] && end="its tests ended with status $guest_status: see above"
    verdict "reaches_its_end" "$end"
    verdict "kernel_has_no_complaint" "$guest_trouble"
    result
    ((failed == 0))
}

found=
# shellcheck source=kmod/tests/runs.sh
. kmod/tests/runs.sh
[[ -n $found ]] || fail "runs.sh has no run $wanted"
