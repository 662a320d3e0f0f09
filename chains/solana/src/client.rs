//! The light calls, by solana-client: its `RpcClient` asks, over one of our endpoints.
//!
//! Promises: the pool keeps health, limits, secrets and time of every call, because the client's transport is the
//! endpoint. The client knows the names of the calls and the form of their answers. A failure is returned as this
//! crate's own error, whatever the client makes of it. Nothing else names solana-client, so another version of it is a
//! change here. These do not go through the client:
//! - blocks, which are megabytes and are read by our own structs; their headers, which the same method reports;
//!   versions of transactions
//! - what is asked aside, so that blocks never wait for it (`getMultipleAccounts`, `getAccountInfo`, `getTransaction`)
//! - lists of signatures, a thousand to a page and read from the text as it came, and where they begin
//!   (`getSignaturesForAddress`, `getFirstAvailableBlock`)

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_chain::{BlockHash, BlockRef, TxId};
use landfall_rpc::{Call, NodeError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use solana_client::client_error::{ClientError, ClientErrorKind, Result as ClientResult};
use solana_client::nonblocking::rpc_client::RpcClient;
use solana_client::rpc_client::RpcClientConfig;
use solana_client::rpc_request::RpcRequest;
use solana_client::rpc_response::{Response, RpcBlockhash};
use solana_client::rpc_sender::{RpcSender, RpcTransportStats};

use crate::base58;
use crate::calls::failed;
use crate::dialect::Endpoint;
use crate::error::SolanaError;

/// MinContextSlotNotReached.
const BEHIND: i64 = -32_016;

/// One endpoint, asked by solana-client.
pub(crate) struct Light<'e> {
    endpoint: &'e Endpoint,
    client: RpcClient,
    failure: Arc<Mutex<Option<Failure>>>,
}

/// What an endpoint reports of a newest block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Newest {
    Block(BlockRef),
    /// It has not reached the slot that it reported before: another node behind the same address answers, and lags.
    Behind,
}

/// Why a call failed.
enum Failure {
    Refused(NodeError),
    Failed(SolanaError),
}

/// The client's transport.
struct Sender {
    endpoint: Arc<Endpoint>,
    failure: Arc<Mutex<Option<Failure>>>,
}

#[derive(Deserialize)]
struct Status {
    slot: u64,
}

impl<'e> Light<'e> {
    pub(crate) fn of(endpoint: &'e Endpoint) -> Self {
        let failure = Arc::default();
        let sender = Sender { endpoint: endpoint.share(), failure: Arc::clone(&failure) };
        Light { endpoint, client: RpcClient::new_sender(sender, RpcClientConfig::default()), failure }
    }

    /// The genesis hash, as the node writes it.
    pub(crate) async fn genesis(&self) -> Result<String, SolanaError> {
        self.ask(RpcRequest::GetGenesisHash, json!([])).await
    }

    /// The newest block at `commitment`, not below `reached`.
    pub(crate) async fn newest(&self, commitment: &str, reached: Option<u64>) -> Result<Newest, SolanaError> {
        let request = RpcRequest::GetLatestBlockhash;
        let how = match reached {
            Some(slot) => json!([{ "commitment": commitment, "minContextSlot": slot }]),
            None => json!([{ "commitment": commitment }]),
        };
        match self.send::<Response<RpcBlockhash>>(request, how).await {
            Ok(Response { context, value }) => {
                let hash = base58::key(&value.blockhash).map(BlockHash);
                let unusable = || self.endpoint.unusable(request.as_str(), "its blockhash is not 32 bytes in base58");
                Ok(Newest::Block(BlockRef { number: context.slot, hash: hash.ok_or_else(unusable)? }))
            }
            Err(Failure::Refused(NodeError { code: BEHIND, .. })) if reached.is_some() => Ok(Newest::Behind),
            Err(failure) => Err(self.error(request, failure)),
        }
    }

    /// The slots of `range`, inclusive, that hold a block at `commitment`, from a node that has reached `reached`.
    pub(crate) async fn slots(
        &self,
        range: &RangeInclusive<u64>,
        commitment: &str,
        reached: Option<u64>,
    ) -> Result<Vec<u64>, SolanaError> {
        let (first, last) = (*range.start(), *range.end());
        let (request, mut how) = (RpcRequest::GetBlocks, json!({ "commitment": commitment }));
        if let Some(slot) = reached {
            how["minContextSlot"] = json!(slot);
        }
        self.send(request, json!([first, last, how])).await.map_err(|failure| match failure {
            Failure::Refused(error) if error.code == BEHIND && reached.is_some() => {
                self.endpoint.lacks(format!("does not list the slots up to {last} yet: {error}"))
            }
            failure => self.error(request, failure),
        })
    }

    /// The slot that the endpoint says a transaction is in. Why it failed is not read: the chain may have errors that
    /// this version does not know.
    pub(crate) async fn slot_of(&self, tx: &TxId) -> Result<Option<u64>, SolanaError> {
        let how = json!([[tx.to_string()], { "searchTransactionHistory": true }]);
        let statuses: Response<Vec<Option<Status>>> = self.ask(RpcRequest::GetSignatureStatuses, how).await?;
        Ok(statuses.value.into_iter().next().flatten().map(|status| status.slot))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RpcRequest, params: Value) -> Result<T, SolanaError> {
        self.send(request, params).await.map_err(|failure| self.error(request, failure))
    }

    async fn send<T: DeserializeOwned>(&self, request: RpcRequest, params: Value) -> Result<T, Failure> {
        let sent: ClientResult<T> = self.client.send(request, params).await;
        sent.map_err(|error| {
            let ours = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Nothing of ours failed: the answer came, and is not what it should be.
            ours.unwrap_or_else(|| Failure::Failed(self.endpoint.unusable(request.as_str(), &error.to_string())))
        })
    }

    /// Whatever the code, it is a failure of the endpoint (no code in `reaction` says otherwise): every node has what
    /// a light call asks for.
    fn error(&self, request: RpcRequest, failure: Failure) -> SolanaError {
        match failure {
            Failure::Failed(error) => error,
            Failure::Refused(error) => failed(self.endpoint, request.as_str(), &error),
        }
    }
}

impl Sender {
    async fn exchange(&self, request: RpcRequest, params: Value) -> Result<Value, Failure> {
        let call = Call { method: request.as_str(), params };
        let answers = self.endpoint.ask(&[call]).await.map_err(Failure::Failed)?;
        let unusable = |reason: &str| Failure::Failed(self.endpoint.unusable(request.as_str(), reason));
        let answer = answers.into_iter().next().ok_or_else(|| unusable("no answer"))?;
        let answer = answer.map_err(Failure::Refused)?;
        serde_json::from_str(answer.get()).map_err(|error| unusable(&error.to_string()))
    }
}

impl RpcSender for Sender {
    // Written as the trait is after its macro has run.
    fn send<'life0, 'async_trait>(
        &'life0 self,
        request: RpcRequest,
        params: Value,
    ) -> Pin<Box<dyn Future<Output = ClientResult<Value>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            self.exchange(request, params).await.map_err(|failure| {
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                let kind = ClientErrorKind::Custom("the endpoint's failure stands beside this".to_owned());
                ClientError::new_with_request(kind, request)
            })
        })
    }

    /// The pool counts; nobody asks here.
    fn get_transport_stats(&self) -> RpcTransportStats {
        RpcTransportStats::default()
    }

    fn url(&self) -> String {
        self.endpoint.id.clone()
    }
}
