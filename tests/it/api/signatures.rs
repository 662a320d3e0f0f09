//! Signatures of requests: what is good, and everything that is not, each refused for its own reason.
//!
//! `tests/vectors/tokens.txt` holds tokens that OpenSSL signed. What the API does with a good or bad one is
//! `api_auth`'s to test.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use landfall::key::request_signature::{SignatureError, SignedRequest, verify};
use landfall::key::{Algorithm, PublicKey, PublicKeyError};
use landfall::time::Timestamp;
use proptest::prelude::*;
use ring::hmac;
use serde_json::{Value, json};

use crate::follow::signers::{self, KEYS, Signer, encode, public_key};

const TOKENS: &str = include_str!("../../vectors/tokens.txt");
const NOW: u64 = 1_750_000_000;
const BODY: &[u8] = br#"{"a":1}"#;
const URI: &str = "/v2/accounts?a=%20b";
const FINGERPRINTS: [&str; 3] = [
    "d4061acf7fd1bc47899199fb026025faeb7b2f417add5c0e1d3d22828c9f4cf3",
    "8b70fb1e5e8e32b0dcb9bdd1bf614df4f79ddb9268a8b03f9fdb687676e2e2c0",
    "e10b26e28c05681865ce4c65a18a9a342e9634d3d785375c037f0c132bb6e86b",
];
const NONCE: &str = "0123456789abcdef-1";

fn request() -> SignedRequest<'static> {
    at(NOW)
}

fn at(secs: u64) -> SignedRequest<'static> {
    let now = Timestamp::from_secs(secs);
    SignedRequest { key_id: "IYT0XLWR", host: "api.example.com", method: "POST", uri: URI, body: BODY, now }
}

fn claims() -> Value {
    signers::claims("IYT0XLWR", "api.example.com", ("POST", URI, BODY), NONCE, NOW)
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn check(token: &str) -> Result<(), SignatureError> {
    verify(token, &[public_key(Algorithm::EdDsa)], &request()).map(drop)
}

#[test]
fn what_openssl_signed_is_good_with_its_own_key_and_with_no_other() {
    let tokens: Vec<(&str, &str)> = TOKENS.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(tokens.len(), KEYS.len());
    for (name, token) in tokens {
        for (algorithm, ..) in KEYS {
            let is_own = algorithm.name() == name;
            let expected = if is_own { Ok(()) } else { Err(SignatureError::Algorithm) };
            assert_eq!(verify(token, &[public_key(algorithm)], &request()).map(drop), expected, "{name}");
        }
        let all: Vec<PublicKey> = KEYS.iter().map(|(algorithm, ..)| public_key(*algorithm)).collect();
        assert!(verify(token, &all, &request()).is_ok(), "{name} among others");
        assert_eq!(verify(token, &[], &request()), Err(SignatureError::Algorithm), "{name} with none");
    }
}

#[test]
fn every_algorithm_signs_and_any_order_of_members_will_do() {
    for (algorithm, ..) in KEYS {
        let signer = Signer::of(algorithm);
        let good = [
            signer.usual(&claims()),
            signer.token(
                &format!(r#"{{ "typ":"jwt", "kid":"IYT0XLWR", "alg":"{}" }}"#, algorithm.name()),
                &claims().to_string(),
            ),
            signer.token(&format!(r#"{{"alg":"{}"}}"#, algorithm.name()), &format!("{:#}", claims())),
        ];
        for token in good {
            assert!(verify(&token, &[public_key(algorithm)], &request()).is_ok(), "{token}");
        }
    }
}

#[test]
fn a_header_that_says_more_or_other_than_the_paired_key_is_refused() {
    let signer = Signer::of(Algorithm::EdDsa);
    let cases = [
        (r#"{"alg":"none"}"#, SignatureError::Algorithm),
        (r#"{"alg":"None"}"#, SignatureError::Algorithm),
        (r#"{"alg":""}"#, SignatureError::Algorithm),
        (r#"{"alg":"eddsa"}"#, SignatureError::Algorithm),
        (r#"{"alg":"Ed25519"}"#, SignatureError::Algorithm),
        (r#"{"alg":"ES256"}"#, SignatureError::Algorithm),
        (r#"{"alg":"HS256"}"#, SignatureError::Algorithm),
        (r#"{"alg":["EdDSA"]}"#, SignatureError::Header),
        (r#"{"alg":null}"#, SignatureError::Header),
        (r#"{"typ":"JWT"}"#, SignatureError::Header),
        (r#"["EdDSA",null,null]"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","alg":"EdDSA"}"#, SignatureError::Header),
        (r#"{"alg":"none","alg":"EdDSA"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","typ":"JWE"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","kid":"IYT0XLWS"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","kid":"../../etc/passwd"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","kid":"IYT0XLWR' OR '1'='1"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","kid":7}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","jwk":{"kty":"OKP"}}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","jku":"https://attacker.example/keys"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","x5u":"https://attacker.example/cert"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","crit":["exp"]}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","b64":false}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA","zip":"DEF"}"#, SignatureError::Header),
        (r#"{"alg":"EdDSA"} x"#, SignatureError::Header),
        (r#"{"alg":"EdDSA""#, SignatureError::Header),
        ("\"EdDSA\"", SignatureError::Header),
    ];
    for (header, expected) in cases {
        assert_eq!(check(&signer.token(header, &claims().to_string())), Err(expected), "{header}");
    }
}

#[test]
fn a_token_that_is_not_signed_by_the_paired_key_is_refused() {
    let claims = claims().to_string();
    let header = r#"{"alg":"HS256","typ":"JWT"}"#;
    for (algorithm, _, public) in KEYS {
        let message = format!("{}.{}", encode(header), encode(&claims));
        let key = public_key(algorithm);
        for secret in [public.as_bytes(), public.trim_end().as_bytes(), key.spki()] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
            for header in [header.to_owned(), header.replace("HS256", algorithm.name())] {
                let message = format!("{}.{}", encode(&header), encode(&claims));
                let token = format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag));
                assert!(verify(&token, std::slice::from_ref(&key), &request()).is_err(), "{token}");
            }
        }
    }
    let stranger = Signer::stranger().token(r#"{"alg":"EdDSA"}"#, &claims);
    assert_eq!(check(&stranger), Err(SignatureError::Signature));
    let good = Signer::of(Algorithm::EdDsa).token(r#"{"alg":"EdDSA"}"#, &claims);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let zeros = BASE64_URL_SAFE_NO_PAD.encode([0; 64]);
    for wrong in [&zeros, &signature[..84], &signature[4..], &format!("{signature}AAAA")] {
        assert_eq!(check(&format!("{message}.{wrong}")), Err(SignatureError::Signature), "{wrong}");
    }
    // ECDSA as DER, as OpenSSL prints it, is another form than JWT's.
    let es256 = Signer::of(Algorithm::Es256).usual(&serde_json::from_str(&claims).unwrap());
    let (message, _) = es256.rsplit_once('.').unwrap();
    let der =
        BASE64_URL_SAFE_NO_PAD.encode([&[0x30, 0x44, 0x02, 0x20][..], &[1; 32], &[0x02, 0x20], &[1; 32]].concat());
    let refused = verify(&format!("{message}.{der}"), &[public_key(Algorithm::Es256)], &request());
    assert_eq!(refused, Err(SignatureError::Signature));
}

#[test]
fn a_text_that_is_no_token_is_refused() {
    let good = Signer::of(Algorithm::EdDsa).usual(&claims());
    assert_eq!(check(&good), Ok(()));
    let parts: Vec<&str> = good.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("{good}") };
    // 64 bytes are 86 characters, of which the last one says 2 bits: another with the same bits is another text.
    let other_last = format!("{}{}", &signature[..85], if signature.ends_with('B') { 'C' } else { 'B' });
    let bad = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        format!("{good}."),
        format!("{good}.."),
        format!(".{good}"),
        format!("{good}.{signature}"),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!("{header}..{signature}"),
        format!(".{claims}.{signature}"),
        format!("{header}.{claims}.{signature}=="),
        format!("{header}.{claims}.{other_last}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{header}.\n{claims}.{signature}"),
        format!("{header}.{claims}.{}", signature.replacen(|c: char| c.is_ascii_alphanumeric(), "+", 1)),
        format!("{header}.{claims}.{}", signature.replacen(|c: char| c.is_ascii_alphanumeric(), "/", 1)),
        format!("{header}.{claims}.%41"),
        format!("{header}.{claims}.é"),
        "A".repeat(20_000),
        format!("{good}{}", "A".repeat(20_000)),
    ];
    for token in bad {
        assert_eq!(check(&token), Err(SignatureError::Malformed), "{token:.200}");
    }
}

#[test]
fn claims_that_are_missing_repeated_unknown_or_of_another_type_are_refused() {
    let signer = Signer::of(Algorithm::EdDsa);
    let refused = |claims: &str| {
        assert_eq!(check(&signer.token(r#"{"alg":"EdDSA"}"#, claims)), Err(SignatureError::Claims), "{claims}")
    };
    for name in ["sub", "aud", "method", "uri", "bodyHash", "nonce", "iat", "exp"] {
        refused(&without(name).to_string());
        refused(&with(name, Value::Null).to_string());
        refused(&with(name, json!([])).to_string());
        let twice = claims().to_string().replacen('{', &format!("{{\"{name}\":{},", claims()[name]), 1);
        refused(&twice);
    }
    for name in ["iat", "exp"] {
        for value in
            [json!(1_750_000_000.5), json!(1_750_000_000.0), json!(-1), json!("1750000000"), json!(true), json!(1e300)]
        {
            refused(&with(name, value).to_string());
        }
        for text in ["1750000000e0", "1.75e9", "18446744073709551616", "01750000000", "+1750000000", "NaN"] {
            let number = claims()[name].to_string();
            refused(&claims().to_string().replacen(&format!("\"{name}\":{number}"), &format!("\"{name}\":{text}"), 1));
        }
    }
    for name in ["body_hash", "nbf", "iss", "jti", "SUB", "uris"] {
        refused(&with(name, json!("x")).to_string());
    }
    for text in ["", "{}", "[]", "null", "7", "{", "\u{0}"] {
        let token = signer.token(r#"{"alg":"EdDSA"}"#, text);
        let expected = if text.is_empty() { SignatureError::Malformed } else { SignatureError::Claims };
        assert_eq!(check(&token), Err(expected), "{text}");
    }
    let array = json!(["IYT0XLWR", "api.example.com", "POST", URI, claims()["bodyHash"], NONCE, NOW, NOW + 60]);
    refused(&array.to_string());
    refused(&format!("{} {{}}", claims()));
    refused(&format!(" {}", claims()));
}

#[test]
fn a_token_is_for_one_request_of_one_key_at_one_host() {
    let signer = Signer::of(Algorithm::EdDsa);
    let other_body = signers::claims("", "", ("", "", br#"{"a":2}"#), "", 0)["bodyHash"].clone();
    let empty_body = signers::claims("", "", ("", "", b""), "", 0)["bodyHash"].clone();
    let hash = claims()["bodyHash"].as_str().unwrap().to_owned();
    let cases = [
        ("sub", json!("IYT0XLWS")),
        ("sub", json!("iyt0xlwr")),
        ("sub", json!("")),
        ("aud", json!("test.example.com")),
        ("aud", json!("api.example.com:443")),
        ("aud", json!("https://api.example.com")),
        ("aud", json!("API.example.com")),
        ("aud", json!("")),
        ("method", json!("GET")),
        ("method", json!("post")),
        ("method", json!("DELETE")),
        ("uri", json!("/v2/accounts")),
        ("uri", json!("/v2/accounts?a=%20b&c=1")),
        ("uri", json!("/v2/accounts?a=+b")),
        ("uri", json!("/v2/accounts?a= b")),
        ("uri", json!("/v2/accounts/?a=%20b")),
        ("uri", json!("https://api.example.com/v2/accounts?a=%20b")),
        ("uri", json!("")),
        ("bodyHash", other_body),
        ("bodyHash", empty_body),
        ("bodyHash", json!(hash.to_uppercase())),
        ("bodyHash", json!(format!("0x{hash}"))),
        ("bodyHash", json!(hash[..62])),
        ("bodyHash", json!("")),
    ];
    for (name, value) in cases {
        assert_eq!(
            check(&signer.usual(&with(name, value.clone()))),
            Err(SignatureError::Other(name)),
            "{name} {value}"
        );
    }
}

#[test]
fn a_nonce_has_16_to_128_visible_characters_and_is_reported_apart_by_key() {
    let signer = Signer::of(Algorithm::EdDsa);
    for nonce in [
        "",
        "0123456789abcde",
        "0123456789 abcdef",
        "0123456789\u{e4}\u{e4}\u{e4}abcdef",
        "0123456789abcdef\n",
        &"a".repeat(129),
    ] {
        assert_eq!(check(&signer.usual(&with("nonce", json!(nonce)))), Err(SignatureError::Nonce), "{nonce:?}");
    }
    let keys = [public_key(Algorithm::EdDsa)];
    let taken = |key_id, nonce: &str| {
        let claims = signers::claims(key_id, "api.example.com", ("POST", URI, BODY), nonce, NOW);
        verify(&signer.usual(&claims), &keys, &SignedRequest { key_id, ..request() }).unwrap()
    };
    let one = taken("IYT0XLWR", NONCE);
    assert_eq!(one, taken("IYT0XLWR", NONCE));
    assert_ne!(one.hash, taken("IYT0XLWS", NONCE).hash, "another key");
    assert_ne!(one.hash, taken("IYT0XLWR", "0123456789abcdef-2").hash);
    taken("IYT0XLWR", &"a".repeat(128));
    // While the token could be used anywhere, the nonce is remembered.
    assert!(one.expires >= Timestamp::from_secs(NOW + 60 + 30 + 60));
}

#[test]
fn a_token_lives_a_minute_and_clocks_may_be_half_a_minute_off() {
    let signer = Signer::of(Algorithm::EdDsa);
    let keys = [public_key(Algorithm::EdDsa)];
    let lives = |iat: u64, exp: u64, now: u64| {
        let mut claims = with("iat", json!(iat));
        claims["exp"] = json!(exp);
        verify(&signer.usual(&claims), &keys, &at(now)).map(drop)
    };
    let cases = [
        (NOW, NOW + 60, NOW, Ok(())),
        (NOW, NOW + 1, NOW, Ok(())),
        (NOW, NOW + 60, NOW - 30, Ok(())),
        (NOW, NOW + 60, NOW + 89, Ok(())),
        (NOW, NOW + 61, NOW, Err(SignatureError::Life)),
        (NOW, NOW, NOW, Err(SignatureError::Life)),
        (NOW, NOW - 1, NOW, Err(SignatureError::Life)),
        (0, u64::MAX, NOW, Err(SignatureError::Life)),
        (u64::MAX - 1, u64::MAX, NOW, Err(SignatureError::Future)),
        (NOW, NOW + 60, NOW - 31, Err(SignatureError::Future)),
        (NOW, NOW + 60, NOW + 90, Err(SignatureError::Expired)),
        (NOW, NOW + 60, NOW + 86_400, Err(SignatureError::Expired)),
        (0, 1, NOW, Err(SignatureError::Expired)),
    ];
    for (iat, exp, now, expected) in cases {
        assert_eq!(lives(iat, exp, now), expected, "{iat} {exp} at {now}");
    }
}

#[test]
fn a_public_key_is_read_whole_or_refused() {
    for (algorithm, private, public) in KEYS {
        let key = PublicKey::from_pem(public).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(PublicKey::from_spki(key.spki().to_vec()), Ok(key.clone()));
        assert_eq!(PublicKey::from_pem(private), Err(PublicKeyError::Private));
        assert_eq!(PublicKey::from_pem(&format!("{private}{public}")), Err(PublicKeyError::Private));
        assert_eq!(PublicKey::from_pem(&format!("{public}{public}")), Err(PublicKeyError::Pem));
        assert_eq!(PublicKey::from_pem(&public[..60]), Err(PublicKeyError::Pem));
        for length in 0..key.spki().len() {
            assert!(PublicKey::from_spki(key.spki()[..length].to_vec()).is_err(), "cut at {length}");
        }
        assert!(PublicKey::from_spki([key.spki(), &[0]].concat()).is_err(), "followed by something");
    }
    let fingerprints = KEYS.map(|(algorithm, ..)| public_key(algorithm).fingerprint());
    // openssl pkey -pubin -outform DER | sha256sum
    assert_eq!(fingerprints, FINGERPRINTS);
    assert_eq!(
        PublicKey::from_pem(include_str!("../../vectors/keys/rsa1024.pub.pem")),
        Err(PublicKeyError::RsaBits(1024))
    );
    assert_eq!(PublicKey::from_pem(include_str!("../../vectors/keys/p384.pub.pem")), Err(PublicKeyError::Unknown));
    assert_eq!(PublicKey::from_pem(""), Err(PublicKeyError::Pem));
    let mut off_curve = public_key(Algorithm::Es256).spki().to_vec();
    *off_curve.last_mut().unwrap() ^= 1;
    assert_eq!(PublicKey::from_spki(off_curve), Err(PublicKeyError::NotOnCurve));
}

/// The encodings of y (RFC 8032, 5.1.2), lowest byte first.
#[test]
fn an_ed25519_key_that_signs_for_everybody_or_is_no_point_or_has_two_texts_is_refused() {
    let spki = |point: &[u8]| [&public_key(Algorithm::EdDsa).spki()[..12], point].concat();
    let small_order = [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ];
    // y = 1 with the sign of a zero; p, p + 1 and p + 3 for 0, 1 and 3.
    let not_canonical = [
        "0100000000000000000000000000000000000000000000000000000000000080",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    let off_curve = ["0200000000000000000000000000000000000000000000000000000000000000"];
    for point in small_order.iter().chain(&not_canonical).chain(&off_curve) {
        let read = PublicKey::from_spki(spki(&hex::decode(point).unwrap()));
        assert!(read.is_err(), "{point}");
    }
    let off_curve = PublicKey::from_spki(spki(&hex::decode(off_curve[0]).unwrap()));
    assert_eq!(off_curve, Err(PublicKeyError::NotOnCurve));
    // The same y without what is wrong is a key, and so is that of RFC 8032, 7.1.
    for point in [
        "0300000000000000000000000000000000000000000000000000000000000000",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ] {
        assert!(PublicKey::from_spki(spki(&hex::decode(point).unwrap())).is_ok(), "{point}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_and_none_is_good(token in "\\PC*") {
        prop_assert!(check(&token).is_err());
    }

    #[test]
    fn no_three_parts_are_good(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..5)) {
        let token: Vec<String> = parts.iter().map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).collect();
        prop_assert!(check(&token.join(".")).is_err());
    }

    /// Ed25519 and RSA have one signature for each text; ECDSA has two, which is why the nonce is what counts.
    #[test]
    fn nothing_but_the_exact_token_passes(at in any::<proptest::sample::Index>(), byte in 0x21_u8..0x7f, how in 0..3) {
        for algorithm in [Algorithm::EdDsa, Algorithm::Rs256] {
            let good = Signer::of(algorithm).usual(&claims());
            let at = at.index(good.len());
            let mut changed = good.clone().into_bytes();
            match how {
                0 => changed[at] = byte,
                1 => changed.insert(at, byte),
                _ => drop(changed.remove(at)),
            }
            let changed = String::from_utf8(changed).unwrap();
            let result = verify(&changed, &[public_key(algorithm)], &request());
            prop_assert_eq!(result.is_ok(), changed == good, "{}", changed);
        }
    }

    #[test]
    fn no_public_key_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let _ = PublicKey::from_spki(bytes);
        for (algorithm, ..) in KEYS {
            let mut spki = public_key(algorithm).spki().to_vec();
            let at = at.index(spki.len());
            spki[at] = byte;
            if let Ok(key) = PublicKey::from_spki(spki) {
                let signed = Signer::of(algorithm).sign(b"x");
                prop_assert_eq!(key.verify(b"x", &signed), key == public_key(algorithm));
            }
        }
    }
}
