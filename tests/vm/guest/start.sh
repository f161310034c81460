# The first process goes on here, as root, with nothing but /proc, the system and the project
# mounted. A service manager would do no more than this for a delegated service.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 shm /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /tmp
mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /var/tmp
mount -t tmpfs -o nosuid,nodev,mode=755 run /run
mount -t tmpfs -o nosuid,nodev,mode=700 home /root
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
if [ -e /dev/nvme0n3 ]; then mount -t ext4 -o noatime /dev/nvme0n3 /guest; fi
ip link set lo up
hostname rookhold-vm

# The tests are one service with a delegated subtree; its own processes sit in a leaf of it.
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate cgroup2 /sys/fs/cgroup
echo '+cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/service/tests
echo '+cpu +memory +pids' > /sys/fs/cgroup/service/cgroup.subtree_control
echo $$ > /sys/fs/cgroup/service/tests/cgroup.procs

cd /project
export HOME=/root CI=true PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis
if grep -qw rookhold.shell /proc/cmdline; then
    setsid --ctty --wait bash -l < /dev/ttyS0 > /dev/ttyS0 2>&1
else
    stty -F /dev/ttyS1 raw -echo
    setsid --wait .venv/bin/python -P tests/vm/guest/run.py /project/order.json /dev/ttyS1 < /dev/null
fi
echo b > /proc/sysrq-trigger
sleep 60
