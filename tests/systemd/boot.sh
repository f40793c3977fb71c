#!/bin/bash
# Boots a systemd that cannot touch the machine: boot.sh enter ROOT, which goes on with init; and
# removes the cgroup that it ran in: boot.sh sweep ROOT. `enter` is PID 1 of namespaces of its own
# (unshare --pid --mount --uts --ipc), and ROOT is a folder that is removed afterwards.
#
# The units of the machine are never read: SYSTEMD_UNIT_PATH names the only folder, since one of
# theirs would empty /tmp. What systemd writes (/run, /var/lib, /etc/systemd) are folders of ROOT,
# what it might write (/etc, /proc/sys) is read-only.
set -euo pipefail
step=$1 root=$2
name=$(basename "$root")

mount_cgroups() {
  mkdir -p "$root/cgroup"
  mount -t cgroup2 none "$root/cgroup"
  own=$(sed -n 's/^0:://p' /proc/self/cgroup)
  ours="$root/cgroup$own/$name"
}

case $step in
enter)
  mount --make-rprivate /
  mount -t proc -o nosuid,nodev,noexec proc /proc
  mount_cgroups
  mkdir "$ours"
  echo $$ >"$ours/cgroup.procs"
  # From here on this cgroup is the root of all that is seen.
  exec unshare --cgroup bash "$0" init "$root"
  ;;
init)
  umount "$root/cgroup"
  mount -t cgroup2 none /sys/fs/cgroup
  mount --bind "$root/run" /run
  mount --bind "$root/lib" /var/lib
  mount --bind /etc /etc
  mount -o remount,bind,ro /etc
  mount --bind "$root/etc" /etc/systemd
  mount --bind /proc/sys /proc/sys
  mount -o remount,bind,ro /proc/sys
  export container=cmdc-test
  export SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_GENERATOR_PATH=$root/none
  exec "$SYSTEMD" --system --unit=multi-user.target --show-status=no --log-target=journal
  ;;
sweep)
  mount_cgroups
  # The kernel may take a moment to bury what it killed.
  for _ in $(seq 100); do
    find "$ours" -depth -type d -exec rmdir {} + 2>/dev/null && exit 0
    [ -d "$ours" ] || exit 0
    sleep 0.05
  done
  exit 1
  ;;
esac
