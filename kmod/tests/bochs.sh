# Bochs, whose model `ryzen` supports CLZERO, which QEMU does not emulate. Sourced, never run, after guest.sh.
# shellcheck shell=bash

# The files that it needs besides the program; test-kmod.sh lists their Debian packages.
ISOLINUX=/usr/lib/ISOLINUX/isolinux.bin
LDLINUX=/usr/lib/syslinux/modules/bios/ldlinux.c32
BOCHS_BIOS=/usr/share/bochs/BIOS-bochs-latest
BOCHS_VGA_BIOS=/usr/share/vgabios/vgabios.bin

# Further words of the kernel's command line: no XSAVE, because Bochs 2.7 refuses what its own XSAVES wrote; nothing that
# only costs instructions; and reboot by a triple fault, which ends Bochs.
BOCHS_KERNEL_LINE='console=ttyS0,115200 noxsave nokaslr mitigations=off reboot=triple'

# bochs_disc OUT KERNEL INITRAMFS LINE: makes a disc that boots KERNEL, because Bochs cannot start a kernel directly.
bochs_disc() {
    local out=$1 folder=$1.d
    rm -rf "$folder"
    mkdir -p "$folder/isolinux"
    cp "$ISOLINUX" "$LDLINUX" "$folder/isolinux"
    cp "$2" "$folder/linux"
    gzip -1 <"$3" >"$folder/initrd"
    printf '%s\n' 'DEFAULT guest' 'PROMPT 0' 'LABEL guest' ' KERNEL /linux' ' INITRD /initrd' " APPEND $4" \
        >"$folder/isolinux/isolinux.cfg"
    xorriso -as mkisofs -quiet -o "$out" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$folder"
    rm -rf "$folder"
}

# bochs SECONDS LOGS KERNEL INITRAMFS LINE: boots once, with the serial lines as LOGS/{console,tests,kernel}. Returns 0 if
# the guest switched itself off.
bochs() {
    local seconds=$1 logs=$2 disc=$4.iso status=0
    local setting
    local -a settings=(
        # An instruction counts as 10 ns, independent of real time.
        # MWAITX does nothing: Bochs 2.7 never wakes from it, and Linux uses it for short delays on a Ryzen.
        'cpu: model=ryzen, count=1, ips=100000000, reset_on_triple_fault=0, ignore_bad_msrs=1, mwait_is_nop=1'
        'clock: sync=none'
        'memory: guest=1024, host=1024'
        "romimage: file=$BOCHS_BIOS"
        "vgaromimage: file=$BOCHS_VGA_BIOS"
        'boot: cdrom'
        'ata0: enabled=1'
        "ata0-master: type=cdrom, path=$disc, status=inserted"
        'floppya: type=none'
        "com1: enabled=1, mode=file, dev=$logs/console"
        "com2: enabled=1, mode=file, dev=$logs/tests"
        "com3: enabled=1, mode=file, dev=$logs/kernel"
        # Without dummy drivers, its sound threads crash on machines without a sound card.
        'sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy'
        'plugin_ctrl: speaker=0, gameport=0, parallel=0'
        'config_interface: textconfig'
        'display_library: term'
        "log: $logs/bochs"
        'panic: action=fatal'
        'error: action=report'
        'info: action=ignore'
        'debug: action=ignore'
    )
    for setting in "${settings[@]}"; do
        printf '%s\n' "$setting"
    done >"$logs/bochsrc"
    # Debian's build starts in the debugger.
    echo continue >"$logs/continue"
    bochs_disc "$disc" "$3" "$4" "$5 $BOCHS_KERNEL_LINE" >"$logs/screen" 2>&1 || {
        tail -n 5 "$logs/screen" >&2
        return 1
    }
    TERM=vt100 setpriv --pdeathsig KILL timeout --signal=KILL "$seconds" setpriv --pdeathsig KILL \
        bochs -q -f "$logs/bochsrc" -rc "$logs/continue" </dev/null >"$logs/screen" 2>&1 || status=$?
    rm -f "$disc"
    # Bochs treats power-off as a panic.
    if grep -qs 'ACPI control: soft power off' "$logs/bochs"; then
        return 0
    fi
    return "$((status ? status : 1))"
}
