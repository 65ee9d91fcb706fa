#!/usr/bin/env bash
# Collects the wheels that checks/gpu.sh needs on a machine without a network, for Python 3.12 on x86-64 Linux.
#
#     checks/gpu-wheels.sh [FOLDER]          FOLDER is .whl unless given; PYTHON names the Python whose pip is used
#
# The machine is taken to have torch, triton, transformers, accelerate, peft, numpy, scipy, matplotlib, pyarrow,
# pandas and pytest with xdist. What comes here is what lengthwise imports beside those.
set -u
folder=${1:-.whl}
most=$((64 * 2**20))
python=${PYTHON:-python3}

# pydantic takes one version of its core, httpx2 one of httpcore2.
needed="pydantic==2.14.4 pydantic-core==2.50.5 annotated-types typing-inspection typing-extensions
  cyclopts docstring-parser rich-rst docutils httpx2==2.16.2 httpcore2==2.16.2 truststore idna gguf
  datasets dill==0.4.1 multiprocess==0.70.19"
# The peers of the benchmark: without them their rows are skipped.
peers="liger-kernel cut-cross-entropy trl"

platforms=()
for name in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
  platforms+=(--platform "${name}_x86_64")
done

fetch() {
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    "${platforms[@]}" --dest "$folder" "$1"
}

# Two versions of one package would stop the whole installation.
rm -rf "$folder"
mkdir -p "$folder"
for name in $needed; do
  fetch "$name" || { echo "no wheel of $name, which lengthwise needs" >&2; exit 1; }
done
for name in $peers; do
  before=$(ls "$folder")
  fetch "$name" || { echo "no wheel of $name: its rows will be skipped" >&2; continue; }
  if [ "$(du -sb "$folder" | cut -f1)" -gt $most ]; then
    echo "$name makes the folder larger than $most bytes: left out" >&2
    comm -13 <(echo "$before") <(ls "$folder") | while read -r file; do rm "$folder/$file"; done
  fi
done
size=$(du -sb "$folder" | cut -f1)
echo "$(ls "$folder" | wc -l) wheels, $((size / 2**20)) MiB in $folder"
[ "$size" -le $most ] || { echo "more than $((most / 2**20)) MiB" >&2; exit 1; }
