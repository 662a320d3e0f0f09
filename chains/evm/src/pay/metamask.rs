//! MetaMask's delegation framework 1.3.0 as a delegate: a wallet signs a delegation that anybody may redeem, once, before
//! its deadline, for exactly one payment.
//!
//! What its contracts do, by their sources (MetaMask/delegation-framework, `src/`):
//! - `DelegationManager.redeemDelegations` checks the signature, runs `beforeHook` of each caveat, and then makes the wallet
//!   execute. All of it is one call: whatever reverts undoes the logs of all of it.
//! - `IdEnforcer.beforeHook` takes an id once for each manager (`msg.sender`) and wallet. It is public, so a `UsedId` counts
//!   only when its sender is the listed manager.
//! - `TimestampEnforcer.beforeHook` requires `block.timestamp < deadline`, and takes 0 as no deadline.
//! - `ExactExecutionEnforcer.beforeHook` takes one call, in the mode that reverts on failure, and no other call than the
//!   terms. `EIP7702DeleGatorCore.executeFromExecutor` then reverts when the call does. A wallet without code reverts too,
//!   since no list of results comes back.
//! - behind all executions the manager logs each delegation whole (`RedeemedDelegation`): what was executed is read there.
//!
//! So a `UsedId` of the manager that stands in a receipt is an execution that succeeded, of exactly what the delegation
//! names. That rests on the wallet's code, which only the wallet's key sets.

use alloy::primitives::{B256, b256, keccak256};
use landfall_chain::{AssetId, Delegate, Intent, U256};

use crate::legs::address_of;
use crate::pay::abi::{Part, Written, bytes, list, tuple};
use crate::pay::delegate::Code;
use crate::pay::{PayError, address_word, chain_id, evm, hashed, number_word};
use crate::wire::WireLog;

const DOMAIN: &str = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const DELEGATION: &str = "Delegation(address delegate,address delegator,bytes32 authority,Caveat[] caveats,uint256 salt)\
                          Caveat(address enforcer,bytes terms)";
const CAVEAT: &str = "Caveat(address enforcer,bytes terms)";
/// `DelegationManager.NAME` and `DOMAIN_VERSION`.
const NAME: &str = "DelegationManager";
const VERSION: &str = "1";
/// `ANY_DELEGATE`: whoever sends it.
const ANYBODY: [u8; 20] = {
    let mut address = [0; 20];
    address[18] = 0x0a;
    address[19] = 0x11;
    address
};
/// `ROOT_AUTHORITY`: the wallet's own.
const ROOT: [u8; 32] = [0xff; 32];
/// One call, and what fails reverts (ERC-7579).
const MODE: [u8; 32] = [0; 32];

/// `redeemDelegations(bytes[],bytes32[],bytes[])`
const REDEEM: [u8; 4] = [0xce, 0xf6, 0xd2, 0x09];
/// `getIsUsed(address,address,uint256)`
const IS_USED: [u8; 4] = [0x59, 0x5d, 0xce, 0x48];
/// `paused()`
const PAUSED: [u8; 4] = [0x5c, 0x97, 0x5a, 0xbb];
/// `transfer(address,uint256)` of a token
const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];

/// keccak256("UsedId(address,address,address,uint256)")
pub(crate) const USED_ID: B256 = b256!("6286af1aaf28b34723a53056e5608eabb40c823d1ce093ff371cf08c502431d6");
/// keccak256("RedeemedDelegation(address,address,(address,address,bytes32,(address,bytes,bytes)[],uint256,bytes))")
pub(crate) const REDEEMED: B256 = b256!("40dadaa36c6c2e3d7317e24757451ffb2d603d875f0ad5e92c5dd156573b1873");

/// A delegation with more caveats is none of ours.
const CAVEATS_MAX: usize = 16;

/// EntryPoint 0.7 (ERC-4337), to which the implementation trusts the wallet too. The same address on every chain, whose
/// code follows from it (CREATE2).
const ENTRY_POINT: [u8; 20] = alloy::hex!("0000000071727De22E5E9d8BAf0edAc6f37da032");
/// Where the code of the implementation has the manager's address and the entry point's, and what else differs by chain
/// and place: its own address and its EIP-712 domain.
const MANAGER_AT: [usize; 6] = [1402, 2467, 2598, 2823, 3826, 4185];
const ENTRY_POINT_AT: [usize; 14] =
    [1137, 2039, 2242, 2368, 2724, 2970, 3058, 3188, 3302, 3600, 3727, 4117, 4813, 5582];
const OWN_AT: [usize; 14] = [1561, 1850, 1942, 2111, 2886, 3495, 5665, 5759, 5801, 5843, 5924, 5964, 6451, 6496];
/// Where the manager's code has its own address and its EIP-712 domain.
const MANAGER_OWN_AT: [usize; 7] = [6725, 6767, 6809, 6890, 6930, 7085, 7130];

/// The hashes of the codes, of npm's `@metamask/delegation-abis` 2.0.0: without metadata, with zeros for what differs.
const IMPLEMENTATION_HASH: B256 = b256!("a649eb21091ab0c386a630db8db8bbee41cc86e48a02490522d6658fc5f812b4");
const MANAGER_HASH: B256 = b256!("621d6b3dadf10ca8fe65769fea36ae9de64abc6b810bed84bc8744e1135b36d2");
const IDS_HASH: B256 = b256!("9cf86701adeeb437e01f1cb58235bd13d52932a71d44e31cf07e2b82963eaeec");
const TIMES_HASH: B256 = b256!("5ac08f16e927566a826f9ac2e03314cd692403e7dbb94b3d66d05209564ce892");
const EXECUTIONS_HASH: B256 = b256!("14b311577c4d917a35d0cb3c76464c2ea6da6eb2377b761b3b6bdf14ecc0fa45");

/// The contracts, as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Metamask {
    implementation: [u8; 20],
    pub(super) manager: [u8; 20],
    pub(super) ids: [u8; 20],
    times: [u8; 20],
    executions: [u8; 20],
}

/// An enforcer with its terms.
type Caveat = ([u8; 20], Vec<u8>);

/// What a wallet is made to do: one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Execution {
    pub(super) target: [u8; 20],
    pub(super) value: U256,
    pub(super) data: Vec<u8>,
}

impl Metamask {
    pub(super) fn of(delegate: &Delegate) -> Result<Self, PayError> {
        let Delegate::Metamask { implementation, manager, ids, times, executions } = delegate else {
            return Err(PayError::OtherDelegate(delegate.name()));
        };
        Ok(Metamask {
            implementation: evm(implementation)?,
            manager: evm(manager)?,
            ids: evm(ids)?,
            times: evm(times)?,
            executions: evm(executions)?,
        })
    }

    /// What the payer's key signs (EIP-712).
    pub(super) fn digest(&self, intent: &Intent) -> Result<[u8; 32], PayError> {
        let domain = hashed(&[
            keccak256(DOMAIN).0,
            keccak256(NAME).0,
            keccak256(VERSION).0,
            number_word(chain_id(&intent.chain_ref)?),
            address_word(self.manager),
        ]);
        let caveat =
            |(enforcer, terms): Caveat| hashed(&[keccak256(CAVEAT).0, address_word(enforcer), keccak256(terms).0]);
        let caveats: Vec<[u8; 32]> = self.caveats(intent)?.into_iter().map(caveat).collect();
        let delegation = hashed(&[
            keccak256(DELEGATION).0,
            address_word(ANYBODY),
            address_word(evm(&intent.payer)?),
            ROOT,
            hashed(&caveats),
            number_word(0),
        ]);
        let mut message = vec![0x19, 0x01];
        message.extend([domain, delegation].as_flattened());
        Ok(keccak256(message).0)
    }

    /// The call of the manager that anybody may make with the payer's signature.
    pub(super) fn call_data(&self, intent: &Intent, signature: &[u8]) -> Result<Vec<u8>, PayError> {
        let caveat = |(enforcer, terms): Caveat| {
            let parts = vec![Part::Word(address_word(enforcer)), behind(&terms), behind(&[])];
            Part::Behind(tuple(parts))
        };
        let caveats = self.caveats(intent)?.into_iter().map(caveat).collect();
        let delegation = tuple(vec![
            Part::Word(address_word(ANYBODY)),
            Part::Word(address_word(evm(&intent.payer)?)),
            Part::Word(ROOT),
            Part::Behind(list(caveats)),
            Part::Word(number_word(0)),
            behind(signature),
        ]);
        let context = tuple(vec![Part::Behind(list(vec![Part::Behind(delegation)]))]);
        let execution = Execution::of(intent)?.packed();
        let mut data = REDEEM.to_vec();
        data.extend(tuple(vec![
            Part::Behind(list(vec![behind(&context)])),
            Part::Behind(list(vec![Part::Word(MODE)])),
            Part::Behind(list(vec![behind(&execution)])),
        ]));
        Ok(data)
    }

    /// Asks the enforcer of ids whether the intent's is used.
    pub(super) fn state_data(&self, intent: &Intent) -> Result<Vec<u8>, PayError> {
        let words = [address_word(self.manager), address_word(evm(&intent.payer)?), intent.key().evm_nonce()];
        let mut data = IS_USED.to_vec();
        data.extend(words.as_flattened());
        Ok(data)
    }

    /// Asks the manager whether its owner has paused it.
    pub(super) fn paused_data() -> Vec<u8> {
        PAUSED.to_vec()
    }

    /// The contracts and their codes.
    pub(super) fn codes(&self) -> Vec<Code> {
        let (manager, entry_point) = (address_word(self.manager), address_word(ENTRY_POINT));
        let trusted = MANAGER_AT.iter().map(|at| (*at, manager));
        let trusted = trusted.chain(ENTRY_POINT_AT.iter().map(|at| (*at, entry_point))).collect();
        let code =
            |name, address, hash| Code { name, address, has_metadata: true, trusted: Vec::new(), own: &[], hash };
        vec![
            Code { trusted, own: &OWN_AT, ..code("implementation", self.implementation, IMPLEMENTATION_HASH) },
            Code { own: &MANAGER_OWN_AT, ..code("manager", self.manager, MANAGER_HASH) },
            code("ids", self.ids, IDS_HASH),
            code("times", self.times, TIMES_HASH),
            code("executions", self.executions, EXECUTIONS_HASH),
        ]
    }

    /// The wallet and the id of a use that the listed manager made.
    pub(super) fn used(&self, log: &WireLog<'_>) -> Option<([u8; 20], [u8; 32])> {
        let [USED_ID, sender, wallet, _] = log.topics.as_slice() else { return None };
        let is_ours = log.address == self.ids && address_of(sender)? == self.manager;
        is_ours.then_some((address_of(wallet)?, log.data.to_array::<32>()?))
    }

    /// A wallet, an id, and what the wallet was made to do under it.
    pub(super) fn redeemed(&self, log: &WireLog<'_>) -> Option<([u8; 20], [u8; 32], Execution)> {
        let [REDEEMED, wallet, _] = log.topics.as_slice() else { return None };
        if log.address != self.manager {
            return None;
        }
        let wallet = address_of(wallet)?;
        let mut data = Vec::new();
        log.data.append_to(&mut data);
        let delegation = Written(&data).behind(0)?;
        // What others made of it stands in logs of its own; this is the one that the wallet signed.
        if delegation.word(1)? != address_word(wallet) || delegation.word(2)? != ROOT {
            return None;
        }
        let (count, caveats) = delegation.behind(3)?.items(CAVEATS_MAX)?;
        let caveat = |at| -> Option<([u8; 32], &[u8])> {
            let caveat = caveats.behind(at)?;
            Some((caveat.word(0)?, caveat.bytes(1)?))
        };
        let caveats = (0..count).map(caveat).collect::<Option<Vec<_>>>()?;
        let terms_of = |enforcer| caveats.iter().find(|(of, _)| *of == address_word(enforcer)).map(|(_, terms)| *terms);
        let (id, execution) = (terms_of(self.ids)?.try_into().ok()?, Execution::read(terms_of(self.executions)?)?);
        Some((wallet, id, execution))
    }

    /// The enforcers with their terms, in this order.
    fn caveats(&self, intent: &Intent) -> Result<[Caveat; 3], PayError> {
        // The enforcer reads 0 as no deadline.
        let deadline = Some(intent.deadline).filter(|deadline| *deadline > 0).ok_or(PayError::NoDeadline)?;
        Ok([
            (self.ids, intent.key().evm_nonce().to_vec()),
            // Its upper half is a time that must have passed: none.
            (self.times, number_word(deadline).to_vec()),
            (self.executions, Execution::of(intent)?.packed()),
        ])
    }
}

impl Execution {
    /// The call that pays.
    pub(super) fn of(intent: &Intent) -> Result<Self, PayError> {
        let destination = evm(&intent.destination)?;
        Ok(match &intent.asset {
            AssetId::Native => Execution { target: destination, value: intent.amount, data: Vec::new() },
            AssetId::Token(token) => {
                let mut data = TRANSFER.to_vec();
                data.extend([address_word(destination), intent.amount.to_be_bytes()].as_flattened());
                Execution { target: evm(token)?, value: U256::ZERO, data }
            }
        })
    }

    /// The asset, who is paid, and how much; `None` where it is another call.
    pub(super) fn payment(&self) -> Option<(Option<[u8; 20]>, [u8; 20], U256)> {
        if self.data.is_empty() {
            return Some((None, self.target, self.value));
        }
        let arguments = self.data.strip_prefix(&TRANSFER).filter(|it| it.len() == 64 && self.value.is_zero())?;
        let (recipient, amount) = arguments.split_first_chunk::<32>()?;
        let amount = U256::from_be_bytes::<32>(amount.try_into().ok()?);
        Some((Some(self.target), address_of(&B256::from(*recipient))?, amount))
    }

    /// `abi.encodePacked(target, value, data)`.
    fn packed(&self) -> Vec<u8> {
        [self.target.as_slice(), &self.value.to_be_bytes::<32>(), &self.data].concat()
    }

    /// Reads [`Execution::packed`].
    fn read(packed: &[u8]) -> Option<Self> {
        let (target, rest) = packed.split_first_chunk::<20>()?;
        let (value, data) = rest.split_first_chunk::<32>()?;
        Some(Execution { target: *target, value: U256::from_be_bytes(*value), data: data.to_vec() })
    }
}

fn behind(of: &[u8]) -> Part {
    Part::Behind(bytes(of))
}

#[cfg(test)]
mod tests {
    use alloy::hex;
    use alloy::primitives::Signature;
    use alloy::signers::k256::ecdsa::SigningKey;
    use landfall_chain::{Address, Authorization, Carried, Carrier, Chain, Route, SignedAuthorization, SignedIntent};
    use serde_json::Value;

    use super::*;
    use crate::pay::{authorization_digest, carrier, intent_digest, signer_of};

    /// What MetaMask's own encoder and viem make of the same payment, authorization and transaction: see
    /// `testdata/SOURCES.md`.
    fn fixture() -> Value {
        serde_json::from_str(include_str!("../../testdata/delegation.json")).unwrap()
    }

    fn bytes_of(value: &Value) -> Vec<u8> {
        hex::decode(value.as_str().unwrap()).unwrap()
    }

    fn key(byte: u8) -> SigningKey {
        SigningKey::from_slice(&[byte; 32]).unwrap()
    }

    fn address(key: &SigningKey) -> Address {
        Address::Evm(alloy::primitives::Address::from_private_key(key).into())
    }

    fn signed_by(key: &SigningKey, digest: &[u8; 32]) -> Vec<u8> {
        Signature::from(key.sign_prehash_recoverable(digest).unwrap()).as_bytes().to_vec()
    }

    fn intent(asset: AssetId) -> Intent {
        Intent {
            transfer_id: hex!("bac872c096568527b18ffc8f02a10278"),
            chain_ref: "eip155:84532".to_owned(),
            route: Route::Delegate(crate::network(Chain::BaseSepolia).unwrap().delegates[0]),
            asset,
            payer: address(&key(5)),
            destination: Address::Evm([2; 20]),
            amount: U256::from(5),
            deadline: 1_800_000_000,
        }
    }

    #[test]
    fn a_payment_is_signed_and_carried_in_the_bytes_of_metamasks_own_encoder() {
        let assets = [AssetId::Native, AssetId::Token(Address::Evm([3; 20]))];
        for (case, asset) in fixture()["cases"].as_array().unwrap().iter().zip(assets) {
            let intent = intent(asset);
            let digest = intent_digest(&intent).unwrap();
            assert_eq!(digest.to_vec(), bytes_of(&case["digest"]), "{asset}");
            let signature = signed_by(&key(5), &digest);
            assert_eq!(signature, bytes_of(&case["signature"]));
            let Route::Delegate(delegate) = &intent.route else { panic!("{intent:?}") };
            let metamask = Metamask::of(delegate).unwrap();
            assert_eq!(metamask.call_data(&intent, &signature).unwrap(), bytes_of(&case["data"]), "{asset}");
            let authorization = Authorization {
                chain_ref: intent.chain_ref.clone(),
                wallet: intent.payer,
                implementation: delegate.implementation(),
                nonce: 3,
            };
            let digest = authorization_digest(&authorization).unwrap();
            assert_eq!(digest.to_vec(), bytes_of(&case["authorization_digest"]));
            let of_wallet = signed_by(&key(5), &digest);
            assert_eq!(of_wallet, bytes_of(&case["authorization"]));
            let authorization = SignedAuthorization { authorization, signature: of_wallet };
            for (kind, authorization) in [("type2", None), ("type4", Some(authorization))] {
                let signed = SignedIntent { intent: intent.clone(), signature: signature.clone() };
                let unsigned = carrier(&Carrier {
                    sponsor: address(&key(6)),
                    carried: Carried::Payment { signed, authorization: authorization.map(Box::new) },
                    nonce: 7,
                    gas_limit: 91_234,
                    max_fee: 3_000_000_000,
                    tip: 1_000_000,
                })
                .unwrap();
                let of_sponsor: [u8; 65] = signed_by(&key(6), &unsigned.digest()).try_into().unwrap();
                assert_eq!(signer_of(&unsigned.digest(), &of_sponsor), Some(address(&key(6))));
                assert_eq!(unsigned.signed(&of_sponsor).0, bytes_of(&case[kind]), "{asset} {kind}");
            }
        }
    }

    #[test]
    fn what_has_no_deadline_or_no_chain_is_never_encoded() {
        let endless = Intent { deadline: 0, ..intent(AssetId::Native) };
        assert_eq!(intent_digest(&endless), Err(PayError::NoDeadline));
        let Address::Evm(wallet) = address(&key(5)) else { panic!() };
        let (wallet, implementation) = (Address::Evm(wallet), Address::Evm([9; 20]));
        let of = |chain_ref: &str| {
            let chain_ref = chain_ref.to_owned();
            authorization_digest(&Authorization { chain_ref, wallet, implementation, nonce: 0 })
        };
        assert_eq!(of("eip155:0"), Err(PayError::EveryChain));
        assert!(of("eip155:1").is_ok());
    }

    #[test]
    fn each_thing_that_is_paid_changes_what_is_signed() {
        let good = intent(AssetId::Native);
        let other = Address::Evm([9; 20]);
        let delegates = (0..4).map(|at| {
            let mut contracts = [[1; 20], [2; 20], [3; 20], [4; 20]].map(Address::Evm);
            contracts[at] = other;
            let [manager, ids, times, executions] = contracts;
            let implementation = Address::Evm([5; 20]);
            let delegate = Delegate::Metamask { implementation, manager, ids, times, executions };
            Intent { route: Route::Delegate(delegate), ..good.clone() }
        });
        let others = [
            Intent { transfer_id: [8; 16], ..good.clone() },
            Intent { chain_ref: "eip155:8453".to_owned(), ..good.clone() },
            Intent { asset: AssetId::Token(other), ..good.clone() },
            Intent { payer: other, ..good.clone() },
            Intent { destination: other, ..good.clone() },
            Intent { amount: U256::from(6), ..good.clone() },
            Intent { deadline: 1_800_000_001, ..good.clone() },
        ];
        let all: Vec<Intent> = others.into_iter().chain(delegates).chain([good.clone()]).collect();
        let mut digests: Vec<_> = all.iter().map(|intent| intent_digest(intent).unwrap()).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn the_selectors_and_topics_are_those_of_the_contracts() {
        let functions = [
            ("redeemDelegations(bytes[],bytes32[],bytes[])", REDEEM),
            ("getIsUsed(address,address,uint256)", IS_USED),
            ("paused()", PAUSED),
            ("transfer(address,uint256)", TRANSFER),
        ];
        for (function, selector) in functions {
            assert_eq!(keccak256(function)[..4], selector, "{function}");
        }
        assert_eq!(USED_ID, keccak256("UsedId(address,address,address,uint256)"));
        let delegation = "(address,address,bytes32,(address,bytes,bytes)[],uint256,bytes)";
        assert_eq!(REDEEMED, keccak256(format!("RedeemedDelegation(address,address,{delegation})")));
    }
}
