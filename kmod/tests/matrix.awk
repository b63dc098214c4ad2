# Prints how many tests of each group passed on each kernel, as "PASSED" or, if some failed, "PASSED/TOTAL". The input is a
# kernel's name, a tab, and a line of libtest's output. A test's group is the first part of its name; whether a guest reached
# its end without a complaint is the group "guest".

BEGIN { FS = "\t" }

function result(kernel, passed) {
    if (group == "") return
    if (!(group in seen)) { seen[group] = 1; groups[++rows] = group }
    if (!(kernel in known)) { known[kernel] = 1; kernels[++columns] = kernel }
    total[group, kernel]++
    good[group, kernel] += passed
    group = ""
}

$2 ~ /^test [^ ]+::/ {
    # A test that ended without a result.
    result($1, 0)
    split($2, words, /[ :]+/)
    group = $2 ~ /::(reaches_its_end|kernel_has_no_complaint) / ? "guest" : words[2]
}
# A test's own output may come before its result.
$2 ~ /(^| )ok$/ { result($1, 1) }
$2 ~ /(^| )FAILED$/ { result($1, 0) }
$2 ~ /(^| )ignored$/ { group = "" }
$2 ~ /^test result:/ { result($1, 0) }

END {
    line = sprintf("%-12s", "")
    for (c = 1; c <= columns; c++) line = line sprintf("%12s", kernels[c])
    print line
    for (r = 1; r <= rows; r++) {
        line = sprintf("%-12s", groups[r])
        for (c = 1; c <= columns; c++) {
            all = total[groups[r], kernels[c]] + 0
            pass = good[groups[r], kernels[c]] + 0
            line = line sprintf("%12s", all == 0 ? "-" : pass == all ? pass : pass "/" all)
        }
        print line
    }
}
