#!/usr/bin/env bash
# Make or repair .venv: the locked packages, this project (editable) and, with --dev, the test tools.
#
#   scripts/setup.sh [--device cpu|cuda] [--dev]
#
# Each step leaves a stamp in .venv/.setup when it is complete, with a hash of what it was made from. A step
# whose stamp matches is skipped, so an interrupted run is repaired by the next one, and a run with nothing to
# do ends at once. Without --device the device of the existing .venv is kept (cpu in a new one).
# PYTHON names the interpreter to use; pip's own settings (PIP_INDEX_URL and so on) are respected.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv
readonly STAMPS=$VENV/.setup
readonly LOG=$STAMPS/pip.log
readonly TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
# Room on the disk for a new environment with the downloads in flight, in GB.
declare -rA NEEDED_GB=([cpu]=6 [cuda]=20)

say() { echo "setup: $*"; }

# die MESSAGE [what to do...]
die() {
    say "failed: $1" >&2
    shift
    printf 'setup:   %s\n' "$@" >&2
    exit 1
}

device=""
dev=false
while (($#)); do
    case $1 in
    --device) device=${2-} && shift 2 ;;
    --device=*) device=${1#*=} && shift ;;
    --dev) dev=true && shift ;;
    *) die "unknown option $1" "usage: scripts/setup.sh [--device cpu|cuda] [--dev]" ;;
    esac
done
if [[ -z $device ]]; then
    device=$(cat "$STAMPS/device" 2>/dev/null || echo cpu)
fi
[[ $device == cpu || $device == cuda ]] || die "unknown device '$device'" "use DEVICE=cpu or DEVICE=cuda"
readonly LOCK=requirements/$device.lock DEV_LOCK=requirements/dev.lock

# --- what is complete -------------------------------------------------------------------------------------

# key STEP: what the step is made from. Scripts in .venv carry its absolute path, so a moved tree counts too.
key() {
    case $1 in
    venv) echo "$PWD $device" ;;
    packages) sha256sum "$LOCK" ;;
    project) sha256sum pyproject.toml && echo "$PWD" ;;
    dev) sha256sum "$DEV_LOCK" ;;
    esac
}

is_done() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$(key "$1")" ]]; }

mark_done() {
    key "$1" >"$STAMPS/$1.new"
    mv "$STAMPS/$1.new" "$STAMPS/$1"
}

is_complete() {
    [[ -x $VENV/bin/python ]] && is_done venv && is_done packages && is_done project &&
        { [[ $dev == false ]] || is_done dev; }
}

is_complete && exit 0

# --- before anything is downloaded ------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.11 or 3.12 found (python3 is $(python3 -V 2>/dev/null || echo missing))" \
        "Debian 12: apt-get install python3.11 python3.11-venv python3.11-dev" \
        "elsewhere: install one with pyenv or uv, then PYTHON=/path/to/python3.11 make setup"
}

# missing_packages PYTHON: Debian packages without which the service would fail later, with an obscure message
missing_packages() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$1" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
    # torch.compile builds C++ kernels against Python.h at the first start.
    command -v g++ >/dev/null || echo g++
    "$1" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        echo "python$version-dev"
    if [[ $device == cpu ]]; then
        "$1" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || echo libnuma1
    fi
}

ensure_system() {
    local packages
    mapfile -t packages < <(missing_packages "$1")
    ((${#packages[@]})) || return 0
    local command="apt-get install --yes --no-install-recommends ${packages[*]}"
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        die "missing on this system: ${packages[*]}" "run: sudo $command" "(or what your system calls these)"
    fi
    say "system packages: ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # the command is words
    { apt-get update -qq && $command -qq >/dev/null; } ||
        die "apt-get could not install ${packages[*]}" "is the network reachable?" "run by hand: $command"
    mapfile -t packages < <(missing_packages "$1")
    ((${#packages[@]} == 0)) || die "still missing: ${packages[*]}" \
        "$1 is not your system's own Python: use PYTHON=/usr/bin/python3.11, or add what it lacks"
}

ensure_space() {
    local free_gb
    free_gb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000 / 1000) }')
    ((free_gb >= NEEDED_GB[$device])) || die "$free_gb GB free on this disk, ${NEEDED_GB[$device]} GB needed" \
        "free some space (pip cache purge helps), or set FORCE=1 to try all the same"
}

# --- steps ------------------------------------------------------------------------------------------------

explain_pip_failure() {
    local -A causes=(
        ["No space left on device"]="the disk is full (or TMPDIR, where packages are unpacked): free space, run again"
        ["name resolution|NewConnection|Connection(Error|Timeout)|Max retries|timed out"]="a package could not be downloaded: check the network or pip's proxy and index settings, run again"
        ["No matching distribution|Could not find a version"]="a locked version was not found: see which in the log; pip's index may lack it, or the network is down"
        ["gcc|g\+\+|error: command .* failed"]="something had to be compiled: install gcc, g++ and the Python headers"
    )
    local pattern
    grep -vE 'already satisfied|^WARNING: Location' "$LOG" | tail -n 12 | cut -c 1-300 >&2
    for pattern in "${!causes[@]}"; do
        if grep -qE "$pattern" "$LOG"; then say "likely: ${causes[$pattern]}" >&2; fi
    done
    die "pip could not finish" "the whole log: $LOG" "what is installed already is kept: make setup goes on from there"
}

# Of pip's output, what tells a person that it goes on: large downloads, and the start of the unpacking.
readonly PROGRESS='
s#.*Downloading (.*/)?([^ ]+) (\([0-9]{2,}(\.[0-9]+)? MB\)).*#setup:   \2 \3#p
s#^Installing collected packages: ([^,]+)$#setup:   unpacking \1#p
s#^Installing collected packages: .*,.*#setup:   unpacking all, this takes the longest#p'

# pip_install ARG...: into .venv, with all output in the log
pip_install() {
    "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --progress-bar off \
        --root-user-action ignore "$@" 2>&1 | tee -a "$LOG" | sed -unE "$PROGRESS"
}

make_venv() {
    rm -rf "$VENV"
    "$1" -m venv "$VENV"
    mkdir -p "$STAMPS"
    echo "$device" >"$STAMPS/device"
}

# pip writes INSTALLER near the end of each package: one without it was cut short, yet pip takes it as installed.
remove_broken() {
    local site info
    for site in "$VENV"/lib/python3.*/site-packages; do
        rm -rf "$site"/~*
        for info in "$site"/*.dist-info; do
            [[ -e $info/INSTALLER || ! -d $info ]] || { say "repairing ${info##*/}" && rm -rf "$info"; }
        done
    done
}

names() { sed -nE 's/^([A-Za-z0-9._-]+)==.*/\1/p' "$@" 2>/dev/null | sort -u; }

# remove_dropped LOCK: what the lock had at the last run and has no more
remove_dropped() {
    local dropped
    mapfile -t dropped < <(comm -23 <(names "$STAMPS/${1##*/}") <(names "$LOCK" "$DEV_LOCK"))
    ((${#dropped[@]} == 0)) || "$VENV/bin/python" -m pip uninstall --yes "${dropped[@]}" >>"$LOG" 2>&1
}

# install_lock LOCK
install_lock() {
    remove_broken
    remove_dropped "$1"
    local torch
    torch=$(sed -n '/^torch==.*+cpu$/p' "$1")
    # The CPU build is not in the default index: pip's own sources first (a local wheel), then PyTorch's.
    if [[ -n $torch ]]; then
        pip_install "$torch" || {
            say "  $torch is not in pip's own index, trying $TORCH_CPU_INDEX"
            pip_install --index-url "$TORCH_CPU_INDEX" "$torch" || explain_pip_failure
        }
    fi
    pip_install --only-binary :all: --requirement "$1" || explain_pip_failure
    cp "$1" "$STAMPS/${1##*/}"
}

# --no-build-isolation: setuptools is in the lock, so nothing is downloaded to build the project.
install_project() { pip_install --no-build-isolation --editable . || explain_pip_failure; }

size() { du -sh "$VENV" | cut -f1; }

# step NAME DESCRIPTION COMMAND...: unless its stamp matches
step() {
    local name=$1 description=$2 started=$SECONDS
    shift 2
    if is_done "$name"; then return; fi
    say "$description ..."
    "$@"
    mark_done "$name"
    say "$description: done in $((SECONDS - started)) s"
}

main() {
    [[ $(uname -sm) == "Linux x86_64" ]] ||
        die "the locked packages are for Linux on x86_64, this is $(uname -sm)" "run it on such a machine"
    # One set-up at a time: a second one waits here, and then finds the stamps.
    exec 9<requirements
    ! command -v flock >/dev/null || flock 9
    is_complete && exit 0

    local python
    python=$(find_python)
    ensure_system "$python"
    if [[ ! -x $VENV/bin/python ]] || ! is_done venv; then
        [[ -n ${FORCE:-} ]] || ensure_space
        rm -f "$STAMPS/venv"
    fi
    step venv "environment $VENV for $device with $("$python" -V) ($python)" make_venv "$python"
    : >"$LOG"
    step packages "$(names "$LOCK" | wc -l) packages of $LOCK" install_lock "$LOCK"
    step project "voxserve itself" install_project
    if [[ $dev == true ]]; then
        step dev "$(names "$DEV_LOCK" | wc -l) packages of $DEV_LOCK" install_lock "$DEV_LOCK"
    fi
    say "ready in $SECONDS s; $VENV takes $(size)"
}

main
