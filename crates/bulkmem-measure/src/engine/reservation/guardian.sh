# Reserves huge pages, and gives them back when its standard input ends: however the process that started it ends,
# the kernel closes that pipe. Says how many pages it got, which may be fewer than wanted.
#
# $1: the pool's folder in sysfs; $2: pages wanted.
trap '' HUP INT QUIT TERM PIPE
pool=$1/nr_hugepages
surplus=$1/surplus_hugepages

# Only one at a time reads a number and writes another. Without flock (util-linux, busybox) nobody waits.
exec 9<"$pool" || exit 1
lock() { flock -x 9 2>/dev/null; }
unlock() { flock -u 9 2>/dev/null; }

# What was reserved by number; what the kernel added by itself and takes away by itself is left out.
reserved() {
    read -r total <"$pool" && read -r extra <"$surplus" && echo $((total - extra))
}

lock
before=$(reserved) || exit 1
# The kernel would count those that it added first.
read -r all <"$pool" || exit 1
echo $((all + $2)) 2>/dev/null >"$pool"
after=$(reserved) || after=$((before + $2))
read -r got <"$pool" || got=$((all + $2))
unlock
added=$((after - before))
[ "$added" -ge 0 ] || added=0
got=$((got - all))
[ "$got" -ge 0 ] || got=0
echo "$got"

# Until the end of input.
while read -r _; do :; done

[ "$added" -gt 0 ] || exit 0
lock
# The number as it is now: others may have changed it meanwhile, and keep their change.
now=$(reserved) || now=$after
left=$((now - added))
[ "$left" -ge 0 ] || left=0
echo "$left" >"$pool" || {
    echo "bulkmem: $added huge pages could not be given back; as root: echo $left > $pool" >&2
    exit 1
}
