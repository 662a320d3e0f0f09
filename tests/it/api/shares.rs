//! What one client may take of the running program, and what is left to others: the real process, on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::{CONFIG, Desk};

/// For what is answered at once; machines that test are busy.
const SOON: Duration = Duration::from_secs(10);
const TRIES_MAX: usize = 5;

/// A running `landfall run`; killed when it is dropped.
struct Program {
    child: Child,
    api: SocketAddr,
    admin: SocketAddr,
    /// What it said up to where it listens.
    said: String,
    _desk: Desk,
}

impl Program {
    /// With further keys of `[api]` and `[admin]`.
    fn start(api: &str, admin: &str) -> Self {
        // Somebody else may have taken the port that was free.
        (0..TRIES_MAX).find_map(|_| Program::started(api, admin)).expect("it starts")
    }

    fn started(api: &str, admin: &str) -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let config = format!("[admin]\nlisten = \"0.0.0.0:{port}\"\n{admin}\n{CONFIG}");
        let desk = Desk::new(&config.replace("[api]\n", &format!("[api]\nlisten = \"127.0.0.1:0\"\n{api}\n")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(desk.path("")).arg("run").env_remove("LANDFALL_LOG");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut lines, mut said) = (BufReader::new(child.stderr.take().unwrap()).lines(), String::new());
        let listening = lines.find_map(|line| {
            let line = line.ok()?;
            said += &format!("{line}\n");
            Some(line.split_once("listening on http://")?.1.split_whitespace().next()?.to_owned())
        });
        // What it says later is read, so that it is never held up by it.
        std::thread::spawn(move || lines.for_each(drop));
        let Some(address) = listening else {
            child.wait().unwrap();
            assert!(said.contains("cannot listen on"), "{said}");
            return None;
        };
        let admin = (Ipv4Addr::LOCALHOST, port).into();
        Some(Program { child, api: address.parse().unwrap(), admin, said, _desk: desk })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a request that is the last on its connection; empty when there is none, or none soon.
fn get(address: SocketAddr, path: &str, host: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    // What came before it broke is what counts.
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn idle_connections_do_not_make_a_supervisor_restart_what_is_well_nor_the_interface_unreachable() {
    let program = Program::start("connections = 64", "");
    for address in [program.admin, program.api] {
        let held: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
        let began = Instant::now();
        for _ in 0..20 {
            let (path, expected) = if address == program.admin { ("/livez", "200") } else { ("/v2/assets", "401") };
            assert_eq!(status(&get(address, path, "localhost")), expected, "{path} beside {} idle ones", held.len());
        }
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[test]
fn what_asks_for_no_key_says_at_the_start_where_others_can_reach_it_and_answers_to_its_own_names() {
    let program = Program::start("", "host = \"ops.example.com\"");
    let port = program.admin.port();
    assert!(
        program
            .said
            .contains(&format!("admin.listen: 0.0.0.0:{port} can be reached from other machines and asks for no key")),
        "{}",
        program.said
    );
    for path in ["/livez", "/readyz", "/status", "/metrics"] {
        for host in ["localhost", "127.0.0.1:1", "ops.example.com:8081"] {
            let answer = get(program.admin, path, host);
            assert_eq!(status(&answer), "200", "{path} {host}: {answer}");
            assert!(answer.contains("\r\nx-content-type-options: nosniff\r\n"), "{answer}");
        }
        let answer = get(program.admin, path, "evil.example");
        assert_eq!(status(&answer), "421", "{path}: {answer}");
        assert!(answer.ends_with("admin.host sets another name\n"), "{answer}");
    }
}
