#!/bin/sh
# Every test. What runs in the emulated machine takes as long as all the others and keeps no clock of
# ours, so it runs beside them, with what they leave of the processors. As root it has its own
# mounts: building the machine's disks makes some, and tests look whether jobs leave any.
set -u
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=.cache/vm.log
mkdir -p .cache
unset PYTHONDONTWRITEBYTECODE # gateways are started by the hundred: what they run is compiled once

apart="nice -n 19"
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    apart="$apart unshare --mount"
fi
$apart $python -m pytest tests/vm >"$log" 2>&1 &
machine=$!
trap 'kill $machine 2>/dev/null' INT TERM

$python -m pytest --ignore tests/vm
here=$?
echo "waiting for the emulated machine"
wait $machine
there=$?
cat "$log"
[ $here -eq 0 ] && [ $there -eq 0 ]
