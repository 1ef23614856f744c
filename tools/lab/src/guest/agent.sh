# The guest's process 1: does what the host asks for on a virtio port, one line
# a request. Commands and their output are files in /lab, a folder of the
# host's, so that they can be of any size and content, and survive the guest.
export PATH=/opt/mlx5/bin0:/opt/mlx5/bin1:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=${TERM:-linux}
cd /root

mkdir -p /dev/pts /dev/shm /dev/hugepages
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t hugetlbfs hugetlbfs /dev/hugepages
mount -t debugfs debugfs /sys/kernel/debug
ulimit -l unlimited
busybox hostname lab
ip link set lo up

# If records were lost, reading starts again; the host recognises repeated ones by their number.
(while :; do cat /dev/kmsg 2> /dev/null; done >> /lab/kernel.log) &

agent() {
    local port= module verb id
    local -a pids
    for entry in /sys/class/virtio-ports/*; do
        [ "$(cat "$entry/name")" = mlx5.lab ] && port=/dev/${entry##*/}
    done
    exec 3<> "$port"

    while read -r module; do
        modprobe -q -- "$module" 3>&- || echo "failed modprobe $module" >&3
    done < /lab/modules

    if [ -e /lab/interactive ]; then
        echo ready >&3
        setsid busybox cttyhack bash -l 3>&-
        sync
        echo o > /proc/sysrq-trigger
        sleep 60
    fi

    echo ready >&3
    # Gives each command a process group. A program for that would take longer to start, on an emulated processor, than
    # most commands run.
    set -m
    # The host's end of the port closes when the host's process ends, however it
    # does; then nobody needs this guest.
    while read -r verb id <&3; do
        case $verb in
        run)
            {
                (exec bash "/lab/run/$id.sh" 3>&-) > "/lab/run/$id.out" 2> "/lab/run/$id.err" < /dev/null
                echo "done $id $?" >&3
            } &
            pids[id]=$!
            # Else the shell would tell the console of who is killed.
            disown
            ;;
        kill)
            kill -9 -- "-${pids[id]}"
            echo "done $id 137" >&3
            ;;
        off) break ;;
        esac
    done
    sync
    echo o > /proc/sysrq-trigger
    sleep 60
}

# Process 1 itself only waits, for every orphan is its child now.
agent &
wait
