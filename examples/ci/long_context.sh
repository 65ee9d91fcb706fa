#!/usr/bin/env bash
# Exits with 4 if NEW predicts otherwise than BASE, or uses far context less, with 5 if it cannot tell:
# long_context.sh BASE NEW [OPTION...]. FAIL_USE= leaves the use of far context out. OUT is the run folder.
set -euo pipefail
use=${FAIL_USE-0.2}
out=${OUT:-runs/long-context}
code=0
lengthwise compare "$1" "$2" --out "$out" \
  --lengths "${LENGTH:-4096}" --windows "${WINDOWS:-4}" \
  --fail-above "${FAIL_ABOVE:-0.1}" ${use:+--fail-use "$use"} "${@:3}" || code=$?
# The picture of what was found, whatever the thresholds say of it.
case $code in 0 | 4 | 5) lengthwise card "$out" >&2 ;; esac
exit "$code"
