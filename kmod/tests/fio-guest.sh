#!/bin/busybox sh
# shellcheck shell=dash
# The run `fio`, inside the guest: fio with bulkmem's engine on the memory of /dev/bulkmem-memory. Prints libtest's lines.
export BULKMEM_FIO=/bin/bulkmem-fio.so
passed=0
failed=0
verdict() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "test fio::$1 ... ok"
    else
        failed=$((failed + 1))
        echo "test fio::$1 ... FAILED"
        cat /tmp/said
    fi
}

# verified NAME OPTIONS…: writes at random places and compares checksums.
verified() {
    name=$1
    shift
    fio --name=job --ioengine=external:$BULKMEM_FIO --filename=/dev/bulkmem-memory --thread --rw=randwrite --verify=crc32c --verify_fatal=1 \
        --do_verify=1 "$@" >/tmp/said 2>&1 && grep -q 'err= 0' /tmp/said && grep -q 'READ: ' /tmp/said
    verdict "$name" $?
}

insmod /bulkmem.ko || exit 1
for attribute in wb wc uc; do
    verified "memory_verifies_$attribute" --attribute=$attribute --size=1m --bs=4k
    verified "memory_verifies_past_the_cache_$attribute" --attribute=$attribute --size=1m --bsrange=512-16k \
        --method=nontemporal_sse2 --read_method=movntdqa_store_sse41 --fsync=8
done
verified memory_verifies_in_huge_pages --attribute=wc --huge_pages=1 --size=2m --bs=64k --persist=1
verified memory_without_an_attribute_is_write_back --size=1m --bs=4k
verified memory_verifies_with_sync --attribute=wb --size=1m --bs=4k --sync=1

! fio --name=job --ioengine=external:$BULKMEM_FIO --filename=/dev/bulkmem-memory --thread --rw=write --size=3m --attribute=wc \
    --huge_pages=1 >/tmp/said 2>&1 && grep -q mmap /tmp/said
verdict a_length_that_is_not_of_whole_pages_is_refused $?

! fio --name=job --ioengine=external:$BULKMEM_FIO --filename=/dev/bulkmem-memory --thread --rw=write --size=1m --offset=1m >/tmp/said 2>&1 &&
    grep -q 'offset= and offset_increment= cannot be used' /tmp/said
verdict an_offset_is_refused $?

# The table of document 004, shorter.
sed 's/^runtime=.*/runtime=1/; s/^size=.*/size=8m/' /attributes.fio >/tmp/attributes.fio
fio /tmp/attributes.fio >/tmp/said 2>&1 && [ "$(grep -c 'IOPS=' /tmp/said)" = 10 ]
verdict the_job_file_by_attribute_runs $?
grep -E '^(read|write)|IOPS=' /tmp/said | grep -v 'Starting\|rw=' | sed 's/^/    /'

word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
exit $failed
