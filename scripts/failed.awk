# Lists the failed tests in the output of `cargo test` or scripts/test-kmod.sh, one per line: "NAME: COMMAND", where
# COMMAND reruns that test.
#   rerun: what runs the group again, such as `cargo test --release`
#   kind:  `cargo`, `kmod` (scripts/test-kmod.sh), or `whole` if single tests cannot be rerun

function quoted(text) {
    gsub(/'/, "'\\''", text)
    return "'" text "'"
}

function failed(name) {
    names[++count] = name
}

# Prints the failures since the last program was started. `target`: cargo's option for it, or the kmod run.
function report(target,    i, command) {
    for (i = 1; i <= count; i++) {
        if (kind == "cargo")
            command = rerun " " target " -- --exact " quoted(names[i])
        else if (kind == "kmod" && target != "" && names[i] !~ "^(planted|" target ")::")
            command = rerun " " target " --tests " quoted(names[i])
        else
            command = rerun (target == "" ? "" : " " target)
        print names[i] ": " command
    }
    count = 0
}

# A program without a result crashed or was killed.
function no_end(target) {
    print running " (did not reach its end): " rerun (target == "" ? "" : " " target)
    open = 0
}

/^     Running / || /^   Doc-tests / {
    if (kind == "cargo") count = 0
    else report(run)
    if (open && kind != "cargo") no_end(run)
    running = $0
    sub(/^ *(Running )?/, "", running)
    sub(/ \(.*\)$/, "", running)
    # Single modules cannot be built again.
    run = running == "changed-modules" ? "" : running
    open = 1
}

# libtest lists the names again at its end. The output of a test can break the lines before.
/^failures:$/ && kind == "cargo" { count = 0; listing = 1; next }
listing && /^    [^ ]/ { failed(substr($0, 5)); next }
listing && !/^$/ && !/^test result: / { listing = 0; count = 0 }

/^test .* \.\.\. FAILED/ && kind != "cargo" {
    name = $0
    sub(/^test /, "", name)
    sub(/ +\.\.\. FAILED.*/, "", name)
    failed(name)
}

/^test result: / { open = 0; listing = 0 }

# cargo prints how to rerun the program after its results.
/^error: .*test failed, to rerun pass `/ {
    target = $0
    sub(/.*to rerun pass `/, "", target)
    sub(/`.*/, "", target)
    if (open) no_end(target)
    report(target)
}

END {
    if (kind != "cargo") {
        report(run)
        if (open) no_end(run)
    }
}
