#!/bin/busybox sh
# Init of a guest, in its initramfs: mounts the extracted packages as the root
# file system, with a tmpfs overlay for writes, then starts the agent.
/bin/busybox mkdir -p /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin

die() {
    echo "lab: $*" > /dev/console
    echo o > /proc/sysrq-trigger
    sleep 60
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || die "cannot load $module"
done < /modules.order

mount_9p() {
    mkdir -p "$3"
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$2" "$1" "$3" ||
        die "cannot mount $1 on $3"
}

mkdir -p /lower /upper /new
mount_9p root ro,cache=loose /lower
mount -t tmpfs tmpfs /upper
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /new ||
    die "cannot mount the root"
for dir in proc sys dev; do
    mount --move /$dir /new/$dir
done
while read -r tag mode path; do
    mount_9p "$tag" "$mode" "/new$path"
done < /mounts
exec switch_root /new /usr/bin/bash /lab/agent.sh
die "cannot start the agent"
