# shellcheck shell=bash
# A private PostgreSQL for one test run: fresh, on 127.0.0.1 only, gone afterwards. Source it after lib.sh; it runs nothing.
#
# It promises a server that survives its own crash as a real one does, which is tested: fsync stays on, and its files outlive it.
# It deliberately leaves every other server of the machine alone.

PG_START_TRIES_MAX=20
# In MiB: the databases of a whole run took 6,450.
PG_MEMORY_MIN=16384
PG_DIR=""
PG_BIN=""
PG_USER=""

# Sets PG_BIN to the newest server's programs, installing the distribution's server when there is none.
need_postgres() {
    find_postgres && return
    local hint="install the PostgreSQL server (Debian, Ubuntu: apt-get install postgresql)"
    command -v apt-get >/dev/null || fail "no PostgreSQL server found: $hint"
    [ "$(id -u)" = 0 ] || fail "no PostgreSQL server found, and only root can install it: $hint"
    say "installing PostgreSQL"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; } </dev/null >&2 ||
        say "apt-get did not end well"
    find_postgres || fail "no PostgreSQL server found after installing it: $hint"
}

find_postgres() {
    local initdb dir
    initdb=$(command -v initdb || true)
    while IFS= read -r dir; do
        if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && [ -x "$dir/pg_ctl" ]; then
            PG_BIN=$dir
            return 0
        fi
    done < <([ -z "$initdb" ] || dirname "$(readlink -f "$initdb")"; printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV)
    return 1
}

# Starts the server and exports LANDFALL_TEST_POSTGRES, LANDFALL_TEST_PG_BIN and LANDFALL_TEST_PG_USER.
# One "for-tests" gets hundreds of databases, none for long: its files are in memory where that has room, and it has no autovacuum, which
# would go round all of them each minute.
start_postgres() { # [for-tests]
    need_postgres
    local place=/tmp autovacuum=on
    if [ "${1:-}" = for-tests ]; then
        autovacuum=off
        if [ "$(free_memory)" -ge "$PG_MEMORY_MIN" ]; then place=/dev/shm; fi
    fi
    PG_DIR=$(mktemp -d "$place/landfall-postgres.XXXXXX")
    choose_postgres_user
    as_postgres "$PG_BIN/initdb" --pgdata="$PG_DIR/data" --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync \
        >"$PG_DIR/initdb.log" 2>&1 || postgres_failed initdb.log
    cat >>"$PG_DIR/data/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
unix_socket_directories = '$PG_DIR'
max_connections = 200
autovacuum = $autovacuum
END
    local try port
    for ((try = 1; try <= PG_START_TRIES_MAX; try++)); do
        # Below the range from which the kernel takes ports for outgoing connections, so that a restart finds it free again.
        port=$((20000 + RANDOM % 10000))
        if as_postgres "$PG_BIN/pg_ctl" --pgdata="$PG_DIR/data" --log="$PG_DIR/server.log" --options="-p $port" --wait --silent start \
            >/dev/null 2>&1; then
            export LANDFALL_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres"
            export LANDFALL_TEST_PG_BIN="$PG_BIN"
            export LANDFALL_TEST_PG_USER="$PG_USER"
            say "PostgreSQL: $LANDFALL_TEST_POSTGRES ($("$PG_BIN/postgres" --version))"
            return
        fi
        grep -qs 'Address already in use' "$PG_DIR/server.log" || break
    done
    postgres_failed server.log
}

# In MiB, where files may be in memory.
free_memory() {
    local free
    free=$(df --output=avail --block-size=1M /dev/shm 2>/dev/null | tail -n 1)
    if [ -w /dev/shm ]; then echo "${free:-0}"; else echo 0; fi
}

# Stops the server and removes its files. Does nothing when it was never started.
stop_postgres() {
    [ -n "$PG_DIR" ] || return 0
    if [ -f "$PG_DIR/data/postmaster.pid" ]; then
        as_postgres "$PG_BIN/pg_ctl" --pgdata="$PG_DIR/data" --mode=immediate --wait --silent stop >/dev/null 2>&1 || true
    fi
    rm -rf "$PG_DIR"
    PG_DIR=""
}

# PostgreSQL refuses root: there another user owns the data and runs the server.
choose_postgres_user() {
    [ "$(id -u)" = 0 ] || return 0
    PG_USER=nobody
    if id -u postgres >/dev/null 2>&1; then PG_USER=postgres; fi
    chown "$PG_USER:" "$PG_DIR"
}

as_postgres() {
    if [ -z "$PG_USER" ]; then
        (cd "$PG_DIR" && "$@")
    else
        (cd "$PG_DIR" && setpriv --reuid="$PG_USER" --regid="$(id -g "$PG_USER")" --clear-groups "$@")
    fi
}

postgres_failed() { # LOG
    cat "$PG_DIR/$1" >&2 || true
    fail "the private PostgreSQL did not start (${1%.log}, $PG_BIN)"
}
