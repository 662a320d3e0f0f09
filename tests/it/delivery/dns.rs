//! Rebinding, with a name server that does it: it reports an address on the internet when a webhook is registered, and
//! one of this machine ever after.
//!
//! The system's resolver asks the servers that /etc/resolv.conf names, at port 53. So the test runs itself once more in
//! namespaces of its own, where that file names ours. Where the kernel grants none (in many containers), a client in
//! this file asks the name server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::resolver::Resolver;

use crate::delivery::guard::{BLOCKED, Listener, PUBLIC, Scene};

/// Set for the run inside.
const INSIDE: &str = "LANDFALL_TEST_INSIDE";
const NAME: &str = "rebinding.example.com";
/// Makes this a network without a way out, in which all names are asked for at 127.0.0.1, and goes on as the test.
const ENTER: &str = "ip link set lo up && mount --bind \"$1/resolv.conf\" /etc/resolv.conf && \
                     mount --bind \"$1/nsswitch.conf\" /etc/nsswitch.conf && exec \"$2\" --exact --nocapture \"$3\"";
const THIS: &str = "delivery::dns::a_name_server_that_rebinds_a_name_leads_to_no_machine_inside";
const A: [u8; 2] = [0, 1];

/// A name server that answers questions for an IPv4 address with `PUBLIC` once and then with 127.0.0.1. It has no IPv6
/// addresses.
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    fn start(port: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&asked);
        // It ends with the test's process.
        std::thread::spawn(move || {
            let mut question = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut question).unwrap();
                socket.send_to(&answer(&question[..length], &log), from).unwrap();
            }
        });
        NameServer { address, asked }
    }
}

/// RFC 1035, 4.1: a header of 12 bytes, the name in parts that each begin with their length, its type and its class.
fn answer(question: &[u8], asked: &Mutex<Vec<String>>) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut at = 12;
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        parts.push(String::from_utf8(question[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    let mut asked = asked.lock().unwrap();
    let address = if asked.is_empty() { PUBLIC.parse().unwrap() } else { Ipv4Addr::LOCALHOST };
    let is_address = question[at + 1..at + 3] == A;
    if is_address {
        asked.push(parts.join("."));
    }
    // An answer, without errors, to one question; whatever else was asked along is left out.
    let mut answer = [&question[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]].concat();
    answer.extend(&question[12..at + 5]);
    if is_address {
        // The name that stands at 12, of type A and class IN, good for 0 s, in 4 bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

/// Asks the name server as the system would, for a machine whose kernel lets nobody change whom the system asks.
fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<IpAddr>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for part in name.split('.') {
        question.push(u8::try_from(part.len()).unwrap());
        question.extend(part.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send_to(&question, server)?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    let address: [u8; 4] = answer[length - 4..length].try_into().unwrap();
    Ok(vec![IpAddr::from(address)])
}

#[tokio::test]
async fn a_name_server_that_rebinds_a_name_leads_to_no_machine_inside() {
    #[expect(clippy::disallowed_methods, reason = "how the test tells itself that it runs inside")]
    let is_inside = std::env::var(INSIDE).is_ok();
    if is_inside {
        return rebind(NameServer::start(53), Resolver::system()).await;
    }
    if run_inside() {
        return;
    }
    println!("this kernel grants no namespaces: the system's own resolver was not asked");
    let server = NameServer::start(0);
    let address = server.address;
    rebind(server, Resolver::new(move |name| ask(address, name))).await;
}

/// Whether the kernel let the test run inside, where it must have passed.
fn run_inside() -> bool {
    let unshare = |command: &mut Command| {
        command.args(["--user", "--map-root-user", "--mount", "--net"]);
    };
    let mut may = Command::new("unshare");
    unshare(&mut may);
    if !may.args(["ip", "link", "set", "lo", "up"]).output().is_ok_and(|output| output.status.success()) {
        return false;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    std::fs::write(folder.path().join("nsswitch.conf"), "hosts: dns\n").unwrap();
    let mut inside = Command::new("unshare");
    unshare(&mut inside);
    inside.args(["sh", "-c", ENTER, "sh"]).arg(folder.path());
    inside.arg(std::env::current_exe().unwrap()).arg(THIS).env(INSIDE, "1");
    let output = inside.output().unwrap();
    let [said, complaint] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && said.contains("1 passed"), "inside: {said}\n{complaint}");
    true
}

async fn rebind(server: NameServer, resolver: Resolver) {
    let inside = Listener::start().await;
    let url = format!("https://{NAME}:{}/", inside.address.port());
    let scene = Scene::new(resolver, &url, "").await;
    let asked = || server.asked.lock().unwrap().clone();
    assert_eq!(asked(), [NAME], "it was looked at when it was registered");
    let error = scene.error().await;
    assert!(error.contains(BLOCKED), "{error}");
    assert_eq!(asked(), [NAME; 2], "it was looked at when it was connected to, and once only");
    assert!(inside.responses().is_empty(), "somebody inside was spoken to");
}
