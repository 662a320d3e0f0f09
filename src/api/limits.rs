//! How much comes in: rates of addresses and keys, and places for requests that are answered at the same time, which
//! `places` shares out.
//!
//! Promises: a client over its rate learns how long to wait. Memory is bounded, whoever asks. Counts are kept in
//! memory, so each instance counts for itself.

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as _;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::api::accounts::ADDRESSES_MAX;
use crate::api::places::Places;
use crate::api::settings::Limits;

/// How many addresses or keys are remembered. While there are so many, all clients wait, known ones too, until those
/// with an unused rate are forgotten.
const CLIENTS_MAX: usize = 100_000;
/// How many seconds' worth of requests may come at once.
const BURST_SECS: u32 = 2;
/// How many answers of the page may be under way: it needs no key, and its files are large. A browser asks for six of
/// them at once.
const PAGE_PLACES: usize = 24;

/// Which requests may come in.
pub(super) struct Gate {
    ips: Option<DefaultKeyedRateLimiter<IpAddr>>,
    keys: Option<DefaultKeyedRateLimiter<String>>,
    /// With one rate for each address.
    addresses: Option<DefaultKeyedRateLimiter<String>>,
    /// For requests with a key, by its id.
    pub places: Arc<Places>,
    /// For the page, by address.
    pub page_places: Arc<Places>,
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        let places = usize::try_from(limits.concurrent_requests).unwrap_or(usize::MAX);
        Gate {
            ips: limiter(limits.ip_requests_per_sec, 1),
            keys: limiter(limits.key_requests_per_sec, 1),
            addresses: limiter(limits.key_requests_per_sec, ADDRESSES_MAX),
            places: Places::new(places),
            page_places: Places::new(PAGE_PLACES),
        }
    }

    /// Counts a request of this address.
    ///
    /// # Errors
    /// The seconds to wait.
    pub(super) fn check_ip(&self, ip: IpAddr) -> Result<(), u64> {
        check(self.ips.as_ref(), &counted_as(ip))
    }

    /// Counts a request with this key.
    ///
    /// # Errors
    /// The seconds to wait.
    pub(super) fn check_key(&self, id: &str) -> Result<(), u64> {
        check(self.keys.as_ref(), &id.to_owned())
    }

    /// Counts the addresses that a request with this key brings. They have a rate of their own: a client over it, even
    /// if it tries again and again, uses up no rate of requests.
    ///
    /// # Errors
    /// The seconds to wait.
    pub(super) fn check_addresses(&self, id: &str, count: usize) -> Result<(), u64> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (Some(limiter), Some(count)) = (&self.addresses, NonZeroU32::new(count)) else { return Ok(()) };
        match limiter.check_key_n(&id.to_owned(), count) {
            Ok(counted) => counted.map_err(|until| seconds(until.wait_time_from(limiter.clock().now()))),
            // More than may come at once, which no request brings.
            Err(_) => Err(1),
        }
    }

    /// Forgets addresses and keys whose rate is unused again.
    pub(super) fn forget(&self) {
        if let Some(ips) = &self.ips {
            ips.retain_recent();
        }
        for keys in [&self.keys, &self.addresses].into_iter().flatten() {
            keys.retain_recent();
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("places", &self.places).finish_non_exhaustive()
    }
}

/// Allows `per_sec`, and at least `least` at once.
fn limiter<K: Hash + Eq + Clone>(per_sec: u32, least: usize) -> Option<DefaultKeyedRateLimiter<K>> {
    let per_sec = NonZeroU32::new(per_sec)?;
    let burst = per_sec.saturating_mul(NonZeroU32::new(BURST_SECS)?).max(NonZeroU32::new(u32::try_from(least).ok()?)?);
    Some(RateLimiter::keyed(Quota::per_second(per_sec).allow_burst(burst)))
}

fn check<K: Hash + Eq + Clone>(limiter: Option<&DefaultKeyedRateLimiter<K>>, client: &K) -> Result<(), u64> {
    let Some(limiter) = limiter else { return Ok(()) };
    if limiter.len() >= CLIENTS_MAX {
        return Err(1);
    }
    limiter.check_key(client).map_err(|until| seconds(until.wait_time_from(limiter.clock().now())))
}

/// Rounded up, so that a client that waits so long is let in.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0).max(u64::from(wait.is_zero()))
}

/// The address that is counted: an IPv6 client has a whole /64, so that counts as one.
pub fn counted_as(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_own_rate_and_a_network_of_ipv6_one_together() {
        let gate = Gate::new(&Limits { ip_requests_per_sec: 1, ..Limits::default() });
        let takes = |ip: &str| gate.check_ip(ip.parse().unwrap()).is_ok();
        assert!(takes("192.0.2.1") && takes("::ffff:192.0.2.1") && !takes("192.0.2.1"));
        assert!(takes("192.0.2.2"), "another address");
        assert!(takes("2001:db8::1") && takes("2001:db8::ffff:2") && !takes("2001:db8::3"));
        assert!(takes("2001:db8:0:1::1"), "another network");
    }

    #[test]
    fn addresses_have_a_rate_of_their_own_in_which_every_request_fits_and_who_is_refused_takes_nothing() {
        let gate = Gate::new(&Limits { key_requests_per_sec: 10, ..Limits::default() });
        assert_eq!(
            (gate.check_key("a"), gate.check_addresses("a", 100)),
            (Ok(()), Ok(())),
            "the most that one may bring"
        );
        for _ in 0..5 {
            assert_eq!(gate.check_addresses("a", 95), Err(10), "what was refused is not counted");
        }
        assert_eq!((gate.check_key("a"), gate.check_addresses("b", 100)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_refused_client_is_reported_whole_seconds_and_no_limit_refuses_nobody() {
        let gate = Gate::new(&Limits { key_requests_per_sec: 1, ip_requests_per_sec: 0, ..Limits::default() });
        assert_eq!((gate.check_key("a"), gate.check_key("a"), gate.check_key("a")), (Ok(()), Ok(()), Err(1)));
        for _ in 0..10_000 {
            assert_eq!(gate.check_ip(IpAddr::from([192, 0, 2, 1])), Ok(()));
        }
    }
}
