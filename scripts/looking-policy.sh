# shellcheck shell=bash
# Included by scripts that run programs with the preloaded library by a calibration: calibrates this machine quickly into the folder
# $temporary, and sets `policy` to the policy file and `bulkmem` to the command. Where calibration found no reason to look, it plants
# methods and thresholds: the bytes must be right whatever a look finds.
# shellcheck disable=SC2154 # the script that includes it sets temporary

heading "calibration"
cargo build --release --locked -p bulkmem-cli
bulkmem=$(realpath "$TARGET_DIR/release/bulkmem")
env -u BULKMEM_PROFILE "$bulkmem" calibrate --quick --output "$temporary/profile.json" >"$temporary/calibration" 2>&1 ||
    { tail -n 20 "$temporary/calibration" && fail "calibration failed: see above"; }
policy=$temporary/profile.policy
for operation in clear fill copy; do
    grep -q "^look $operation " "$policy" && continue
    echo "$operation looks by planted thresholds: calibration found no reason to"
    string=rep_stosb
    [[ $operation != copy ]] || string=rep_movsb
    sed -i "/^end\$/i rule $operation cached 0 $string\nrule $operation uncached 0 nontemporal_sse2\nlook $operation 65536 300 20000 store_sse2" "$policy"
done
unset BULKMEM_METHOD BULKMEM_LOOK
env "BULKMEM_PROFILE=$policy" "$bulkmem" info >"$temporary/info" 2>&1
if ! grep -qF "$policy" "$temporary/info" || grep -q refused "$temporary/info"; then
    cat "$temporary/info"
    fail "the library does not use the calibration: see above"
fi
