//! A payment on a real node, whose sponsor's key is in the token. The signer is behind its socket, as `landfall signer serve`
//! has it. What was paid is read from the node.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use landfall_chain::{Address, Carried, Carrier, Intent, SignRequest, Signed, SignedIntent, Signer, TxId, U256};
use landfall_signer::{Remote, Server};
use nix::unistd::Uid;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::{TOKEN, World, intent, of_intent, sponsor, wallet};
use crate::{alone, open, variable};

const ANVIL: &str = "LANDFALL_ANVIL";
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// OpenZeppelin's token with EIP-3009, whose EIP-712 name is that of the world's route.
const COMPILED: &str = include_str!("../../../nodes/contracts/Token.json");
/// `mint(address,uint256)`, and `balanceOf(address)`
const MINT: &str = "40c10f19";
const BALANCE_OF: &str = "70a08231";
const ETHER: &str = "0xde0b6b3a7640000";

/// A private anvil of the world's chain; it ends with its owner.
struct Node {
    process: Child,
    /// Host and port.
    address: String,
}

impl Node {
    fn start(folder: &Path) -> Self {
        let program = variable(ANVIL).unwrap_or_else(|| panic!("{ANVIL} is not set: `scripts/test token` sets it"));
        let log = folder.join("anvil.log");
        let output = File::create(&log).unwrap();
        let mut command = Command::new(program);
        command.args(["--port", "0", "--chain-id", "8453", "--no-mining"]).stdin(Stdio::null());
        let process = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let (mut node, begun) = (Node { process, address: String::new() }, Instant::now());
        while node.address.is_empty() {
            let said = fs::read_to_string(&log).unwrap();
            assert!(begun.elapsed() < START_TIME_MAX, "{said}");
            std::thread::sleep(Duration::from_millis(20));
            // A line that is still being written has no end yet.
            let mut whole = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            let listening = whole.find_map(|line| line.strip_prefix("Listening on "));
            node.address = listening.unwrap_or_default().trim().to_owned();
        }
        node
    }

    fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        // Of HTTP 1.0, where the end of the connection is the end of the answer.
        let length = body.len();
        let head = format!("POST / HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method}: {answer}"));
        let mut body: Value = serde_json::from_str(body).unwrap();
        assert!(body["error"].is_null(), "{method}: {body}");
        body["result"].take()
    }

    /// What `owner` has of the token.
    fn balance(&self, owner: &Address) -> U256 {
        let call = json!({ "to": TOKEN.to_string(), "data": call(BALANCE_OF, &[word(owner)]) });
        quantity(&self.rpc("eth_call", json!([call, "latest"])))
    }

    fn mine(&self) {
        self.rpc("evm_mine", json!([]));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn word(address: &Address) -> U256 {
    U256::from_be_slice(address.as_bytes())
}

fn call(selector: &str, arguments: &[U256]) -> String {
    let words: String = arguments.iter().map(|argument| hex::encode(argument.to_be_bytes::<32>())).collect();
    format!("0x{selector}{words}")
}

fn quantity(value: &Value) -> U256 {
    U256::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

async fn signed(signer: &Remote, request: SignRequest) -> Signed {
    signer.sign(&[request]).await.unwrap().pop().unwrap().unwrap()
}

#[test]
fn a_payer_without_gas_is_paid_for_on_a_real_node_by_a_sponsor_whose_key_is_in_the_token() {
    alone("paying::a_payer_without_gas_is_paid_for_on_a_real_node_by_a_sponsor_whose_key_is_in_the_token", async {
        let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
        let node = Node::start(folder.path());
        // The token compares deadlines with the time of the chain.
        let newest = node.rpc("eth_getBlockByNumber", json!(["latest", false]));
        let now = quantity(&newest["timestamp"]).to::<u64>();
        world.now.store(now, Ordering::Relaxed);
        let socket = folder.path().join("signer.sock");
        let server = Server::bind(&socket, open(&world), vec![Uid::current().as_raw()]).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move { server.run().await });
        let signer = Remote::at(&socket);
        let [payer, carries] = signer.addresses(&[wallet(), sponsor()]).await.unwrap()[..] else { panic!("two") };

        let intent = Intent { deadline: now + 300, ..intent(1) };
        assert_eq!(payer, intent.payer);
        let compiled: Value = serde_json::from_str(COMPILED).unwrap();
        node.rpc("anvil_setCode", json!([TOKEN.to_string(), compiled["runtime"]]));
        node.rpc("anvil_setBalance", json!([carries.to_string(), ETHER]));
        let somebody = node.rpc("eth_accounts", json!([]))[0].clone();
        let mint = call(MINT, &[word(&payer), intent.amount]);
        let minted = json!({ "from": somebody, "to": TOKEN.to_string(), "data": mint, "gas": "0x30d40" });
        node.rpc("eth_sendTransaction", json!([minted]));
        node.mine();
        assert_eq!(node.balance(&payer), intent.amount);

        let signature = signed(&signer, of_intent(intent.clone())).await.bytes;
        let carried =
            Carried::Payment { signed: SignedIntent { intent: intent.clone(), signature }, authorization: None };
        let (nonce, gas_limit, max_fee, tip) = (0, 200_000, 10_000_000_000, 1_000_000_000);
        let carrier = Carrier { sponsor: carries, carried, nonce, gas_limit, max_fee, tip };
        let Signed { bytes, tx, .. } = signed(&signer, SignRequest::Carrier { path: sponsor(), carrier }).await;
        let hash = node.rpc("eth_sendRawTransaction", json!([hex::encode_prefixed(bytes)]));
        let Some(TxId::Evm(id)) = tx else { panic!("{tx:?}") };
        assert_eq!(hash, json!(hex::encode_prefixed(id)));
        node.mine();
        let receipt = node.rpc("eth_getTransactionReceipt", json!([hash]));
        let from = json!(carries.to_string().to_lowercase());
        assert_eq!((&receipt["status"], &receipt["from"]), (&json!("0x1"), &from), "{receipt}");
        assert_eq!([payer, intent.destination].map(|of| node.balance(&of)), [U256::ZERO, intent.amount]);
        serving.shutdown().await;
    });
}
