# The first program in the sandbox, as the job's own account and before anything of the job. It tells
# what it finds in force, waits until the supervisor outside has looked for itself and takes the
# report away, and becomes the job. Built-in commands alone: nothing else is started.
umask 022
unset PWD OLDPWD
said=/dev/shm/.rookhold
sets=
filter=
while read -r name value; do
  case $name in
    Cap*) sets="$sets $value" ;;
    Seccomp:) filter=$value ;;
  esac
done </proc/self/status
read -r kernel </proc/version
read -r _ place _ options _ </proc/mounts
{
  echo "kernel $kernel"
  echo "capabilities$sets"
  echo "filter $filter"
  echo "mounted $place $options"
  ulimit -f
  ulimit -n
  ulimit -u 2>/dev/null || ulimit -p
  echo end
} >$said
while [ -e $said ]; do :; done
exec "$@"
