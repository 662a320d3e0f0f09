//! `landfall gas price` on the command line: what is no price is refused with what one is, and the last one stays.

use serde_json::Value;

use crate::cli::{CONFIG, Desk};

/// What one ether costs, as it is listed.
fn listed(desk: &Desk) -> String {
    let listed: Value = serde_json::from_str(&desk.ok(&["gas", "price", "list", "--json"])).unwrap();
    assert_eq!(listed["symbol"], "ETH");
    listed["usd"].as_str().unwrap().to_owned()
}

#[test]
fn a_price_of_nothing_or_below_it_or_beyond_belief_is_refused_and_the_last_one_stays() {
    const DECIMAL: &str = "is no decimal number: expected digits, and at most one point with digits on both sides";
    const RANGE: &str = "is no price: expected more than 0 and less than 1000000000 USD";
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    let set = |symbol: &'static str, usd: &'static str| ["gas", "price", "set", symbol, usd, "--reason", "a test"];
    assert_eq!(desk.ok(&set("ETH", "3000.50")), "one ETH costs 3000.5 USD\n");
    for (usd, why) in [
        ("0", RANGE),
        ("0.00", RANGE),
        ("1000000000", RANGE),
        ("-1", DECIMAL),
        ("-0.5", DECIMAL),
        ("1e9", DECIMAL),
        ("three", DECIMAL),
        ("0.0000000000001", "decimals"),
    ] {
        let refused = desk.refused(&set("ETH", usd));
        assert!(refused.contains(&format!("{usd:?}")) && refused.contains(why), "{usd}: {refused}");
        assert_eq!(listed(&desk), "3000.5", "{usd}");
    }
    let refused = desk.refused(&set("BTC", "60000"));
    assert!(refused.contains("BTC pays for no transactions here"), "{refused}");
    assert_eq!(listed(&desk), "3000.5");
    assert_eq!(desk.ok(&set("ETH", "999999999")), "one ETH costs 999999999 USD\n");
    assert_eq!(listed(&desk), "999999999");
}
