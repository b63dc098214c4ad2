# Adds up the results of `cargo test`: "PASSED FAILED IGNORED", over every test program in the input. A program
# without a result (it crashed, or was killed) counts as one failure.

/^     Running / || /^   Doc-tests / {
    if (open) failed++
    open = 1
}
/^test result: (ok|FAILED)\. / {
    open = 0
    passed += $4
    failed += $6
    ignored += $8
}
END {
    if (open) failed++
    printf "%d %d %d\n", passed, failed, ignored
}
