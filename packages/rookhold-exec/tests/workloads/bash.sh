#!/bin/bash
# A bit of everything that an ordinary shell job does; fails loudly where the kernel refuses.
set -euo pipefail
cd "$1"
for i in 1 2 3; do echo "$i"; done | sort -r | head -n 1 | sed s/3/three/ > sorted
[ "$(cat sorted)" = three ]
diff <(echo same) <(echo same)
coproc cat
echo through >&"${COPROC[1]}"
read -r -t 30 line <&"${COPROC[0]}"
[ "$line" = through ]
( sleep 0.05 & wait )
mkdir -p a/b && echo text > a/b/file && cp -a a copy && mv copy moved && ln -s file a/b/link && ln a/b/file hard
mkfifo fifo && { echo fed > fifo & read -r fed < fifo; [ "$fed" = fed ]; wait "$!"; }
tar cf - a | gzip | tar tzf - > list
find . -name file > /dev/null
seq 1 4 | xargs -P 2 -n 1 echo > /dev/null
dd if=/dev/zero of=zeroes bs=1k count=4 status=none && stat zeroes > /dev/null
timeout 30 true
nice -n 1 true
ulimit -n > /dev/null
touch -d 2020-01-01 hard && chmod 600 hard && df . > /dev/null && du -s . > /dev/null
trap 'trapped=1' USR1 && kill -USR1 $$ && [ "$trapped" = 1 ]
exec 3<> <(:) && exec 3>&-
date > /dev/null && uname -a > /dev/null && id > /dev/null && mktemp -u > /dev/null
awk 'BEGIN { "echo 1" | getline x; exit x != 1 }'
rm -r a moved
cat <<< "all done"
