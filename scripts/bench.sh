#!/usr/bin/env bash
# Runs `bulkmem bench targets` of the release build.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
cargo build --release --locked -p bulkmem-cli
exec "$TARGET_DIR/release/bulkmem" bench targets
