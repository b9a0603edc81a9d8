#!/usr/bin/env bash
# Makes the virtual environment and puts the installer (uv, hash-pinned) in it.
# Usage: bootstrap.sh PYTHON VENV. Needs only Python 3.11 or later with pip.
set -euo pipefail

python=$1
venv=$2
here=$(dirname "$0")

say() { echo "setup: $*" >&2; }

if ! command -v "$python" >/dev/null; then
    say "no '$python' on the PATH: install Python 3.11 or later, or name one: make setup PYTHON=/path/to/python3"
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "Python 3.11 or later is needed; '$python' is $("$python" -V 2>&1). Name another: make setup PYTHON=python3.12"
    exit 1
fi

# An environment that works is kept: a new installer is no reason to take it
# from under the programs that run in it.
update() {
    [ -x "$venv/bin/uv" ] && "$venv/bin/python" -c '' &&
        "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$here/uv.txt"
}

# The plain way needs ensurepip, which Debian ships apart, and takes seconds
# longer; so the environment is first made without pip, and the system's pip
# installs into it.
install_with_system_pip() {
    "$python" -m venv --clear --without-pip "$venv" &&
        "$python" -m pip --python "$venv/bin/python" install --quiet --no-input \
            --disable-pip-version-check --require-hashes -r "$here/uv.txt"
}

install_with_own_pip() {
    "$python" -m venv --clear "$venv" &&
        "$venv/bin/python" -m pip install --quiet --no-input \
            --disable-pip-version-check --require-hashes -r "$here/uv.txt"
}

if update 2>/dev/null; then
    exit 0
fi

say "$("$python" -V) environment in $venv"
if install_with_system_pip 2>"$venv.log" || install_with_own_pip 2>>"$venv.log"; then
    rm -f "$venv.log"
    exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing python3-venv and python3-pip"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends python3-venv python3-pip >/dev/null
    install_with_own_pip
    rm -f "$venv.log"
    exit 0
fi

cat "$venv.log" >&2
say "could not make the environment: install the 'venv' and 'pip' modules of $python (Debian: apt-get install python3-venv python3-pip) and run 'make setup' again"
exit 1
