#!/bin/sh
# Sets up .venv: `tools/setup.sh core` with what kvlife needs, `tools/setup.sh dev` with what tests
# and checks need on top. It finds a fitting Python by itself; PYTHON=... names one. It says in
# plain words what is missing, and leaves no half-made .venv behind. `tools/setup.sh browser` sees
# that there is a Chromium for the tests of the HTML report, and installs one on Debian and Ubuntu.
set -eu
cd "$(dirname "$0")/.."

kind=${1:-}
venv=.venv
log=$venv/install.log

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Prints nothing when the Python fits, and else what is wrong with it, in a few words.
flaw_of() {
    command -v "$1" >/dev/null 2>&1 || { echo "not found"; return; }
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        { echo "found, but does not start"; return; }
    case $version in
        3.11 | 3.12 | 3.13) ;;
        *) echo "is Python $version"; return ;;
    esac
    "$1" -c 'import venv, ensurepip' 2>/dev/null ||
        echo "has no venv module (on Debian and Ubuntu: apt-get install python$version-venv)"
}

find_python() {
    tried=
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        flaw=$(flaw_of "$candidate")
        if [ -z "$flaw" ]; then
            python=$candidate
            return
        fi
        tried="$tried
  $candidate: $flaw"
    done
    fail "kvlife needs Python 3.11, 3.12 or 3.13 with its venv module. Looked for:$tried" \
        "Install one of them, or name one: make PYTHON=/path/to/python3.11 ..."
}

make_venv() {
    if [ -x $venv/bin/python ] && [ -z "$(flaw_of $venv/bin/python)" ] && [ -z "${PYTHON:-}" ]; then
        return
    fi
    find_python
    echo "Making $venv with $(command -v "$python") ($("$python" -V))"
    "$python" -m venv --clear $venv ||
        { rm -rf $venv; fail "$python could not make $venv: see its message above"; }
}

# pip's own words go to a file, and are shown when it fails.
install() {
    echo "Installing $1 (pip's words go to $log)"
    shift
    if ! $venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt "$@" \
        >>$log 2>&1; then
        tail -n 20 $log >&2
        fail "" "pip could not install this: $*" \
            "Its last words are above, the rest is in $log. It needs a package index: is the" \
            "network up, and does pip work here (pip config list)? Then run the same make again."
    fi
}

find_chromium() {
    for candidate in ${KVLIFE_CHROMIUM:-chromium-headless-shell chromium chromium-browser \
        google-chrome}; do
        chromium=$(command -v "$candidate" 2>/dev/null) && return
    done
    return 1
}

# The archive keeps the newest version alone, so that none can be named here; it is shown instead.
install_chromium() {
    as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    echo "Installing chromium-headless-shell (apt-get's words go to $log)"
    { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends \
        chromium-headless-shell fonts-dejavu-core; } >>$log 2>&1
}

have_chromium() {
    mkdir -p $venv
    find_chromium && return
    if [ -n "${KVLIFE_CHROMIUM:-}" ]; then
        fail "KVLIFE_CHROMIUM names $KVLIFE_CHROMIUM, and there is no such program"
    fi
    if ! command -v apt-get >/dev/null || ! install_chromium || ! find_chromium; then
        [ -f $log ] && tail -n 10 $log >&2
        fail "" "The tests of the HTML report need a Chromium, and none could be installed here." \
            "Install one by hand, or name one: KVLIFE_CHROMIUM=/path/to/chromium"
    fi
}

case $kind in
    core)
        make_venv
        # The build backend comes from the constraints too, so pip must not fetch one of its own.
        install "the build backend" setuptools
        install "kvlife and what it needs" --no-build-isolation -e .
        ;;
    dev)
        install "what tests and checks need" --no-build-isolation -e '.[arrow,perfetto,pools,testing,dev]'
        ;;
    browser)
        have_chromium
        echo "Chromium: $chromium ($("$chromium" --version 2>/dev/null || echo unknown version))"
        ;;
    *)
        fail "usage: tools/setup.sh core|dev|browser"
        ;;
esac
