//! TCP between two namespaces of a guest.

/// Sends `$1` MiB from the namespace `$2` to the namespace `$3`, whose address is `$4`, over TCP, and compares what
/// arrives. It is sent in large pieces, which the card has to divide. The receiver's input is a pipe that never ends:
/// at the end of its input it would close the connection.
const TCP: &str = r#"
set -e
rm -f /tmp/sent /tmp/received /tmp/endless
dd if=/dev/urandom of=/tmp/sent bs=1M count=$1 2>/dev/null
mkfifo /tmp/endless
exec 4<>/tmp/endless
ip netns exec $3 busybox nc -l -p 5001 < /tmp/endless > /tmp/received &
server=$!
# BusyBox listens for both kinds of addresses at once: where there is IPv6, the kernel lists it with that.
listens() { grep -q ':1389 .* 0A ' /proc/$server/net/tcp*; }
for wait in $(seq 300); do listens && break; sleep 0.1; done
listens
ip netns exec $2 bash -c "dd if=/tmp/sent bs=256K status=none > /dev/tcp/$4/5001"
wait $server
busybox cmp /tmp/sent /tmp/received
rm /tmp/sent /tmp/received /tmp/endless
"#;

/// The script that sends `mebibytes` over TCP from one namespace to another one's address, and compares them.
pub fn script(mebibytes: u64, from: &str, to: &str, address: &str) -> String {
    format!("set -- {mebibytes} {from} {to} {address}\n{TCP}")
}
