# Sums up what `cargo test` printed: "PASSED FAILED IGNORED", over every harness in the input.
# A harness that was started but printed no result (it crashed, or was killed) counts as one failure.

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
