#!/usr/bin/env bash
# llama.cpp for checks/llamacpp, in .venv-llamacpp: the packages of .venv, and llama-cpp-python, which pip compiles.
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=.venv-llamacpp
[ $environment/.ready -nt .venv/.ready ] && exit
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
echo "llama-cpp-python is compiled from source: up to 18 minutes on two cores"
"${PYTHON:-python3}" -m venv $environment
# `addsitedir` reads the .pth files of .venv too, by which lengthwise itself is found.
echo "import site; site.addsitedir('$(.venv/bin/python -c "$packages")')" \
  > "$($environment/bin/python -c "$packages")/lengthwise-packages.pth"
CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF ${CMAKE_ARGS:-}" $environment/bin/python -m \
  pip install --quiet --disable-pip-version-check --no-compile --no-deps llama-cpp-python==0.3.36 diskcache
touch $environment/.ready
