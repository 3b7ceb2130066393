#!/usr/bin/env bash
# run.sh SERVER PORT MODULE: starts a server with the module in the foreground. Its data goes to target/run/SERVER.
set -euo pipefail
cd "$(dirname "$0")/.."

binary="$PWD/${REDISLOCK_SERVERS_DIR:-target/servers}/$1/redis-server"
case "${REDISLOCK_SERVERS_DIR:-}" in
/*) binary="$REDISLOCK_SERVERS_DIR/$1/redis-server" ;;
esac
[ -x "$binary" ] || {
    echo "run: no server called $1: there are redis-6.2, redis-7.0, redis-8.2 and valkey-8.1 (make servers)" >&2
    exit 1
}
data="$PWD/target/run/$1"
mkdir -p "$data"

# The example names the module by where it was installed; here it is the one just built.
settings="$data/redis.conf"
if [ -f redis.conf.example ]; then
    sed "s|^\(loadmodule\) [^ ]*|\1 $3|" redis.conf.example >"$settings"
else
    : >"$settings"
fi
grep -q '^loadmodule ' "$settings" || echo "loadmodule $3" >>"$settings"

exec "$binary" "$settings" --port "$2" --dir "$data" --daemonize no
