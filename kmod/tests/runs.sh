# What `make test-kmod` runs, in the order of starting: the longest first, since two run at a time. Sourced, never run.
# shellcheck shell=bash
#
# guest NAME KERNEL OPTIONS…: boots KERNEL (a name from kernels.sh) once.
#   --tests 'A B'        filters for the guest's tests, one process each; each must match a test
#   --kernel-line TEXT   added to the kernel's command line
#   --qemu 'WORDS'       added to QEMU's; overrules what guest.sh says
#   --load 'MODULES'     the kernel's own modules to load first, by name
#   --program FILE       goes to the guest's /bin with its libraries; again for more
#   --run FILE           what the guest runs in place of the tests
#   --variant NAME       a module that variant_NAME, a function here, makes of the sources' copy it runs in
#   --planted            the module with each fault of planted.sh in turn, and the test that must see it
#   --emulator bochs     Bochs instead of QEMU: a Ryzen, which has CLZERO; one processor, 1 GiB
#   --seconds N          how long it may take [default: 300]
# script NAME FILE …     an executable of its own, which prints libtest's lines. It may source what we source.

pool='hugepagesz=2M hugepages=64'
huge_pages="hugepagesz=1G hugepages=1 $pool"

clearing='frame:: clearing:: hints::'
# Nobody but us clears: Debian's kernels clear pages when they are allocated, which would hide what we leave out.
bare='init_on_alloc=0'
# Debian has no KASAN kernel of these versions; what its kernels have of checks, all of it.
debug='slub_debug=FZPU page_poison=1 preempt=full'

# Bochs is slow, and takes one processor.
guest clzero 6.12-cloud --emulator bochs --seconds 450 --kernel-line "$pool $bare" --tests 'ryzen::'
# So many kills, and two of controls; each is a boot.
script pmem-6.12 kmod/tests/pmem.sh pmem-6.12 6.12 6 "$TARGET_DIR/debug/bulkmem"
# The memory of /dev/bulkmem, on two nodes.
two_nodes="-m 4G -smp 2,sockets=2 -object memory-backend-ram,id=a,size=2G -object memory-backend-ram,id=b,size=2G \
-numa node,cpus=0,memdev=a -numa node,cpus=1,memdev=b"
for kernel in 6.12 6.1; do
    guest "memory-$kernel" "$kernel" --kernel-line "$bare" --qemu "$two_nodes" --load hwpoison-inject \
        --program "$KMOD_TARGET/device-example" --tests 'memory::' --seconds 400
done
guest 6.12 6.12 --kernel-line "$huge_pages" --qemu '-m 4G' --tests "$clearing gigantic:: smaller::"
guest 6.1 6.1 --kernel-line "$huge_pages" --qemu '-m 4G' --tests "$clearing gigantic::"
# 6.12 is loaded and unloaded on one processor: see the end of README.md; and no slower for it.
guest loading-6.12 6.12 --kernel-line "$pool $bare" --qemu '-smp 1' --tests 'loading:: params:: stress:: coexistence::'
guest loading-6.1 6.1 --kernel-line "$pool" --qemu '-smp 1' --tests 'loading:: params:: coexistence::'
script pmem-6.1 kmod/tests/pmem.sh pmem-6.1 6.1 1 "$TARGET_DIR/debug/bulkmem"
guest bare-6.12 6.12 --kernel-line "$pool $bare" --tests 'clearing:: smaller::'
guest bare-6.1 6.1 --kernel-line "$pool $bare" --tests 'clearing:: stress::'
guest debug-6.12 6.12 --kernel-line "$pool $debug kfence.sample_interval=20" --qemu '-smp 1' --tests 'clearing:: hints:: stress:: memory::processes'
guest debug-6.1 6.1 --kernel-line "$pool $debug" --tests 'clearing:: hints:: stress:: memory::processes memory::many'
guest planted 6.12 --kernel-line "$pool $bare" --qemu '-smp 1' --planted
guest pressure-6.12 6.12-cloud --kernel-line "$bare" --qemu '-m 768M' --tests 'pressure::'
guest pressure-6.1 6.1 --kernel-line "$bare" --qemu '-m 768M' --tests 'pressure::'
guest command-6.12 6.12 --program "$TARGET_DIR/debug/bulkmem" --qemu '-smp 1' --tests 'command:: attributes::'
guest command-6.1 6.1 --program "$TARGET_DIR/debug/bulkmem" --tests 'command:: attributes::'
guest 6.12-cloud 6.12-cloud --kernel-line "$pool" --tests 'frame:: clearing::populated hints::'
# The quirk itself, not its pretence. This processor's kernel would warn of mitigations that the emulation lacks.
guest quirk 6.1 --kernel-line 'mitigations=off' --qemu '-smp 1 -cpu Cascadelake-Server' --tests 'loading::defaults loading::quirk'
guest lockdown 6.12-cloud --kernel-line 'lockdown=integrity' --tests 'unsigned::'
guest sig-enforce 6.1 --kernel-line 'module.sig_enforce=1' --tests 'unsigned::'
script uninstall kmod/tests/uninstall.sh 6.12-cloud
script dkms kmod/tests/dkms.sh 6.1 6.12

# There is no such function in any kernel.
variant_unpatchable() { sed -i 's/"\(clear_huge_page\|folio_zero_user\)"/"no_such_function"/' main.c; }
guest unpatchable 6.12 --variant unpatchable --qemu '-smp 1' --tests 'unpatchable::'
