#!/usr/bin/env bash
# Exits with 4 if NEW predicts otherwise than BASE, or uses far context less, with 5 if it cannot tell:
# long_context.sh BASE NEW [OPTION...]. FAIL_USE= leaves the use of far context out.
set -euo pipefail
use=${FAIL_USE-0.2}
exec lengthwise compare "$1" "$2" \
  --lengths "${LENGTH:-4096}" --windows "${WINDOWS:-4}" \
  --fail-above "${FAIL_ABOVE:-0.1}" ${use:+--fail-use "$use"} "${@:3}"
