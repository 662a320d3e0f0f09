//! A token behind the module of its maker: one session at a time, opened again behind each failure.
//!
//! A key of a sponsor is found by its label, `landfall sponsors PATH`. PKCS#11 lets several objects have one label: two
//! private keys of one label are refused. A pair has a random `CKA_ID` of its own, so that what a crash left of a pair
//! belongs to no other.
//!
//! Promises: private keys are made in the token, sensitive and not extractable. What the module says is no verdict on what
//! was asked, but for what only a person can mend.

use std::sync::{Arc, Mutex, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, SessionState, UserType};
use cryptoki::slot::Slot;
use landfall_chain::{KeyPath, Seed};
use rand::TryRng;
use rand::rngs::SysRng;

use crate::TokenError;
use crate::token::{Curve, TokenPlace};

/// `OBJECT IDENTIFIER 1.3.132.0.10` in DER.
const SECP256K1: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a];
/// `PrintableString "edwards25519"` in DER: what PKCS#11 3.0, 2.3.10, names the curve.
const ED25519: [u8; 14] = *b"\x13\x0cedwards25519";
/// The bytes of a point of secp256k1 that is not compressed, and of a key of Ed25519.
const POINT_BYTES: usize = 65;
const ED25519_BYTES: usize = 32;
/// The tag of an `OCTET STRING` in DER. Its length follows, in one byte for all that is shorter than 128.
const OCTET_STRING: u8 = 0x04;

/// A token that is open.
#[derive(Clone, Debug)]
pub struct Token(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: TokenPlace,
    module: Pkcs11,
    link: Mutex<Link>,
}

#[derive(Debug)]
enum Link {
    Open(Session),
    Closed,
    /// The PIN was changed meanwhile.
    Refused(TokenError),
}

/// A key that the token has.
pub(crate) struct Held {
    token: Token,
    label: String,
    curve: Curve,
    private: ObjectHandle,
    public: Vec<u8>,
}

impl Token {
    /// Loads the module, and opens its token. One that does not answer is opened when it does.
    ///
    /// # Errors
    /// There is no such module or token, or the PIN is wrong.
    pub fn open(place: TokenPlace) -> Result<Self, TokenError> {
        let unusable = |error: Error| TokenError::Module { module: place.module.clone(), what: shown(&error) };
        let module = Pkcs11::new(&place.module).map_err(unusable)?;
        match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
            Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
            Err(error) => return Err(unusable(error)),
        }
        let link = match connect(&module, &place) {
            Ok(session) => Link::Open(session),
            // Whatever else runs with it must not wait for it: it is asked again at the next request.
            Err(TokenError::Away { .. }) => Link::Closed,
            Err(error) => return Err(error),
        };
        Ok(Token(Arc::new(Inner { place, module, link: Mutex::new(link) })))
    }

    /// The key of a path.
    pub(crate) fn find(&self, path: &KeyPath, curve: Curve) -> Result<Held, TokenError> {
        let label = label(path);
        let found = self.with(|session| self.find_in(session, &label, curve))?;
        found.ok_or(TokenError::NoKey { key: label })
    }

    /// The key of a path, which is made where there is none.
    pub(crate) fn find_or_make(&self, path: &KeyPath, curve: Curve) -> Result<Held, TokenError> {
        let label = label(path);
        let found = self.with(|session| {
            if let Some(held) = self.find_in(session, &label, curve)? {
                return Ok(Some(held));
            }
            self.make(session, &label, curve)?;
            // Another keystore may have made one, too; of two at the same moment neither need see it.
            self.find_in(session, &label, curve)
        })?;
        found.ok_or(TokenError::NoKey { key: label })
    }

    fn find_in(&self, session: &Session, label: &str, curve: Curve) -> Result<Option<Held>, TokenError> {
        let of_label = Attribute::Label(label.as_bytes().to_vec());
        let found = session.find_objects(&[Attribute::Class(ObjectClass::PRIVATE_KEY), of_label.clone()]);
        let private = match found.map_err(self.away())?[..] {
            [] => return Ok(None),
            [private] => private,
            ref several => return Err(TokenError::SameKey { key: label.to_owned(), count: several.len() }),
        };
        let id = session.get_attributes(private, &[AttributeType::Id]).map_err(self.away())?.pop();
        let Some(id @ Attribute::Id(_)) = id else { return Err(TokenError::Point { key: label.to_owned() }) };
        let found = session.find_objects(&[Attribute::Class(ObjectClass::PUBLIC_KEY), of_label, id]);
        let public = match found.map_err(self.away())?[..] {
            [public] => self.public(session, public, curve)?,
            _ => None,
        };
        let public = public.ok_or_else(|| TokenError::Point { key: label.to_owned() })?;
        Ok(Some(Held { token: self.clone(), label: label.to_owned(), curve, private, public }))
    }

    /// The bytes of a public key, if it is of this curve.
    fn public(&self, session: &Session, key: ObjectHandle, curve: Curve) -> Result<Option<Vec<u8>>, TokenError> {
        let attributes = session.get_attributes(key, &[AttributeType::EcParams, AttributeType::EcPoint]);
        let attributes = attributes.map_err(self.away())?;
        if !attributes.contains(&Attribute::EcParams(params(curve))) {
            return Ok(None);
        }
        let bytes = match curve {
            Curve::Secp256k1 => POINT_BYTES,
            Curve::Ed25519 => ED25519_BYTES,
        };
        let point = attributes.into_iter().find_map(|attribute| match attribute {
            Attribute::EcPoint(point) => Some(point),
            _ => None,
        });
        // In DER, as PKCS#11 has it, or bare, as some modules do.
        Ok(point.and_then(|point| match &point[..] {
            [OCTET_STRING, len, bare @ ..] if bare.len() == bytes && usize::from(*len) == bytes => Some(bare.to_vec()),
            bare if bare.len() == bytes => Some(bare.to_vec()),
            _ => None,
        }))
    }

    fn make(&self, session: &Session, label: &str, curve: Curve) -> Result<(), TokenError> {
        let mut id = [0; 16];
        SysRng.try_fill_bytes(&mut id).map_err(|error| self.is_away(&error))?;
        let named = [Attribute::Token(true), Attribute::Label(label.as_bytes().to_vec()), Attribute::Id(id.to_vec())];
        let public = [Attribute::Private(false), Attribute::Verify(true), Attribute::EcParams(params(curve))];
        let private = [
            Attribute::Private(true),
            Attribute::Sensitive(true),
            Attribute::Extractable(false),
            Attribute::Sign(true),
        ];
        let mechanism = match curve {
            Curve::Secp256k1 => Mechanism::EccKeyPairGen,
            Curve::Ed25519 => Mechanism::EccEdwardsKeyPairGen,
        };
        let made =
            session.generate_key_pair(&mechanism, &[&named[..], &public].concat(), &[&named[..], &private].concat());
        match made {
            Ok(_) => {
                tracing::info!("the token {:?} made the key {label:?}", self.0.place.label);
                Ok(())
            }
            Err(Error::Pkcs11(
                RvError::MechanismInvalid | RvError::CurveNotSupported | RvError::DomainParamsInvalid,
                _,
            )) => Err(TokenError::NoMechanism { curve: name(curve) }),
            Err(error) => Err(self.is_away(&shown(&error))),
        }
    }

    /// Asks the token. A session in which something failed is not used again.
    fn with<T>(&self, ask: impl FnOnce(&Session) -> Result<T, TokenError>) -> Result<T, TokenError> {
        let Inner { place, module, link } = &*self.0;
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*link, Link::Open(session) if !is_of_user(session)) {
            *link = Link::Closed;
        }
        if matches!(*link, Link::Closed) {
            *link = match connect(module, place) {
                Ok(session) => Link::Open(session),
                Err(wrong @ TokenError::Pin { .. }) => Link::Refused(wrong),
                Err(away @ TokenError::Away { .. }) => return Err(away),
                Err(error) => return Err(self.is_away(&error)),
            };
        }
        let answer = match &*link {
            Link::Open(session) => ask(session),
            Link::Refused(error) => Err(error.clone()),
            Link::Closed => Err(self.is_away(&"it is closed")),
        };
        if matches!(answer, Err(TokenError::Away { .. })) {
            *link = Link::Closed;
        }
        answer
    }

    fn away(&self) -> impl FnOnce(Error) -> TokenError {
        move |error| self.is_away(&shown(&error))
    }

    fn is_away(&self, what: &dyn std::fmt::Display) -> TokenError {
        TokenError::Away { label: self.0.place.label.clone(), what: what.to_string() }
    }
}

impl Held {
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn curve(&self) -> Curve {
        self.curve
    }

    /// A point that is not compressed, or a key of Ed25519.
    pub(crate) fn public(&self) -> &[u8] {
        &self.public
    }

    /// Signs a digest by ECDSA, or a message by EdDSA. Nothing of the signature is checked here.
    pub(crate) fn sign(&self, content: &[u8]) -> Result<[u8; 64], TokenError> {
        let mechanism = match self.curve {
            Curve::Secp256k1 => Mechanism::Ecdsa,
            Curve::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure)),
        };
        let signed =
            self.token.with(|session| session.sign(&mechanism, self.private, content).map_err(self.token.away()))?;
        signed.try_into().map_err(|_| TokenError::Signature { key: self.label.clone() })
    }
}

/// A session of the token's user.
fn connect(module: &Pkcs11, place: &TokenPlace) -> Result<Session, TokenError> {
    let away = |error: Error| TokenError::Away { label: place.label.clone(), what: shown(&error) };
    let slot = slot_of(module, place)?;
    let session = module.open_rw_session(slot).map_err(away)?;
    match session.login(UserType::User, Some(&place.pin.0)) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(
            error @ Error::Pkcs11(
                RvError::PinIncorrect
                | RvError::PinInvalid
                | RvError::PinLenRange
                | RvError::PinExpired
                | RvError::PinLocked
                | RvError::UserPinNotInitialized,
                _,
            ),
        ) => Err(TokenError::Pin { label: place.label.clone(), what: shown(&error) }),
        Err(error) => Err(away(error)),
    }
}

/// Without a user no private key is found, as if there were none.
fn is_of_user(session: &Session) -> bool {
    session.get_session_info().is_ok_and(|info| matches!(info.session_state(), SessionState::RwUser))
}

fn slot_of(module: &Pkcs11, place: &TokenPlace) -> Result<Slot, TokenError> {
    let away = |error: Error| TokenError::Away { label: place.label.clone(), what: shown(&error) };
    let (mut slots, mut others) = (Vec::new(), Vec::new());
    for slot in module.get_slots_with_initialized_token().map_err(away)? {
        let info = module.get_token_info(slot).map_err(away)?;
        if info.label() == place.label {
            slots.push(slot);
        } else {
            others.push(format!("{:?}", info.label()));
        }
    }
    match slots[..] {
        [slot] => Ok(slot),
        [] => Err(TokenError::NoToken { label: place.label.clone(), others }),
        ref several => Err(TokenError::SameLabel { label: place.label.clone(), count: several.len() }),
    }
}

/// The name of what failed: what the crate says of it are whole paragraphs.
fn shown(error: &Error) -> String {
    match error {
        Error::Pkcs11(failure, function) => format!("C_{function:?}: {failure:?}"),
        other => other.to_string(),
    }
}

fn label(path: &KeyPath) -> String {
    let seed = match path.seed {
        Seed::Wallets => "wallets",
        Seed::Sponsors => "sponsors",
    };
    format!("landfall {seed} {path}")
}

fn params(curve: Curve) -> Vec<u8> {
    match curve {
        Curve::Secp256k1 => SECP256K1.to_vec(),
        Curve::Ed25519 => ED25519.to_vec(),
    }
}

fn name(curve: Curve) -> &'static str {
    match curve {
        Curve::Secp256k1 => "of secp256k1 (CKM_EC_KEY_PAIR_GEN, CKM_ECDSA)",
        Curve::Ed25519 => "of Ed25519 (CKM_EC_EDWARDS_KEY_PAIR_GEN, CKM_EDDSA)",
    }
}
