#!/usr/bin/env bash
# The release build's `bulkmem bench targets`.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
cargo build --release --locked -p bulkmem-cli
exec "$TARGET_DIR/release/bulkmem" bench targets
