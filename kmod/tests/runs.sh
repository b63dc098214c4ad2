# The runs of `make test-kmod`, in the order of starting: the longest first, because two run at a time. Sourced, never run.
# shellcheck shell=bash
#
# guest NAME KERNEL OPTIONS…: boots KERNEL (a name from kernels.sh) once.
#   --tests 'A B'        words of the names of the guest's tests, which run in one process; each must match a test
#   --kernel-line TEXT   added to the kernel's command line
#   --qemu 'WORDS'       added to QEMU's command line; overrides guest.sh
#   --load 'MODULES'     the kernel's own modules to load first, by name
#   --program FILE       copied to the guest's /bin with its libraries; can be repeated
#   --file FILE          copied to the guest's root folder; can be repeated
#   --run FILE           a script that the guest runs instead of the tests
#   --variant NAME       a module from sources that variant_NAME, a function here, has changed
#   --planted            the module with each fault of planted.sh, and the test that must detect it
#   --emulator bochs     Bochs instead of QEMU: a Ryzen, which supports CLZERO; one processor, 1 GiB
#   --seconds N          time limit, for a busy machine [default: 600]
# script NAME FILE …     an executable that prints libtest's lines. It can source the same files.

pool='hugepagesz=2M hugepages=64'
huge_pages="hugepagesz=1G hugepages=1 $pool"

hinting='hints:: callers:: cgroups:: automatic::'
clearing="frame:: clearing:: $hinting"
# Those of copies that are quick.
copying='copies::threads copies::chunks copies::an_exception copies::a_broken copies::switched'
# Without init_on_alloc, by which Debian's kernels clear pages at allocation and would hide what the module leaves out.
bare='init_on_alloc=0'
# Debian has no KASAN kernel of these versions; these are all the checks that its kernels have.
debug='slub_debug=FZPU page_poison=1 preempt=full'

guest planted 6.12 --kernel-line "$pool $bare" --qemu '-smp 1' --load 'hwpoison-inject kvm-amd' --seconds 1200 --planted
# two_nodes MIB: QEMU's words for two NUMA nodes, each with one processor and MIB of memory.
two_nodes() {
    echo "-m $((2 * $1))M -smp 2,sockets=2 -object memory-backend-ram,id=a,size=$1M -object memory-backend-ram,id=b,size=$1M" \
        "-numa node,cpus=0,memdev=a -numa node,cpus=1,memdev=b"
}
# Memory of /dev/bulkmem-memory on two NUMA nodes.
guest memory-6.12 6.12 --kernel-line "$bare" --qemu "$(two_nodes 2048)" --load 'hwpoison-inject kvm-amd' \
    --program "$KMOD_TARGET/device-example" --tests 'memory::' --seconds 900
# Neither init_on_alloc nor the lack of checks hides a fault here; plain-6.12 and plain-6.1 have Debian's defaults.
guest 6.12 6.12 --kernel-line "$huge_pages $bare $debug kfence.sample_interval=20" --qemu '-m 4G' --seconds 900 \
    --tests "$clearing gigantic:: smaller:: memory::processes $copying"
guest 6.1 6.1 --kernel-line "$huge_pages $bare $debug" --qemu '-m 4G' --seconds 900 \
    --tests "$clearing gigantic:: stress:: memory::processes memory::many $copying"
# Copies on write of huge pages: those that the run 6.12 leaves out.
guest copies-6.12 6.12 --kernel-line "$pool" --tests "copies::the_default copies::p copies::every_place copies::threshold"
# 6.12 is loaded and unloaded on one processor, which is not slower: see the end of README.md.
guest loading-6.12 6.12 --kernel-line "$pool $bare" --qemu '-smp 1' --tests 'loading:: params:: stress:: coexistence:: copies_loading::'
# Bochs is slow and uses one processor.
guest clzero 6.12-cloud --emulator bochs --seconds 900 --kernel-line "$pool $bare" --tests 'ryzen::'
# Every preemption model: those that the kernel can switch between, and PREEMPT_RT.
guest preempt-6.12 6.12 --kernel-line "$huge_pages" --qemu '-smp 1 -m 4G' --tests 'preemption:: observing::'
guest preempt-6.12-rt 6.12-rt --kernel-line "$huge_pages" --qemu '-smp 1 -m 4G' --tests 'preemption::'
# Copies to persistent memory. The second machine has neither CLWB nor CLFLUSHOPT.
guest flushcache-6.12 6.12 --qemu '-smp 1' --tests 'flushcache'
guest flushless 6.12-cloud --qemu '-smp 1 -cpu max,-clwb,-clflushopt' --tests 'flushless::'
# A module that leaves the last bytes of longer copies to persistent memory out, which the self-test does not see.
variant_flushcache_short() { sed -i 's/^\tbulkmem_flushcache_by(method, to, from, size);/\tbulkmem_flushcache_by(method, to, from, size - (size > 256 ? 8 : 0));/' flushcache.c; }
script flushcache-users kmod/tests/flushcache.sh flushcache-users 6.12 flushcache-short stock movnti clwb clflushopt
guest pressure-6.12 6.12-cloud --kernel-line "$bare" --qemu '-m 768M' --tests 'pressure::'
guest command-6.12 6.12 --program "$TARGET_DIR/debug/bulkmem" --qemu '-smp 1' --tests 'command:: attributes::'
guest fio 6.12-cloud --kernel-line "$bare" --program /usr/bin/fio --program "$TARGET_DIR/fio/bulkmem-fio.so" --file fio/jobs/attributes.fio \
    --run kmod/tests/fio-guest.sh
# A user of VFIO, with an emulated IOMMU and a device that does nothing.
guest vfio-6.12 6.12 --kernel-line "$pool $bare intel_iommu=on" --qemu '-smp 1 -device intel-iommu,intremap=off -device edu' \
    --load 'vfio_iommu_type1 vfio-pci' --tests 'vfio::'
# An unchanged QEMU that uses VFIO. It loads its module for emulation from the guest's root folder.
# vfio_qemu KERNEL
vfio_qemu() {
    guest "vfio-qemu-$1" "$1" --kernel-line "$pool $bare intel_iommu=on" --qemu '-smp 1 -device intel-iommu,intremap=off -device edu' \
        --load 'vfio_iommu_type1 vfio-pci' --program /usr/bin/qemu-system-x86_64 --program "$TARGET_DIR/debug/bulkmem" \
        --file /usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so --file /usr/share/seabios/bios-256k.bin \
        --file /usr/share/qemu/kvmvapic.bin --run kmod/tests/qemu-guest.sh
}
vfio_qemu 6.12
# Measurements on two NUMA nodes.
guest numa 6.12-cloud --program "$TARGET_DIR/debug/bulkmem" --qemu "$(two_nodes 512)" --run kmod/tests/numa-guest.sh
guest 6.12-cloud 6.12-cloud --kernel-line "$pool" --tests 'frame:: clearing::populated hints::'
# The real quirk, without pretend_movnt_slow. The kernel would warn about mitigations that the emulation does not have.
guest quirk 6.1 --kernel-line 'mitigations=off' --qemu '-smp 1 -cpu Cascadelake-Server' --tests 'loading::defaults loading::quirk fragile::'
guest lockdown 6.12-cloud --kernel-line 'lockdown=integrity' --tests 'unsigned::'
guest sig-enforce 6.1 --kernel-line 'module.sig_enforce=1' --tests 'unsigned::'
guest blacklist 6.12-cloud --kernel-line 'module_blacklist=bulkmem' --tests 'blacklisted::'
script uninstall kmod/tests/uninstall.sh 6.12-cloud
script dkms kmod/tests/dkms.sh 6.1 6.12

# A function that no kernel has.
variant_unpatchable() { sed -i 's/"\(clear_huge_page\|folio_zero_user\)"/"no_such_function"/' main.c; }
guest unpatchable 6.12 --variant unpatchable --qemu '-smp 1' --tests 'unpatchable::'

# From here on: only with --all, or by name.
# shellcheck disable=SC2034 # test-kmod.sh reads it
when=all
# The next two do not test the module; `make test-machines` starts them by name. The number is that of kills of a writer that uses the library, and each word at the end kills one that uses libpmem. Two
# controls are added. Each is a boot.
script pmem-6.12 kmod/tests/pmem.sh pmem-6.12 6.12 3 "$TARGET_DIR/debug/bulkmem" "$KMOD_TARGET/libpmem.so.1" dax device paged unsynced forced
# The units of `bulkmem pool` under systemd.
script pool kmod/tests/pool.sh pool 6.12 "$TARGET_DIR/debug/bulkmem"
# Debian's defaults, and the checks together with init_on_alloc.
for kernel in 6.12 6.1; do
    guest "plain-$kernel" "$kernel" --kernel-line "$huge_pages" --qemu '-m 4G' --tests "$clearing gigantic:: $copying"
    guest "debug-$kernel" "$kernel" --kernel-line "$pool $debug" --qemu '-smp 1' \
        --tests "clearing:: $hinting stress:: memory::processes memory::many $copying" --seconds 900
done
script pmem-6.1 kmod/tests/pmem.sh pmem-6.1 6.1 1 "$TARGET_DIR/debug/bulkmem" "$KMOD_TARGET/libpmem.so.1" dax device
# A minute and a half.
guest gigantic-6.12 6.12 --kernel-line "hugepagesz=1G hugepages=2 $pool" --qemu '-m 5G' --seconds 1200 --tests 'gigantic_copies::'
guest pressure-6.1 6.1 --kernel-line "$bare" --qemu '-m 768M' --tests 'pressure::'
guest preempt-6.1-rt 6.1-rt --kernel-line "$huge_pages" --qemu '-smp 1 -m 4G' --tests 'preemption:: observing::'
guest observing-6.12-rt 6.12-rt --kernel-line "$huge_pages" --qemu '-smp 1 -m 4G' --tests 'observing::'
script pmem-kills-6.12 kmod/tests/pmem.sh pmem-kills-6.12 6.12 12 "$TARGET_DIR/debug/bulkmem" "$KMOD_TARGET/libpmem.so.1" dax device paged
# On 7.x, init_on_alloc clears transparent huge pages instead of the function that the module replaces.
for kernel in 5.10 7.2 7.3; do
    guest "$kernel" "$kernel" --kernel-line "$huge_pages $bare" --qemu '-m 4G' --seconds 1200 \
        --tests "$clearing gigantic::$([[ $kernel == 5.10 ]] || echo ' smaller::')"
done
# `make test` has these on 6.12 alone; of 6.1 it has the run 6.1 and the small ones above.
for kernel in 5.10 6.1 7.2 7.3; do
    guest "loading-$kernel" "$kernel" --kernel-line "$pool $bare" --seconds 1200 --tests 'loading:: params:: coexistence:: copies_loading::'
    guest "memory-$kernel" "$kernel" --kernel-line "$bare" --qemu "$(two_nodes 2048)" --load 'hwpoison-inject kvm-amd' \
        --program "$KMOD_TARGET/device-example" --tests 'memory::' --seconds 1200
    guest "copies-$kernel" "$kernel" --kernel-line "hugepagesz=1G hugepages=2 $pool" --qemu '-m 5G' --seconds 1200 --tests 'copies::'
    guest "preempt-$kernel" "$kernel" --kernel-line "$huge_pages" --qemu '-smp 1 -m 4G' --seconds 1200 --tests 'preemption:: observing::'
    guest "command-$kernel" "$kernel" --kernel-line "$bare" --program "$TARGET_DIR/debug/bulkmem" --tests 'command:: attributes::'
    guest "vfio-$kernel" "$kernel" --kernel-line "$pool $bare intel_iommu=on" --qemu '-smp 1 -device intel-iommu,intremap=off -device edu' \
        --load 'vfio_iommu_type1 vfio-pci' --tests 'vfio::'
    guest "flushcache-$kernel" "$kernel" --tests 'flushcache'
done
for kernel in 6.1 7.2 7.3; do
    vfio_qemu "$kernel"
done
# Loads and unloads under faults on two processors. The run 6.1 does so on 6.1.
for kernel in 5.10 6.12 7.2 7.3; do
    guest "stress-$kernel" "$kernel" --kernel-line "$pool $bare" --qemu '-smp 2' --tests 'stress::' --seconds 1200
done

# The debug kernel, which `make test-kmod-debug` builds: --all leaves it out. It is four times as slow as the others. Each run
# ends with a check that lockdep still works: it stops at its first report, and if its tables are full.
for_debug() {
    local name=$1 tests=$2
    shift 2
    guest "debug-kernel-$name" 6.1-debug --kernel-line "$pool" --seconds 2400 --tests "$tests checked::" "$@"
}
for_debug hints "frame:: clearing:: $hinting" --qemu '-m 4G' --kernel-line "$huge_pages"
for_debug memory 'memory::' --kernel-line '' --qemu "$(two_nodes 2048)" --load 'hwpoison-inject kvm-amd' --program "$KMOD_TARGET/device-example"
# Without loading::many_times, because KASAN keeps freed memory for a while, and coexistence::taints_as_documented, because this
# kernel does not check signatures.
for_debug loading "loading::refused loading::bad loading::parameters loading::defaults loading::quirk loading::twice loading::removed \
    params:: coexistence::needs coexistence::keeps coexistence::probed coexistence::a_cumulative copies_loading:: flushcache_module::" \
    --qemu '-smp 1'
for_debug stress 'stress::'
for_debug copies 'copies::' --kernel-line "hugepagesz=1G hugepages=2 $pool" --qemu '-m 6G'
for_debug flushcache 'flushcache::'
script debug-kernel-reports kmod/tests/debug-reports.sh debug-kernel-reports 6.1-debug
