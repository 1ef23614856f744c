//! Our connection manager by the kernel's, over DevX: librdmacm's programs at the other end.

mod common;

use common::kernels::{FAR, SET_UP, part};
use common::{Lab, PROBE, Report, SOON, THEY_LISTEN, TRAFFIC, TestResult, assert_lawful_but};
use mlx5_lab::{Build, Guest, Model};

/// The examples that run here.
const EXAMPLES: &[&str] = &["cm_pingpong", "cm_messages", "byte_stream", "multicast", "rc_pingpong"];

/// Two functions: ours by DevX, and one of libmlx5's in the namespace `far`.
fn boot() -> Result<Lab, Report> {
    let build = Build::dev(&["mlx5", "lnet"], EXAMPLES)?;
    let model = Model::start(&build, 2, &[])?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder("cm").nic(first).nic(second).programs(&build).boot()?;
    let lab = Lab { guest, model };
    lab.check(SET_UP, PROBE)?;
    part(&lab)?;
    Ok(lab)
}

/// Calls a server of librdmacm's.
fn call(lab: &Lab, server: &str, client: &str) -> Result<String, Report> {
    lab.call(lab.serve(&format!("{FAR} {server}"), THEY_LISTEN)?, client)
}

/// Is called by a client of librdmacm's.
fn be_called(lab: &Lab, server: &str, client: &str) -> Result<String, Report> {
    lab.call(lab.serve_ours(server)?, &format!("{FAR} {client}"))
}

/// Nothing of the connection manager's is left in the kernel.
fn assert_none_left(lab: &Lab) -> TestResult {
    let left = lab.check("rdma resource show cm_id", SOON)?;
    assert!(left.trim().is_empty(), "{left}");
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_kernels_connection_manager_connects_our_queue_pairs() -> TestResult {
    let lab = boot()?;
    let without = lab.guest.run("rm -f /dev/infiniband/rdma_cm; cm_pingpong -d devx:mlx5_0 --listen 2>&1", TRAFFIC)?;
    assert!(without.status == 1 && without.text().contains("`modprobe rdma_ucm`"), "{}", without.text());
    lab.check("modprobe rdma_ucm && until [ -e /dev/infiniband/rdma_cm ]; do sleep 0.1; done", SOON)?;
    messages_are_those_of_rping(&lab)?;
    many_connections_are_those_of_ucmatose(&lab)?;
    connections_are_those_of_cmtime(&lab)?;
    a_stream_is_that_of_rstream(&lab)?;
    datagrams_are_those_of_udaddy(&lab)?;
    a_group_is_told_to_the_network(&lab)?;
    what_nobody_listens_for_is_refused(&lab)?;
    pingpong_and_perf_are_connected(&lab)?;
    nodes_of_lnet_are_connected(&lab)?;
    assert_none_left(&lab)?;
    who_is_killed_is_noticed(&lab)?;
    assert_none_left(&lab)?;
    lab.check("rmmod rdma_ucm && modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE)?;
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    // Accesses to the memory of a process that was killed: see `KILL_THEIR_CLIENT`.
    assert_lawful_but(&lab.model, "the key is free");
    Ok(())
}

/// `rping` compares what comes back, as our client does. By IPv4 and by the link-local addresses.
fn messages_are_those_of_rping(lab: &Lab) -> TestResult {
    let (ours, theirs) = ("cm_pingpong -d devx:mlx5_0 -C 50 -S 20000", "rping -C 50 -S 20000 -V -v");
    let link_local = |within: &str| format!("$({within} ip -6 -o addr show scope link | grep -o 'fe80[^/]*')");
    let (near, far) = (link_local(""), link_local(FAR));
    for (near, far, scope) in [("10.0.0.1", "10.0.0.2", ""), (&near, &far, "%eth0")] {
        let said = call(lab, &format!("{theirs} -s -a {far}{scope}"), &format!("{ours} {far}"))?;
        assert!(said.contains("50 messages of 20000 bytes came back unchanged"), "{said}");
        assert!(said.contains("server ping data: rdma-ping-49"), "{said}");
        let said = be_called(lab, &format!("{ours} --listen"), &format!("{theirs} -c -a {near}{scope}"))?;
        assert!(said.contains("ping data: rdma-ping-49") && said.contains("served 50 messages"), "{said}");
    }
    Ok(())
}

/// 40 connections of one process to another's. `ucmatose` sends to the client first, and waits for answers.
fn many_connections_are_those_of_ucmatose(lab: &Lab) -> TestResult {
    let (ours, theirs) = ("cm_messages -d devx:mlx5_0 -c 40", "ucmatose -c 40");
    let said = call(lab, &format!("{theirs} -b 10.0.0.2"), &format!("{ours} 10.0.0.2"))?;
    assert!(said.contains("40 connected to 10.0.0.2:7471") && said.contains("40 disconnected"), "{said}");
    assert!(said.contains("return status 0"), "{said}");
    let said = be_called(lab, &format!("{ours} --listen"), &format!("{theirs} -s 10.0.0.1"))?;
    assert!(said.contains("40 clients connected") && said.contains("40 disconnected"), "{said}");
    assert!(said.contains("return status 0"), "{said}");
    Ok(())
}

/// Connections alone, in three rounds.
fn connections_are_those_of_cmtime(lab: &Lab) -> TestResult {
    let ours = "cm_messages -d devx:mlx5_0 -C 0";
    lab.calls_cmtime(ours, FAR, "10.0.0.2")?;

    let echo = lab.serve_echo("")?;
    let said = be_called(lab, &format!("{ours} -c 101 --listen"), "cmtime -c 50 -s 10.0.0.1")?;
    assert!(said.contains("101 clients connected") && said.contains("101 disconnected"), "{said}");
    assert_eq!(said.matches("destroy qp").count(), 2, "{said}");
    lab.ended(echo).map(drop)
}

/// A byte stream by the protocol of rsockets, of which each end checks each byte.
fn a_stream_is_that_of_rstream(lab: &Lab) -> TestResult {
    let (ours, theirs) = ("byte_stream -d devx:mlx5_0 -C 20 -S 65536", "rstream -C 20 -S 65536 -T v");
    let says = ["1310720 bytes went each way, and came unchanged", "custom"];
    let said = call(lab, &format!("{theirs} -b 10.0.0.2"), &format!("{ours} 10.0.0.2"))?;
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
    let said = be_called(lab, &format!("{ours} --listen"), &format!("{theirs} -s 10.0.0.1"))?;
    assert!(says.iter().all(|words| said.contains(words)), "{said}");
    Ok(())
}

/// Queue pairs for datagrams that are found by port: the other port space.
fn datagrams_are_those_of_udaddy(lab: &Lab) -> TestResult {
    let (ours, theirs) = ("cm_messages -d devx:mlx5_0 --datagrams -c 4", "udaddy -c 4");
    let said = call(lab, &format!("{theirs} -b 10.0.0.2"), &format!("{ours} 10.0.0.2"))?;
    assert!(said.contains("10 datagrams of 100 bytes each way") && said.contains("return status 0"), "{said}");
    let said = be_called(lab, &format!("{ours} --listen"), &format!("{theirs} -s 10.0.0.1"))?;
    assert!(said.contains("10 datagrams of 100 bytes each way") && said.contains("return status 0"), "{said}");
    Ok(())
}

/// The kernel's connection manager joins the group of its network interface, too, and leaves it.
fn a_group_is_told_to_the_network(lab: &Lab) -> TestResult {
    let server =
        "stdbuf -oL multicast -d devx:mlx5_0 --listen 239.1.2.3 > /tmp/heard; status=$?; cat /tmp/heard; exit $status";
    let joined = "grep -q listening /tmp/heard && ip maddr show | grep -q 239.1.2.3";
    let server = lab.serve(server, joined)?;
    let said = lab.call(server, &format!("{FAR} mckey -m 239.1.2.3 -b 10.0.0.2 -s"))?;
    assert!(said.contains("10 datagrams of 100 bytes heard") && said.contains("return status 0"), "{said}");
    lab.check("! ip maddr show | grep 239.1.2.3", SOON)?;
    Ok(())
}

fn what_nobody_listens_for_is_refused(lab: &Lab) -> TestResult {
    for (way, reason) in [("", "rejected: INVALID_SERVICE_ID"), ("--datagrams", "refused: UNSUPPORTED")] {
        let said = lab.guest.run(&format!("cm_messages -d devx:mlx5_0 -p 7999 {way} 10.0.0.2 2>&1"), TRAFFIC)?;
        assert!(said.status == 1 && said.text().contains(reason), "{}", said.text());
    }
    let said = lab.guest.run("cm_messages -d devx:mlx5_0 10.77.0.1 2>&1", TRAFFIC)?;
    assert!(
        said.status == 1 && said.text().contains("no connection to 10.77.0.1:7471: unreachable"),
        "{}",
        said.text()
    );
    Ok(())
}

/// Both ends are ours, with the kernel's connection managers between them.
fn pingpong_and_perf_are_connected(lab: &Lab) -> TestResult {
    let pingpong = "rc_pingpong -R -c -n 100";
    let server = lab.serve(&format!("{FAR} {pingpong} -d devx:mlx5_1 --listen"), THEY_LISTEN)?;
    let said = lab.call(server, &format!("{pingpong} -d devx:mlx5_0 10.0.0.2"))?;
    assert!(said.contains("connected to 10.0.0.2:18515") && said.contains("connected from 10.0.0.1"), "{said}");
    for perf in ["mlx5 perf lat write -n 100 -R", "mlx5 perf bw send -n 100 -q 3 -R -x 1"] {
        let server = lab.serve_tcp(FAR, &format!("{perf} -d devx:mlx5_1 --listen"))?;
        let said = lab.call(server, &format!("{perf} -d devx:mlx5_0 10.0.0.2"))?;
        assert_eq!(said.matches("#bytes").count(), 2, "{said}");
    }
    Ok(())
}

/// Two nodes of ours, too: the kernel tells them where the other is, and connects them.
fn nodes_of_lnet_are_connected(lab: &Lab) -> TestResult {
    let server = format!("{FAR} lnet serve -d devx:mlx5_1 --ip 10.0.0.2/24 > /tmp/node 2>&1");
    let mut server = lab.serve(&server, THEY_LISTEN)?;
    for how in ["ping", "brw -n 8", "brw -n 8 --gaps"] {
        let said = lab.check(&format!("lnet {how} -d devx:mlx5_0 --ip 10.0.0.1/24 10.0.0.2@o2ib 2>&1"), TRAFFIC)?;
        let says = if how == "ping" { "10.0.0.2@o2ib" } else { "8 writes and as many reads of 1048576 bytes" };
        assert!(said.contains(says), "{said}");
    }
    assert!(server.runs(), "the server ended: {}", lab.check("cat /tmp/node", SOON)?);
    lab.check("pkill -x lnet", SOON)?;
    server.wait(TRAFFIC)?;
    Ok(())
}

/// Kills a process in each state of a connection. The other end is told; of the killed one nothing is left.
fn who_is_killed_is_noticed(lab: &Lab) -> TestResult {
    for script in [KILL_THEIR_CLIENT, KILL_THEIR_SERVER, KILL_OUR_CLIENT, KILL_OUR_SERVER] {
        lab.check(script, TRAFFIC)?;
        lab.wait_until("nothing is left", "[ -z \"$(rdma resource show cm_id)\" ]")?;
    }
    Ok(())
}

/// In the middle of its messages. Linux destroys what a process leaves in reverse order of creation: rping's keys
/// before its queue pair. A READ that comes between is refused.
const KILL_THEIR_CLIENT: &str = "
rm -f /tmp/ours
stdbuf -oL cm_pingpong -d devx:mlx5_0 --listen -S 20000 > /tmp/ours 2>&1 & ours=$!
until grep -q listening /tmp/ours; do sleep 0.1; done
ip netns exec far rping -c -a 10.0.0.1 -C 1000000 -S 20000 > /dev/null 2>&1 & theirs=$!
until grep -q 'connected from' /tmp/ours; do sleep 0.1; done
kill -9 $theirs
wait $ours
grep -E 'disconnected|flushed|retry|REMOTE_ACCESS_ERR' /tmp/ours || { cat /tmp/ours; exit 1; }
";

/// Before it answers: it stands still when the request comes.
const KILL_THEIR_SERVER: &str = "
ip netns exec far ucmatose -b 10.0.0.2 > /dev/null 2>&1 & theirs=$!
until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done
kill -STOP $theirs
cm_messages -d devx:mlx5_0 10.0.0.2 > /tmp/ours 2>&1 & ours=$!
until rdma resource show cm_id | grep 'dst-addr 10.0.0.2:7471' | grep -q CONNECT; do sleep 0.1; done
kill -9 $theirs
wait $ours && exit 1
grep -q rejected /tmp/ours || { cat /tmp/ours; exit 1; }
";

/// In the middle of its messages.
const KILL_OUR_CLIENT: &str = "
ip netns exec far rping -s -a 10.0.0.2 -C 1000000 -S 20000 > /tmp/theirs 2>&1 & theirs=$!
until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done
stdbuf -oL cm_pingpong -d devx:mlx5_0 10.0.0.2 -C 1000000 -S 20000 > /tmp/ours 2>&1 & ours=$!
until grep -q 'connected to' /tmp/ours; do sleep 0.1; done
kill -9 $ours
wait $theirs
grep -qi disconnect /tmp/theirs || { cat /tmp/theirs; exit 1; }
";

/// Before it answers: it stands still when the request comes.
const KILL_OUR_SERVER: &str = "
rm -f /tmp/ours
stdbuf -oL cm_messages -d devx:mlx5_0 --listen > /tmp/ours 2>&1 & ours=$!
until grep -q listening /tmp/ours; do sleep 0.1; done
kill -STOP $ours
ip netns exec far ucmatose -s 10.0.0.1 > /tmp/theirs 2>&1 & theirs=$!
until rdma resource show cm_id | grep 'dst-addr 10.0.0.1:7471' | grep -q CONNECT; do sleep 0.1; done
kill -9 $ours
wait $theirs
grep -q REJECTED /tmp/theirs || { cat /tmp/theirs; exit 1; }
";
