//! The signer in a process of its own: answers as the one inside, for the listed users, and is there or away.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use landfall_chain::{Address, KeyPath, SignRequest, Signer, U256};
use landfall_signer::{Remote, ServeError, Server};
use nix::unistd::Uid;
use tokio::task::JoinSet;

use crate::world::{CHAIN, World, carrier, intent, of_intent, sponsor, wallet};

/// A signer that serves this user, until it is stopped.
struct Served(JoinSet<()>);

impl Served {
    fn by(world: &World, uids: Vec<u32>) -> Self {
        Served::at(socket(world), world, uids)
    }

    fn at(path: PathBuf, world: &World, uids: Vec<u32>) -> Self {
        let server = Server::bind(&path, world.open(), uids).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.run().await });
        Served(tasks)
    }

    async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

fn socket(world: &World) -> PathBuf {
    world.dir().join("socket")
}

fn me() -> Vec<u32> {
    vec![Uid::current().as_raw()]
}

#[tokio::test]
async fn it_answers_as_the_signer_inside_of_the_process_does() {
    let world = World::new();
    let paths = [wallet(), sponsor(), KeyPath::of_wallet(landfall_chain::Family::Solana, "alice", "")];
    let inside = world.open();
    let expected = inside.addresses(&paths).await.unwrap();
    let carrier = carrier(&inside, intent(1)).await;
    let other = landfall_chain::Intent { amount: U256::from(1), ..intent(1) };
    let requests = [of_intent(intent(1)), of_intent(other), SignRequest::Carrier { path: sponsor(), carrier }];
    let signed = inside.sign(&requests).await.unwrap();
    assert!(signed[1].is_err());
    let page = inside.journal(CHAIN, 0).await.unwrap();
    assert_eq!((page.newest, page.entries.len()), (2, 2));
    drop(inside);
    let served = Served::by(&world, me());
    let remote = Remote::at(&socket(&world));
    assert_eq!(remote.id(), "");
    assert_eq!(remote.addresses(&paths).await.unwrap(), expected);
    assert_eq!(remote.sign(&requests).await.unwrap(), signed);
    assert_eq!(remote.journal(CHAIN, 0).await.unwrap(), page);
    assert_eq!(remote.id(), world.id);
    let many = vec![of_intent(intent(1)); landfall_chain::SIGN_REQUESTS_MAX];
    assert_eq!(remote.sign(&many).await.unwrap().len(), many.len());
    let too_many = vec![of_intent(intent(1)); landfall_chain::SIGN_REQUESTS_MAX + 1];
    let refused = remote.sign(&too_many).await.unwrap_err().0;
    assert_eq!(refused, "65 requests in one call, at most 64");
    served.stop().await;
    assert!(!socket(&world).exists());
}

#[tokio::test]
async fn it_may_go_away_and_come_back_and_another_one_is_not_used() {
    let world = World::new();
    let remote = Remote::at(&socket(&world));
    let away = remote.addresses(&[wallet()]).await.unwrap_err().0;
    assert!(away.contains("No such file"), "{away}");
    let mut addresses: Vec<Vec<Address>> = Vec::new();
    for _ in 0..2 {
        let served = Served::by(&world, me());
        addresses.push(remote.addresses(&[wallet()]).await.unwrap());
        served.stop().await;
        remote.addresses(&[wallet()]).await.unwrap_err();
    }
    assert_eq!(addresses[0], addresses[1]);
    let another = World::new();
    let served = Served::at(socket(&world), &another, me());
    let refused = remote.addresses(&[wallet()]).await.unwrap_err().0;
    assert!(
        refused.contains(&format!("it is signer {}, and the one before was {}", another.id, world.id)),
        "{refused}"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_user_who_is_not_listed_is_not_answered() {
    let world = World::new();
    let served = Served::by(&world, vec![Uid::current().as_raw() + 1]);
    let refused = Remote::at(&socket(&world)).addresses(&[wallet()]).await.unwrap_err().0;
    assert!(refused.contains("does it serve this user"), "{refused}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_nonsense_or_stands_still_holds_up_nobody() {
    let world = World::new();
    let served = Served::by(&world, me());
    let mut held = Vec::new();
    for bytes in
        [&b""[..], &u32::MAX.to_be_bytes(), &[0, 0, 0, 2, b'{'], b"GET / HTTP/1.1\r\n\r\n", &[0, 0, 0, 2, b'{', b'}']]
    {
        let mut stream = UnixStream::connect(socket(&world)).unwrap();
        stream.write_all(bytes).unwrap();
        held.push(stream);
    }
    let answered = Remote::at(&socket(&world));
    let addresses = tokio::time::timeout(Duration::from_secs(20), answered.addresses(&[wallet()])).await.unwrap();
    assert_eq!(addresses.unwrap().len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn a_socket_that_is_in_use_and_a_file_are_left_alone_and_one_that_is_dead_is_replaced() {
    let world = World::new();
    let served = Served::by(&world, me());
    let path = socket(&world);
    let another = World::new();
    let taken = Server::bind(&path, another.open(), me()).unwrap_err();
    assert!(matches!(taken, ServeError::Taken { what: "another process listens there", .. }), "{taken}");
    served.stop().await;
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a process that died leaves its socket");
    let served = Served::by(&world, me());
    served.stop().await;
    fs::write(&path, "mine").unwrap();
    let taken = Server::bind(&path, another.open(), me()).unwrap_err();
    assert!(matches!(taken, ServeError::Taken { what: "a file is there that is no socket", .. }), "{taken}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}
