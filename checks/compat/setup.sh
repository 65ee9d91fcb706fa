#!/usr/bin/env bash
# uv for checks/compat, which makes the environments in .venv-compat with it.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -x .venv-compat/uv/bin/uv ] && exit
"${PYTHON:-python3}" -m venv .venv-compat/uv
.venv-compat/uv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile uv
