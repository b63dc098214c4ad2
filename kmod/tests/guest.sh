# Guests: the initramfs and QEMU. Sourced, never run, after kernels.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # use_kernel sets kernel_root, kernel_release and kernel_image

passed=0
failed=0

# verdict TEST TROUBLE: a test of the run `name`, which passes if TROUBLE is empty.
verdict() {
    if [[ -z $2 ]]; then
        passed=$((passed + 1))
        echo "test $name::$1 ... ok"
    else
        failed=$((failed + 1))
        echo "test $name::$1 ... FAILED"
        printf '%s\n' "$2" | sed 's/^/    /'
    fi
}

# result: prints the sums of the verdicts.
result() {
    echo "test result: $( ((failed)) && echo FAILED || echo ok). $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
}

# add_file FILE ROOT PATH: copies FILE to ROOT/PATH without debug information.
add_file() {
    mkdir -p "$(dirname "$2/$3")"
    strip --strip-debug -o "$2/$3" "$1" 2>/dev/null || cp -L "$1" "$2/$3"
}

# add_program FILE ROOT [FOLDER]: copies FILE to ROOT/bin or another folder, and the libraries that it loads.
add_program() {
    local library
    [[ -x $1 ]] || fail "$1, which a guest needs, does not exist"
    add_file "$1" "$2" "${3:-bin}/${1##*/}"
    while IFS= read -r library; do
        [[ -e $2/$library ]] || add_file "$library" "$2" "$library"
    done < <(ldd "$1" 2>/dev/null | grep -o '/[^ ]*')
}

# add_kernel_modules ROOT NAME…: adds the kernel's own modules and their dependencies, in the order of loading.
add_kernel_modules() {
    local root=$1 name path paths
    shift
    for name in "$@"; do
        # Without this machine's configuration, in which ndctl replaces commands for libnvdimm.
        paths=$(modprobe -C /dev/null -d "$kernel_root" -S "$kernel_release" --show-depends "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p') ||
            fail "kernel $kernel_release has no module $name"
        for path in $paths; do
            name=$(basename "$path" .xz)
            grep -qsx "$name" "$root/modules/order" && continue
            mkdir -p "$root/modules"
            case $path in
            *.xz) xz -dc "$path" >"$root/modules/$name" ;;
            *) cp "$path" "$root/modules/$name" ;;
            esac
            echo "$name" >>"$root/modules/order"
        done
    done
}

# make_initramfs OUT ROOT [INIT]: archives the folder ROOT, with busybox and our init or another first process, as OUT.
make_initramfs() {
    local out=$1 root=$2
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,root}
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "${3:-kmod/tests/init}" "$root/init"
    (cd "$root" && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet) >"$out"
}

# qemu SECONDS ARGUMENTS…: runs QEMU for at most SECONDS, and no longer than this shell lives.
qemu() {
    local seconds=$1
    shift
    # A processor with everything that QEMU can emulate; later arguments override these. Both processors share one thread:
    # a livepatch rewrites code that the other processor executes, and before 8.1 QEMU with one thread per processor can
    # execute an old translation of it ("Always lock pages before translation"), including a removed breakpoint.
    setpriv --pdeathsig KILL timeout --kill-after=5 "$seconds" setpriv --pdeathsig KILL \
        qemu-system-x86_64 -accel tcg,thread=single -cpu max -machine q35 -smp 2 -m 2G \
        -nodefaults -display none -monitor none -no-reboot "$@" </dev/null
}

# The kernel's command line in every guest: every problem is a panic. Emulation is slow, so the watchdogs have long
# timeouts, and the check at boot that the timer interrupts in time is left out.
GUEST_KERNEL_LINE="no_timer_check console=ttyS0 loglevel=5 panic=-1 panic_on_warn=1 oops=panic hung_task_panic=1 \
rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60"

# Messages that a healthy kernel never logs.
KERNEL_TROUBLE='WARNING: (CPU|possible|suspicious|inconsistent|bad|lock)|BUG[: ]|Oops|Call Trace|Kernel panic|blocked for more than|detected stall|soft lockup|Bad page|corrupt'
# One that it logs when a test touches a page that the test has marked as broken.
KERNEL_EXPECTED='MCE: Killing bulkmem-kmod-te.* due to hardware memory corruption fault'

# complaints FILE…: prints the first of such messages.
complaints() { cat "$@" 2>/dev/null | grep -avE "$KERNEL_EXPECTED" | grep -aE "$KERNEL_TROUBLE" | head -n 20 || true; }

# boot_guest EMULATOR LOGS SECONDS ROOT KERNEL_LINE QEMU_ARGUMENTS…: boots kernel_release with the initramfs ROOT.cpio, and
# writes the output of the console, the tests and the kernel's log to LOGS/{console,tests,kernel}. Returns 0 if the guest
# reached its end; sets guest_status (its exit status) and guest_trouble (empty if there was none).
boot_guest() {
    local emulator=$1 logs=$2 seconds=$3 root=$4 line="$GUEST_KERNEL_LINE $5" status=0
    shift 5
    mkdir -p "$logs"
    rm -f "$logs"/{console,tests,kernel,bochs,screen}
    case $emulator in
    qemu)
        qemu "$seconds" -kernel "$kernel_image" -initrd "$root.cpio" -append "$line" -serial "file:$logs/console" \
            -serial "file:$logs/tests" -serial "file:$logs/kernel" "$@" >"$logs/screen" 2>&1 || status=$?
        ;;
    bochs) bochs "$seconds" "$logs" "$kernel_root/boot/vmlinuz-$kernel_release" "$root.cpio" "$line" || status=$? ;;
    *) fail "runs.sh: there is no emulator $emulator" ;;
    esac
    sed -i 's/\r$//' "$logs"/{console,tests,kernel} 2>/dev/null
    guest_status=$(sed -n 's/^guest: finished with status \([0-9]*\).*/\1/p' "$logs/tests" 2>/dev/null)
    guest_trouble=$(complaints "$logs/console" "$logs/kernel")
    case $status in
    0) ;;
    124 | 137) guest_trouble+="${guest_trouble:+$'\n'}the guest did not finish within $seconds seconds" ;;
    *) guest_trouble+="${guest_trouble:+$'\n'}$emulator ended with status $status: $(cat "$logs"/{screen,bochs} 2>/dev/null | tail -n 3)" ;;
    esac
    [[ -n $guest_status ]]
}
