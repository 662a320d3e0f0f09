//! What does not open.

use std::path::Path;

use landfall_signer::{Token, TokenPlace};

use crate::world::passphrase;
use crate::{LABEL, alone, module, place, refused};

#[test]
fn a_wrong_pin_is_tried_once_and_named_and_the_right_one_opens() {
    alone("opening::a_wrong_pin_is_tried_once_and_named_and_the_right_one_opens", async {
        let error = refused(TokenPlace { pin: passphrase("4321"), ..place() }).to_string();
        let expected = "the PIN does not open the token \"landfall\": C_Login: PinIncorrect; it is not tried again";
        assert_eq!(error, expected);
        assert!(!format!("{:?}", place()).contains("1234"));
        Token::open(place()).unwrap();
    });
}

#[test]
fn a_token_that_is_not_there_is_named_with_those_that_are() {
    alone("opening::a_token_that_is_not_there_is_named_with_those_that_are", async {
        let error = refused(TokenPlace { label: "other".to_owned(), ..place() }).to_string();
        assert_eq!(error, format!("no token has the label \"other\"; there are: {LABEL:?}"));
    });
}

#[test]
fn what_is_no_module_is_named() {
    alone("opening::what_is_no_module_is_named", async {
        let missing = refused(TokenPlace { module: "/nowhere/module.so".into(), ..place() }).to_string();
        assert!(missing.starts_with("the module /nowhere/module.so cannot be used: "), "{missing}");
        // A library, but none of PKCS#11; and no library at all.
        for other in ["/lib/x86_64-linux-gnu/libm.so.6", "/etc/hostname"] {
            if Path::new(other).exists() {
                let error = refused(TokenPlace { module: other.into(), ..place() }).to_string();
                assert!(error.starts_with(&format!("the module {other} cannot be used: ")), "{error}");
            }
        }
        assert!(module().exists());
    });
}
