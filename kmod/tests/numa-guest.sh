#!/bin/busybox sh
# shellcheck shell=dash
# The run `numa`, inside a guest with two NUMA nodes, each with one processor: where measurements run, and where their memory
# is. Prints libtest's lines.
passed=0
failed=0
verdict() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "test numa::$1 ... ok"
    else
        failed=$((failed + 1))
        echo "test numa::$1 ... FAILED"
        cat /tmp/said
    fi
}

# bench ARGUMENTS…: a measurement of few candidates in base pages.
bench() {
    bulkmem bench "$@" --method c_library --peers none --page-size 4K >/tmp/said 2>&1
}

# Operations on both nodes' memory: two cells each for clears, three for copies, from the processors of each node.
bench numa --op clear,copy --size 2M --runs 1 --json && [ "$(grep -c '"processor_node": 0' /tmp/said)" = 10 ] &&
    [ "$(grep -c '"processor_node": 1' /tmp/said)" = 10 ] && [ "$(grep -c '"memory_node": 1' /tmp/said)" = 10 ]
verdict every_cell_is_measured $?

bench numa --op clear --size 2M --runs 1 && grep -q 'by processors of node 0' /tmp/said &&
    grep -q 'by processors of node 1' /tmp/said && grep -q 'node 0 *node 1' /tmp/said &&
    [ "$(grep -c '×' /tmp/said)" -ge 4 ]
verdict the_table_has_local_and_remote_memory $?

bench numa --op clear --size 2M --runs 5 && grep -q 'clear to remote memory: ' /tmp/said
verdict a_finding_compares_them $?

bench numa --node 1 --cpu 0 --op clear --size 2M --runs 1 --json &&
    [ "$(grep -c '"processor_node": 0' /tmp/said)" = 2 ] && [ "$(grep -c '"memory_node": 1' /tmp/said)" = 2 ] &&
    ! grep -q '"processor_node": 1' /tmp/said && ! grep -q '"memory_node": 0' /tmp/said
verdict the_table_keeps_to_the_named_nodes $?

# pages NODE: pages of the process on a node, in memory that is not of files.
pages() {
    sed -n "/ anon=/s/.* N$1=\([0-9]*\).*/\1/p" "/proc/$process/numa_maps" | awk '{ sum += $1 } END { print sum + 0 }'
}

# placed NODE CPU: a measurement with 16 MiB has them on NODE and runs on CPU, as the kernel reports it.
placed() {
    bulkmem bench clear --node "$1" --cpu "$2" --size 16M --runs 10000 --method c_library --peers none --page-size 4K >/tmp/said 2>&1 &
    process=$!
    left=300
    until [ "$(pages "$1")" -ge 4096 ] 2>/dev/null || [ $left = 0 ]; do
        left=$((left - 1))
        sleep 0.1
    done
    here=$(pages "$1")
    elsewhere=$(pages $((1 - $1)))
    allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$process/status")
    kill -INT "$process"
    wait "$process"
    echo "pages on node $1: $here, on the other: $elsewhere; processors: $allowed" | tee -a /tmp/said
    # A few pages are from before the arguments were read.
    [ "$here" -ge 4096 ] && [ "$elsewhere" -lt 512 ] && [ "$allowed" = "$2" ]
}
placed 1 0
verdict memory_is_on_node_1_and_the_thread_on_processor_0 $?
placed 0 1
verdict memory_is_on_node_0_and_the_thread_on_processor_1 $?

bench clear --node 1 --cpu 0 --size 1M --runs 1 --json && grep -q '"processor_list": "0"' /tmp/said &&
    grep -q '"memory_nodes": "1"' /tmp/said && grep -q 'processors: only 0; NUMA nodes of the memory: only 1' /tmp/said
verdict results_record_the_placement $?

# Missing huge pages are reserved on the node of the memory.
bulkmem bench clear --node 1 --page-size 2M --size 4M --runs 1 --method c_library --peers none >/tmp/said 2>&1 &&
    ! bulkmem bench clear --node 1 --page-size 2M --size 700M --runs 1 --method c_library --peers none >/tmp/said 2>&1 &&
    grep -q 'NUMA nodes that memory is bound to' /tmp/said
verdict huge_pages_are_reserved_on_the_node $?

# refused TEXT ARGUMENTS…: the command ends with 2 and this text.
refused() {
    text=$1
    shift
    bench clear --size 1M --runs 1 "$@"
    [ $? = 2 ] && grep -q -e "$text" /tmp/said
}
refused '--node: there is no NUMA node 2; name some of 0-1' --node 2
verdict a_node_that_does_not_exist_is_refused $?
refused '--cpu: there is no processor 2; name some of 0-1' --cpu 0-2
verdict a_processor_that_does_not_exist_is_refused $?

# In a control group with processor 0 and the memory of node 0.
mkdir /sys/fs/cgroup/narrow
echo '+cpuset' >/sys/fs/cgroup/cgroup.subtree_control
echo 0 >/sys/fs/cgroup/narrow/cpuset.cpus
echo 0 >/sys/fs/cgroup/narrow/cpuset.mems
(
    echo 0 >/sys/fs/cgroup/narrow/cgroup.procs
    refused 'a control group (cpuset.mems) excludes NUMA node 1; name some of 0' --node 1 &&
        refused 'taskset or a control group (cpuset) excludes processor 1; name some of 0' --cpu 1 &&
        bench numa --op clear --size 2M --runs 1 && grep -q 'There is no remote memory: only NUMA node 0 is used' /tmp/said
)
verdict a_control_group_limits_both $?

word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
exit $failed
