#!/bin/busybox sh
# shellcheck shell=dash
# The units of `bulkmem pool` under systemd, inside the guest of pool.sh, where this is a service. Prints libtest's lines. The
# users alice and bob become tenants; mallory does not.
exec </dev/null >/dev/ttyS1 2>&1
export NO_COLOR=1 SYSTEMD_COLORS=0 SYSTEMD_URLIFY=0
mkdir -p /run/tests
cd /run/tests || exit 1
leases=/run/bulkmem-pool/state/leases
ready=/run/bulkmem-pool/state/ready
passed=0
failed=0
trouble=

# want WHAT FOUND EXPECTED: a condition of the current test.
want() {
    [ "$2" = "$3" ] || trouble="$trouble    $1: found '$2', expected '$3'
"
}
# holds WHAT COMMAND…: the same for a command that must succeed.
holds() {
    local what=$1
    shift
    "$@" || trouble="$trouble    not true: $what
"
}
fails() { ! "$@"; }
# verdict TEST: ends the current test.
verdict() {
    if [ -z "$trouble" ]; then
        passed=$((passed + 1))
        echo "test pool::$1 ... ok"
    else
        failed=$((failed + 1))
        printf 'test pool::%s ... FAILED\n%s' "$1" "$trouble"
        bulkmem pool status
        systemctl --no-pager --full status bulkmem-pool.service bulkmem-pool.socket
    fi
    trouble=
}

# finish: prints the sums, and ends the machine.
finish() {
    local word=ok
    [ $failed = 0 ] || word=FAILED
    echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
    echo "guest: finished with status $failed"
    # Closing it waits until everything was sent.
    exec >/dev/null 2>&1
    poweroff -f
}

# as USER COMMAND…: runs a command as a tenant, with the groups that it has.
as() {
    local user groups
    user=$(id -u "$1") && groups=$(id -G "$1" | tr ' ' ',')
    shift
    /usr/local/bin/setpriv --reuid "$user" --regid "$user" --groups "$groups" "$@"
}
# memory USER LENGTH PAGE COMMAND…: runs a command as a tenant, with {} as the path of its memory.
memory() {
    local user=$1 length=$2 page=$3
    shift 3
    as "$user" bulkmem pool run --memory "$length" --page-size "$page" --patience 20000 -- "$@"
}
# figure NAME: a figure of `bulkmem pool status`, summed over all units or users; empty if the daemon does not answer.
figure() {
    bulkmem pool status --prometheus 2>/dev/null |
        awk -v name="bulkmem_pool_$1" '{ split($1, it, "{") } it[1] == name { sum += $2; found = 1 } END { if (found) print sum }'
}
# wait_until COMMAND…: looks 400 times, and fails if the command never succeeds.
wait_until() {
    local looks=0
    until "$@"; do
        looks=$((looks + 1))
        # After a failure, only to find out more.
        [ $looks -lt $((failed > 0 ? 20 : 400)) ] || return 1
        sleep 0.1
    done
}
is() { [ "$($1 "$2")" = "$3" ]; }
full() {
    local units
    units=$(figure units)
    [ -n "$units" ] && [ "$(figure ready_units)" = "$units" ]
}
no_leases() { [ -z "$(figure leases)" ] && [ -n "$(figure units)" ]; }
above() {
    local found
    found=$(figure "$1")
    [ "${found:-0}" -gt "$2" ]
}
process() { systemctl show --property MainPID --value bulkmem-pool.service; }
active() { systemctl is-active "$1"; }
stored() { systemctl show --property NFileDescriptorStore --value bulkmem-pool.service; }
replaced() {
    local now
    now=$(process)
    [ "$now" != 0 ] && [ "$now" != "$1" ]
}
answers() { [ -n "$(figure units)" ]; }
# files PROCESS: device and inode of each unit that a process has open.
files() {
    local file
    for file in /proc/"$1"/fd/*; do
        [ "$(readlink "$file")" != '/memfd:bulkmem-pool (deleted)' ] || stat -L -c %d:%i "$file"
    done | sort
}
names() { (cd "$1" && echo *) | tr ' ' '\n' | grep -vFx '*' | sort | xargs; }

# What a tenant does: prints device, inode, allocated bytes, block size, owner, mode and how many bytes are not zero, and
# leaves a secret.
cat >tenant <<'END'
echo "$(stat -L -c '%d:%i' "$1")" $(($(stat -L -c '%b' "$1") * 512)) $(stat -L -c '%o %u %a' "$1") \
    "$(tr -d '\0' <"$1" | wc -c)"
[ "$2" = huge ] || echo secret | dd of="$1" conv=notrunc status=none
END
# handed_out FILE: the devices and inodes of all units of the pool in the output of tenants.
handed_out() { cut -d ' ' -f 1 "$1" >>handed-out; }

# The steps of docs/pool.md.
systemd-sysusers
echo 'BULKMEM_POOL="--keep 2M,unit=4M,count=2 --keep 4K,unit=1M,count=4 --keep 4K,unit=64M,count=1 --quota 1G"' \
    >/etc/default/bulkmem-pool
systemctl enable --now bulkmem-pool.socket bulkmem-pool.service
# usermod -aG bulkmem-pool
sed -i 's/^\(bulkmem-pool:.*:\)$/\1alice,bob/' /etc/group
pool_user=$(id -u bulkmem-pool)
holds 'the user bulkmem-pool exists' [ -n "$pool_user" ]
want 'the socket' "$(active bulkmem-pool.socket)" active
want 'the service' "$(active bulkmem-pool.service)" active
want 'mode, owner and group of the socket' "$(stat -c '%a %U %G' /run/bulkmem-pool/socket)" '660 root bulkmem-pool'
holds 'all units become ready' wait_until full
want 'units' "$(figure units)" 7
holds 'the units and the watches are stored' wait_until is stored '' 8
verdict the_units_start_as_installed
# All others need them.
[ $failed = 0 ] || finish

# Who is charged: the daemon's group, not the tenant's. A unit is twice as large as the tenant's limit.
group=/sys/fs/cgroup/system.slice/bulkmem-pool.service
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/tenant
echo 32M >/sys/fs/cgroup/tenant/memory.max
charged() { awk '$1 == "shmem" { print int($2 / 1048576) }' "$1/memory.stat"; }
# In the tenant's group, writes 64 MiB. MiB of shared memory that the group has at the end.
cat >writer <<'END'
echo $$ >/sys/fs/cgroup/tenant/cgroup.procs
export socket=$1
exec /usr/local/bin/setpriv --reuid 20001 --regid 20001 --groups "$2" sh -c 'exec bulkmem pool run --memory 64M --page-size 4K --socket "$socket" \
    --patience 20000 -- dd if=/dev/zero of={} bs=1M count=64 conv=notrunc status=none'
END
groups=$(id -G alice | tr ' ' ',')
holds 'the unit of 64 MiB is charged to the daemon' [ "$(charged $group)" -ge 64 ]
sh writer /run/bulkmem-pool/socket "$groups" 2>said
want 'exit status of a tenant that writes to all of its unit' $? 0
want 'messages' "$(cat said)" ''
want 'tenants that were killed' "$(awk '$1 == "oom_kill" { print $2 }' /sys/fs/cgroup/tenant/memory.events)" 0
peak=$(($(cat /sys/fs/cgroup/tenant/memory.peak) >> 20))
holds "at most 32 MiB were charged to the tenant, not $peak" [ $peak -lt 32 ]
echo "charged for 64 MiB of base pages from the pool: $peak MiB at most to the tenant (memory.max 32 MiB), $(charged $group) MiB to the daemon"
verdict the_memory_limit_of_a_tenant_does_not_count_its_unit

for user in alice bob; do
    memory "$user" 1M 4K sh /run/tests/tenant {} >said-base 2>&1
    memory "$user" 4M 2M sh /run/tests/tenant {} huge >said-huge 2>&1
    number=$(id -u "$user")
    want "$user's base pages: bytes, block size, owner, mode, bytes that are not zero" "$(cut -d ' ' -f 2- said-base)" \
        "1048576 4096 $number 600 0"
    want "$user's huge pages" "$(cut -d ' ' -f 2- said-huge)" "4194304 2097152 $number 600 0"
    handed_out said-base
    handed_out said-huge
done
verdict tenants_of_the_group_get_memory_of_both_page_sizes

memory mallory 1M 4K sh /run/tests/tenant {} >said 2>warned
want 'allocated bytes' "$(cut -d ' ' -f 2 said)" 0
holds 'the warning names the reason' grep -q 'fresh, not from the pool.*Permission denied' warned
want 'lines of the warning' "$(wc -l <warned)" 1
holds 'the state is not shown' fails as mallory bulkmem pool status >said 2>&1
verdict users_outside_the_group_get_fresh_memory

systemctl stop bulkmem-pool.service
want 'the stopped service' "$(active bulkmem-pool.service)" inactive
want 'stored descriptors' "$(stored)" 0
holds 'the folder of the records is gone' [ ! -e $ready ]
want 'the socket' "$(active bulkmem-pool.socket)" active
memory alice 1M 4K true {} 2>warned
want 'the service after a request' "$(active bulkmem-pool.service)" active
holds 'all units become ready' wait_until full
want 'units of an earlier daemon' "$(figure restored_units)" 0
verdict the_socket_starts_the_daemon

process=$(process)
field() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$process/status"; }
want 'users of the daemon' "$(field Uid | xargs)" "$pool_user $pool_user $pool_user $pool_user"
want 'permitted capabilities: CAP_CHOWN' "$(field CapPrm)" 0000000000000001
want 'bounding capabilities' "$(field CapBnd)" 0000000000000001
want 'no new privileges' "$(field NoNewPrivs)" 1
want 'seccomp' "$(field Seccomp)" 2
holds 'its own filter and those of the unit' [ "$(field Seccomp_filters)" -ge 3 ]
want 'the root file system' "$(awk '$5 == "/" { split($6, options, ","); print options[1] }' "/proc/$process/mountinfo" | sort -u)" ro
want 'its records' "$(awk '$5 == "/run/bulkmem-pool/state" { split($6, options, ","); print options[1] }' "/proc/$process/mountinfo")" rw
want 'the core limit' "$(awk '/^Max core file size/ { print $5, $6 }' "/proc/$process/limits")" '0 0'
# /proc of a process that cannot be dumped belongs to root, and its own user cannot look at it.
want 'owner of its memory' "$(stat -c %u "/proc/$process/mem")" 0
holds 'its user cannot see its descriptors' fails /usr/local/bin/setpriv --reuid "$pool_user" --clear-groups ls "/proc/$process/fd" >said 2>&1
/usr/local/bin/setpriv --reuid "$pool_user" --clear-groups sleep 1000 &
sleeper=$!
holds 'its user can see those of another process' wait_until /usr/local/bin/setpriv --reuid "$pool_user" --clear-groups ls /proc/$sleeper/fd >said 2>&1
kill $sleeper
verdict the_sandbox_is_in_force

want 'MemoryMax' "$(systemctl show --property MemoryMax --value bulkmem-pool.service)" infinity
want 'memory.max of the group and of those above it' "$(cat $group/memory.max $group/../memory.max | sort -u)" max
want 'OOMScoreAdjust' "$(cat "/proc/$process/oom_score_adj")" 0
verdict there_is_no_memory_limit

# A tenant that lives through all restarts.
cat >holder <<'END'
sh /run/tests/tenant "$1"
echo $$ >/run/tests/holding/process
exec sleep 100000
END
mkdir holding
chown alice holding
memory alice 1M 4K sh /run/tests/holder {} >held &
holds 'a tenant has its unit' wait_until test -s holding/process
handed_out held
# restart NAME COMMAND…: what is ready must be the same after the command.
restart() {
    name=$1
    shift
    holds 'all units become ready' wait_until full
    before=$(process)
    names_before=$(names $ready) files_before=$(files "$before" | xargs) leases_before=$(names $leases)
    want 'units with a name' "$(echo "$names_before" | wc -w)" 7
    want 'units with a file' "$(echo "$files_before" | wc -w)" 7
    "$@"
    holds 'there is a new daemon' wait_until replaced "$before"
    holds 'it answers' wait_until answers
    want 'names of units' "$(names $ready)" "$names_before"
    want 'files of units' "$(files "$(process)" | xargs)" "$files_before"
    want 'names of leases' "$(names $leases)" "$leases_before"
    want 'leases' "$(figure leases)" 1
    want 'units from the store' "$(figure restored_units)" 7
    want 'bytes that were filled again' "$(figure filled_bytes_total)" 0
    holds 'the units and the watches are stored' wait_until is stored '' 8
    holds 'the table shows where units come from' sh -c 'bulkmem pool status | grep -q restored'
    verdict "$name"
}
restart a_restart_keeps_the_ready_units systemctl restart bulkmem-pool.service
kill_daemon() { kill -KILL "$(process)"; }
restart sigkill_keeps_the_ready_units kill_daemon
# More often than systemd's limit of starts allows by default.
kill_often() {
    local killed
    for _ in 1 2 3 4 5 6 7 8; do
        killed=$(process)
        kill -KILL "$killed"
        wait_until replaced "$killed" || return
    done
}
restart many_kills_keep_the_ready_units kill_often

# Tenants that take units without end, while the daemon is killed and restarted.
touch load
loads=
for number in 1 2 3; do
    user=alice
    [ $number != 3 ] || user=bob
    while [ -e load ]; do
        memory "$user" 1M 4K sh /run/tests/tenant {} >>load-$number 2>>warned-$number
    done &
    loads="$loads $!"
done
enough() { [ "$(cat load-? | wc -l)" -ge $(($1)) ]; }
for turn in 1 2 3 4; do
    holds 'tenants get memory' wait_until enough $((turn * 6))
    killed=$(process)
    if [ $turn = 2 ]; then systemctl restart bulkmem-pool.service; else kill -KILL "$killed"; fi
    holds 'there is a new daemon' wait_until replaced "$killed"
done
holds 'tenants get memory' wait_until enough 30
rm load
# shellcheck disable=SC2086 # a list of processes
wait $loads
holds 'all units become ready' wait_until full
holds 'all leases end but that of the tenant that lives' wait_until is figure leases 1
# A fresh file, of a moment without a ready unit, has no pages.
cat load-? | awk '$2 > 0' >pooled
want 'bytes that are not zero' "$(cut -d ' ' -f 6 pooled | sort -u)" 0
handed_out pooled
want 'units that were handed out twice' "$(sort handed-out | uniq -d | xargs)" ''
want 'ready units that a tenant has had' "$(files "$(process)" | grep -Fx -f handed-out | xargs)" ''
want 'records of ready units' "$(names $ready | wc -w)" 7
holds 'the units and the watches are stored' wait_until is stored '' 8
echo "under load: $(wc -l <pooled) units from the pool, $(cat load-? | awk '$2 == 0' | wc -l) requests without a ready unit, 4 restarts"
holds 'most come from the pool' [ "$(wc -l <pooled)" -ge 12 ]
verdict killed_under_load_no_unit_is_handed_out_twice_or_lost
kill "$(cat holding/process)"
holds 'all leases end' wait_until no_leases

# By path, for programs that need a file: without the daemon.
mkdir huge
mount -t hugetlbfs -o mode=755 none huge
mkdir -m 700 huge/alice
chown alice huge/alice
as alice bulkmem prefault huge/alice/ram --create --size 8M >said 2>&1
want 'exit status of prefault' $? 0
want 'allocated bytes, block size and owner' \
    "$(($(stat -c '%b' huge/alice/ram) * 512)) $(stat -c '%o %u' huge/alice/ram)" "8388608 2097152 $(id -u alice)"
want 'bytes that are not zero' "$(as alice tr -d '\0' <huge/alice/ram | wc -c)" 0
holds 'another tenant cannot open it' fails as bob head -c 1 huge/alice/ram >said 2>&1
rm huge/alice/ram
umount huge
verdict a_file_by_path_is_ready_and_its_tenants

# Limits of control groups: filling and prefaulting stop before them. Without that, the kernel would end these processes.
mkdir /sys/fs/cgroup/limited
echo 48M >/sys/fs/cgroup/limited/memory.max
echo 0 >/sys/fs/cgroup/limited/memory.swap.max 2>said
# limited COMMAND…: runs a command in the limited group.
limited() { sh -c 'echo $$ >/sys/fs/cgroup/limited/cgroup.procs && exec "$@"' limited "$@"; }
killed_in_it() { awk '$1 == "oom_kill" { print $2 }' /sys/fs/cgroup/limited/memory.events; }
# of_it NAME: as figure, of the daemon in the group.
of_it() { bulkmem pool status --socket limited-pool/socket --prometheus 2>/dev/null | awk -v name="bulkmem_pool_$1" '{ split($1, it, "{") } it[1] == name { print $2 }'; }
limited bulkmem pool serve --keep 4K,unit=1M,count=64 --rate max --runtime-dir /run/tests/limited-pool >served 2>&1 &
holds 'filling is suspended' wait_until is of_it suspended 1
filled=$(of_it ready_units)
holds "units are ready: not all of 64, but $filled" [ "${filled:-0}" -gt 8 ]
holds "fewer than the limit leaves room for: $filled" [ "${filled:-64}" -lt 32 ]
want 'processes that were killed' "$(killed_in_it)" 0
holds 'the log names the limit' grep -q 'limited/memory.max' served
echo 128M >/sys/fs/cgroup/limited/memory.max
holds 'all units become ready when the limit is raised' wait_until is of_it ready_units 64
# shellcheck disable=SC2046 # a list of processes
kill $(cat /sys/fs/cgroup/limited/cgroup.procs)
ended() { [ -z "$(cat /sys/fs/cgroup/limited/cgroup.procs)" ]; }
holds 'the daemon ends' wait_until ended
echo "control group with memory.max of 48 MiB: $filled of 64 units of 1 MiB were filled, and all with 128 MiB"
verdict filling_stops_before_the_limit_of_a_control_group

# From here on, memory is short, which the kernel logs.
dmesg -c >/dev/ttyS2
dmesg -n 1
echo 48M >/sys/fs/cgroup/limited/memory.max
limited bulkmem prefault /dev/shm/limited --create --size 64M >said 2>&1
holds 'more than the limit is an error' [ $? = 1 ]
holds 'which names the limit' grep -q 'limited/memory.max' said
want 'processes that were killed' "$(killed_in_it)" 0
rm -f /dev/shm/limited
limited bulkmem prefault /dev/shm/limited --create --size 16M >said 2>&1
want 'exit status with enough room' $? 0
rm -f /dev/shm/limited
limited dd if=/dev/zero of=/dev/shm/limited bs=1M count=64 status=none 2>said
holds 'a program that does not look is killed' [ "$(killed_in_it)" = 1 ]
rm -f /dev/shm/limited
verdict prefault_stops_before_the_limit_of_a_control_group

# A tenant above memory.high waits for memory, which /proc/pressure/memory counts.
released=$(figure released_total)
mkdir /sys/fs/cgroup/stalled
echo 8M >/sys/fs/cgroup/stalled/memory.high
sh -c 'echo $$ >/sys/fs/cgroup/stalled/cgroup.procs; exec tail /dev/zero' &
stalled=$!
holds 'ready units are freed' wait_until above released_total "$released"
kill -KILL $stalled
holds 'all units become ready again' wait_until full
verdict pressure_frees_ready_units

# A file of a tenant leaves less than the 5 % that the pool leaves to others.
released=$(figure released_total)
available() { awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo; }
total=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
mkdir eaten
mount -t tmpfs -o size=100% eaten eaten
dd if=/dev/zero of=eaten/file bs=1M count=$(($(available) - total / 32)) status=none
holds 'ready units are freed' wait_until above released_total "$released"
echo "short of memory: $(available) MiB of $total are available after the pool freed $(($(figure released_total) - released)) units"
umount eaten
holds 'all units become ready again' wait_until full
verdict less_than_the_share_of_others_frees_ready_units

# A tenant uses all memory, until the kernel ends it.
before=$(process)
as bob tail /dev/zero
want 'exit status of the tenant' $? 137
holds 'the daemon answers' wait_until full
want 'the service' "$(active bulkmem-pool.service)" active
echo "out of memory: the daemon $([ "$(process)" = "$before" ] && echo survived || echo was restarted), and freed $(figure released_total) units"
memory alice 1M 4K sh /run/tests/tenant {} >said 2>&1
want 'bytes, block size, owner, mode, bytes that are not zero' "$(cut -d ' ' -f 2- said)" '1048576 4096 20001 600 0'
handed_out said
want 'units that were handed out twice' "$(sort handed-out | uniq -d | xargs)" ''
verdict out_of_memory_is_survived

# A tenant that writes the same to fresh memory is killed, so its limit is in force.
holds 'a tenant with fresh memory exceeds its limit' fails sh writer /nonexistent "$groups" >said 2>&1
want 'tenants that were killed' "$(awk '$1 == "oom_kill" { print $2 }' /sys/fs/cgroup/tenant/memory.events)" 1
verdict the_memory_limit_of_a_tenant_counts_fresh_memory

dmesg | grep -aE 'BUG|Oops|WARNING|stall|blocked for' >/dev/ttyS2
finish
