#!/bin/sh
# Try the README's two commands as a newcomer on a fresh Debian 12 that has python3 and make and
# nothing else. Needs root, mmdebstrap and systemd-nspawn. The system is thrown away afterwards.
#
#   tests/newcomer/debian.sh                 quick start twice, then every test
#   tests/newcomer/debian.sh COMMAND...      the given commands instead, one after another
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3,make bookworm "$scratch/system"

# A directory whose name holds a space, an empty home, and only what is committed.
place="$scratch/system/home/new comer/rookhold"
mkdir -p "$scratch/system/home/new comer" "$scratch/system/home/empty"
git clone --quiet "$checkout" "$place"
rm -rf "$scratch/system/etc/resolv.conf"
cp -L /etc/resolv.conf "$scratch/system/etc/resolv.conf"

set -- "${@:-}"
[ -n "$1" ] || set -- "make quickstart" "make quickstart" "make check"
for command in "$@"; do
    echo "== $command"
    # The host's own package index settings, if it has any, are the only thing passed in.
    systemd-nspawn --quiet --directory="$scratch/system" --register=no --keep-unit --pipe \
        --resolv-conf=off \
        ${PIP_CERT:+--bind-ro="$PIP_CERT:/run/index-ca.crt"} \
        ${PIP_CERT:+--setenv=PIP_CERT=/run/index-ca.crt} \
        ${PIP_INDEX_URL:+--setenv=PIP_INDEX_URL="$PIP_INDEX_URL"} \
        --setenv=HOME=/home/empty ${CI:+--setenv=CI="$CI"} \
        /bin/sh -c "cd '/home/new comer/rookhold' && $command"
done
