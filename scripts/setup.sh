#!/usr/bin/env bash
# Makes a machine ready to build and test: tools of the system, the Rust compiler's version, the servers.
# Safe to run again: it asks for rights and for the network only where something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
    echo "setup: $*" >&2
    exit 1
}

# The command or file that tells whether a Debian package is needed, and the package.
needed() {
    command -v gcc >/dev/null || echo gcc
    command -v make >/dev/null || echo make
    command -v pkg-config >/dev/null || echo pkg-config
    command -v clang >/dev/null || echo clang
    ls /usr/lib/*/libclang*.so* /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1 || [ -n "${LIBCLANG_PATH:-}" ] ||
        echo libclang-dev
    # redis-tools is enough: its redis-check-rdb is the server itself, and no daemon gets started.
    command -v redis-server >/dev/null || command -v redis-check-rdb >/dev/null || echo redis-tools
    command -v redis-cli >/dev/null || echo redis-tools
    command -v valgrind >/dev/null || echo valgrind
    python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

install_debian() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "these packages are missing and neither root nor sudo is at hand: $*"
        as_root=(sudo)
    fi
    echo "setup: installing $*"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

mapfile -t missing < <(needed | sort -u)
if [ "${#missing[@]}" -gt 0 ]; then
    if command -v apt-get >/dev/null; then
        install_debian "${missing[@]}"
    else
        die "install these first (names as on Debian): ${missing[*]}"
    fi
fi

wanted=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
command -v cargo >/dev/null ||
    die "cargo is missing: get Rust $wanted or later with rustup (see 'Install' on the site of the Rust language)"
found=$(rustc --version | cut -d ' ' -f 2)
[ "$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
    die "rustc $found is older than $wanted: run 'rustup update stable'"
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    command -v rustup >/dev/null || die "rustfmt and clippy are missing"
    rustup component add rustfmt clippy
fi

scripts/servers.sh
echo "setup: ready"
