# What `make test-kmod` runs, in the order of starting: the longest first, since two run at a time. Sourced, never run.
# shellcheck shell=bash
#
# guest NAME KERNEL OPTIONS…: boots KERNEL (a name from kernels.sh) once.
#   --tests 'A B'        filters for the guest's tests, one process each; each must match a test
#   --kernel-line TEXT   added to the kernel's command line
#   --qemu 'WORDS'       added to QEMU's; overrules what guest.sh says
#   --load 'MODULES'     the kernel's own modules to load first, by name
#   --program FILE       goes to the guest's /bin with its libraries; again for more
#   --variant NAME       the module to take along, by its name in test-kmod.sh [default: plain]
#   --run FILE           what the guest runs in place of the tests
#   --fails              passes where the guest's tests do NOT: a test that cannot fail is none
#   --emulator bochs     Bochs instead of QEMU: a Ryzen, which has CLZERO; one processor, 1 GiB
#   --seconds N          how long it may take [default: 300]
# script NAME FILE …     an executable of its own, which prints libtest's lines. It may source what we source.

huge_pages='hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=64'

guest 6.1 6.1 --kernel-line "$huge_pages" --qemu '-m 4G' --tests 'frame:: clearing:: hints::'
guest 6.12 6.12 --kernel-line "$huge_pages" --qemu '-m 4G' --tests 'frame:: clearing:: hints::'
guest 6.12-cloud 6.12-cloud --kernel-line "$huge_pages" --qemu '-m 4G' --tests 'frame:: clearing:: hints::'
guest clzero 6.12-cloud --emulator bochs --kernel-line 'hugepagesz=2M hugepages=64' --tests 'clzero::'
# One processor: see the end of README.md; and no slower for it.
guest loading-6.1 6.1 --kernel-line 'hugepagesz=2M hugepages=8' --qemu '-smp 1' --tests 'loading:: params::'
guest loading-6.12 6.12 --kernel-line 'hugepagesz=2M hugepages=8' --qemu '-smp 1' --tests 'loading:: params::'
# The quirk itself, not its pretence. This processor's kernel would warn of mitigations that the emulation lacks.
guest quirk 6.1 --kernel-line 'mitigations=off' --qemu '-smp 1 -cpu Cascadelake-Server' --tests 'loading::defaults loading::quirk'
