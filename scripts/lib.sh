# shellcheck shell=bash
# What scripts/sandbox, scripts/test and .ci/run share: the tools they need and steps that are timed. Source it; it runs nothing.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NODE_MAJOR_MIN=18

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$(basename "$0"): $*"
    exit 1
}

need_command() { # NAME, WHAT TO INSTALL
    command -v "$1" >/dev/null || fail "$1 is missing: $2"
}

need_rust() {
    need_command cargo "install Rust, https://rustup.rs"
    need_command cc "install a C compiler (Debian, Ubuntu: apt-get install build-essential)"
}

need_node() {
    local hint="install Node.js $NODE_MAJOR_MIN or newer with npm (Debian, Ubuntu: apt-get install nodejs npm)"
    need_command node "$hint"
    need_command npm "$hint"
    local major
    major=$(node -p 'process.versions.node.split(".")[0]')
    [ "$major" -ge "$NODE_MAJOR_MIN" ] || fail "node $major is too old: $hint"
}

# Installs nodes/node_modules as the lock file says, unless it is there already from this very lock file.
need_node_modules() {
    local lock="$ROOT/nodes/package-lock.json" stamp="$ROOT/nodes/node_modules/.landfall-lock"
    need_node
    cmp -s "$lock" "$stamp" && return
    say "installing nodes/node_modules"
    (cd "$ROOT/nodes" && npm ci --loglevel=error >&2) || fail "npm ci failed in nodes/"
    cp "$lock" "$stamp"
}

# Exports LANDFALL_ANVIL: the node itself and not npm's wrapper around it, which starts slowly and can leave the node behind.
# One that is set already is taken as it is.
need_anvil() {
    if [ -z "${LANDFALL_ANVIL:-}" ]; then
        need_node_modules
        local found
        for found in "$ROOT"/nodes/node_modules/@foundry-rs/anvil-*/bin/anvil; do
            LANDFALL_ANVIL=$found
        done
    fi
    "$LANDFALL_ANVIL" --version >/dev/null 2>&1 ||
        fail "anvil does not run at $LANDFALL_ANVIL: install Foundry's anvil 1.7.1 and set LANDFALL_ANVIL to its path"
    export LANDFALL_ANVIL
}

# Exports LANDFALL_SURFPOOL, the script that starts a Solana cluster, where it runs: surfpool comes as a module for Linux on x86-64 with
# glibc only, and npm leaves it out elsewhere. Fails, and says why, where it does not. One that is set already is taken as it is.
find_surfpool() {
    if [ -z "${LANDFALL_SURFPOOL:-}" ]; then
        need_node_modules
        LANDFALL_SURFPOOL=$ROOT/nodes/surfpool.mjs
    fi
    if ! node "$LANDFALL_SURFPOOL" --check; then
        unset LANDFALL_SURFPOOL
        return 1
    fi
    export LANDFALL_SURFPOOL
}

# A Solana cluster for tests: solana-test-validator where it is on the PATH, else surfpool.
need_surfpool() {
    command -v solana-test-validator >/dev/null && return
    find_surfpool || fail "install solana-test-validator (Agave) and put it on the PATH"
}

# Exports LANDFALL_PYTHON: a Python with the packages of tests/live/requirements.txt, in nodes/venv, installed unless it is there
# already from this very file. One that is set already is taken as it is.
need_python() {
    local hint="install Python 3.9 or newer with venv (Debian, Ubuntu: apt-get install python3 python3-venv)"
    local wanted="$ROOT/tests/live/requirements.txt" venv="$ROOT/nodes/venv"
    if [ -z "${LANDFALL_PYTHON:-}" ]; then
        need_command python3 "$hint"
        if ! cmp -s "$wanted" "$venv/.landfall-requirements"; then
            say "installing nodes/venv"
            rm -rf "$venv"
            python3 -m venv "$venv" >&2 || fail "python3 -m venv failed: $hint"
            "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" >&2 || fail "pip install failed in nodes/venv"
            cp "$wanted" "$venv/.landfall-requirements"
        fi
        LANDFALL_PYTHON=$venv/bin/python
    fi
    "$LANDFALL_PYTHON" -c 'import cryptography, schemathesis, standardwebhooks' 2>/dev/null ||
        fail "$LANDFALL_PYTHON lacks packages of the tests: pip install -r tests/live/requirements.txt"
    export LANDFALL_PYTHON
}

# Exports LANDFALL_NATS_SERVER, installing the distribution's server when there is none; each test starts one of its own. One that is
# set already is taken as it is.
need_nats() {
    local hint="install nats-server 2.9 or newer (Debian, Ubuntu: apt-get install nats-server) and set LANDFALL_NATS_SERVER to its path"
    find_nats && return
    command -v apt-get >/dev/null || fail "no nats-server found: $hint"
    [ "$(id -u)" = 0 ] || fail "no nats-server found, and only root can install it: $hint"
    say "installing nats-server"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nats-server; } </dev/null >&2 ||
        say "apt-get did not end well"
    find_nats || fail "no nats-server found after installing it: $hint"
}

# Debian puts it where only root looks.
find_nats() {
    [ -n "${LANDFALL_NATS_SERVER:-}" ] || LANDFALL_NATS_SERVER=$(PATH=$PATH:/usr/sbin command -v nats-server || true)
    "$LANDFALL_NATS_SERVER" --version >/dev/null 2>&1 || { unset LANDFALL_NATS_SERVER; return 1; }
    export LANDFALL_NATS_SERVER
}

# Exports LANDFALL_SOFTHSM, the module of SoftHSM2, installing the distribution's when there is none; each test has tokens of its own.
# One that is set already is taken as it is.
need_softhsm() {
    local hint="install SoftHSM 2.6 or newer (Debian, Ubuntu: apt-get install softhsm2) and set LANDFALL_SOFTHSM to its libsofthsm2.so"
    find_softhsm && return
    command -v apt-get >/dev/null || fail "no SoftHSM found: $hint"
    [ "$(id -u)" = 0 ] || fail "no SoftHSM found, and only root can install it: $hint"
    say "installing softhsm2"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends softhsm2; } </dev/null >&2 ||
        say "apt-get did not end well"
    find_softhsm || fail "no SoftHSM found after installing it: $hint"
}

find_softhsm() {
    local found
    for found in ${LANDFALL_SOFTHSM:-/usr/lib/softhsm/libsofthsm2.so /usr/local/lib/softhsm/libsofthsm2.so /opt/homebrew/lib/softhsm/libsofthsm2.so}; do
        if [ -e "$found" ] && command -v softhsm2-util >/dev/null; then
            export LANDFALL_SOFTHSM=$found
            return
        fi
    done
    return 1
}

STEP_PID=""
STEP_NAMES=()
STEP_SECS=()
STEP_RESULTS=()

# Runs a command or function in a process group of its own, times it, and goes on when it fails.
step() { # NAME, COMMAND...
    local name=$1 result=ok started=$SECONDS
    shift
    say "== $name: $*"
    set -m
    "$@" </dev/null &
    STEP_PID=$!
    set +m
    wait "$STEP_PID" || result="FAILED ($?)"
    STEP_PID=""
    STEP_NAMES+=("$name")
    STEP_SECS+=($((SECONDS - started)))
    STEP_RESULTS+=("$result")
    [ "$result" = ok ] || say "== $name: $result"
}

# Ends a step that still runs, with all it started. For the traps of a script.
stop_step() {
    [ -n "$STEP_PID" ] || return 0
    kill -TERM -- "-$STEP_PID" 2>/dev/null || true
    wait "$STEP_PID" 2>/dev/null || true
    kill -KILL -- "-$STEP_PID" 2>/dev/null || true
    STEP_PID=""
}

# Prints the steps with their seconds; fails when one of them failed.
report_steps() {
    local i failed=0
    printf '\n%-14s %8s  %s\n' step seconds result
    for i in "${!STEP_NAMES[@]}"; do
        printf '%-14s %8d  %s\n' "${STEP_NAMES[$i]}" "${STEP_SECS[$i]}" "${STEP_RESULTS[$i]}"
        [ "${STEP_RESULTS[$i]}" = ok ] || failed=1
    done
    printf '%-14s %8d\n' total "$SECONDS"
    return "$failed"
}

# Makes signals end the script by way of its EXIT trap, so that cleaning up is written once.
exit_on_signals() {
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}
