//! Which addresses a webhook may be sent to: those of the internet, and those of networks that an operator named.
//!
//! Promises: an IPv4 address is public unless a registry says otherwise. An IPv6 address is public only in the one
//! range that is routed, and in none of its exceptions. An address that is written inside another one (mapped, 6to4,
//! NAT64, Teredo) is either taken out or refused. Pure: names are resolved by `resolver`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// How many networks one webhook may be allowed.
const NETWORKS_MAX: usize = 16;

/// Not public: IANA's IPv4 Special-Purpose Address Registry, multicast, and internal addresses of clouds.
const NOT_PUBLIC_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    // Azure's wire server, which every machine there reaches under this one public address.
    v4([168, 63, 129, 16], 32),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];
/// The IPv6 range that is routed (RFC 4291, 2.4).
const ROUTED_V6: Ipv6Net = v6([0x2000, 0], 3);
/// Not public within it: Teredo, ORCHID and benchmarks; documentation, twice; 6to4, which hides an IPv4 address.
const NOT_PUBLIC_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0], 23), v6([0x2001, 0x0db8], 32), v6([0x2002, 0], 16), v6([0x3fff, 0], 20)];

/// A network as it is written: no bits behind its prefix are set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cidr(IpNet);

/// Internal networks that an operator lets one webhook reach. Without any it reaches the internet only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AllowedNetworks(Vec<Cidr>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CidrError {
    #[error("malformed network {0:?}; expected an address, a slash and a number of bits, such as 10.0.0.0/8")]
    Malformed(String),
    #[error("network {given}: bits behind the prefix are set; write {network}")]
    HostBits { given: String, network: Cidr },
    #[error("more than {NETWORKS_MAX} networks")]
    TooMany,
}

impl Cidr {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&plain(address))
    }
}

impl AllowedNetworks {
    /// # Errors
    /// More than one webhook needs.
    pub fn new(mut networks: Vec<Cidr>) -> Result<Self, CidrError> {
        networks.sort_unstable();
        networks.dedup();
        if networks.len() > NETWORKS_MAX {
            return Err(CidrError::TooMany);
        }
        Ok(AllowedNetworks(networks))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        // `ipnet` reads 010 as ten and other programs read it as eight; the standard library refuses it.
        let is_plain = text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
        let written = text.parse().ok().filter(|_| is_plain);
        let written: IpNet = written.ok_or_else(|| CidrError::Malformed(text.to_owned()))?;
        let network = Cidr(written.trunc());
        if network.0 == written { Ok(network) } else { Err(CidrError::HostBits { given: text.to_owned(), network }) }
    }
}

/// Separated by commas, as they are stored.
impl FromStr for AllowedNetworks {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let networks = text.split(',').filter(|part| !part.is_empty()).map(str::parse);
        AllowedNetworks::new(networks.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AllowedNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks: Vec<String> = self.0.iter().map(Cidr::to_string).collect();
        f.write_str(&networks.join(","))
    }
}

/// Whether everybody on the internet may reach `address`, so that a request to it shows and changes nothing internal.
pub fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            ROUTED_V6.contains(&address) && !NOT_PUBLIC_V6.iter().any(|network| network.contains(&address))
        }
    }
}

/// `::ffff:a.b.c.d` is a.b.c.d: the system connects to that.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
    }
}

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([first, second]: [u16; 2], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_ends_where_its_registry_says() {
        // For each range: the last address before it, its first and its last, the first after it.
        let ranges = [
            ["223.255.255.255", "0.0.0.0", "0.255.255.255", "1.0.0.0"],
            ["9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"],
            ["100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"],
            ["126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"],
            ["168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"],
            ["169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"],
            ["172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"],
            ["191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"],
            ["192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"],
            ["192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"],
            ["192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"],
            ["198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"],
            ["198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"],
            ["203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"],
            ["223.255.255.255", "224.0.0.0", "255.255.255.255", "1.0.0.0"],
            ["2606:4700::1", "2001::", "2001:1ff:ffff::", "2001:200::"],
            ["2001:db7:ffff::", "2001:db8::", "2001:db8:ffff:ffff::", "2001:db9::"],
            ["2001:ffff::", "2002::", "2002:ffff::", "2003::"],
            ["3ffe:ffff::", "3fff::", "3fff:fff::", "3fff:1000::"],
            ["2606:4700::1", "::", "1fff:ffff::", "2400::"],
            ["3ffe::", "4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2400::"],
        ];
        for [before, first, last, behind] in ranges {
            for (address, public) in [(before, true), (first, false), (last, false), (behind, true)] {
                assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
            }
        }
    }

    #[test]
    fn a_network_contains_what_begins_like_it() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("127.0.0.1/32", "127.0.0.1", true),
            ("127.0.0.1/32", "127.0.0.2", false),
            ("::/0", "fd00::1", true),
            ("::/0", "127.0.0.1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
            ("::1/128", "::1", true),
        ];
        for (network, address, contained) in cases {
            let network: Cidr = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), contained, "{network} {address}");
        }
    }

    #[test]
    fn networks_are_read_back_and_what_is_none_is_refused() {
        let text = "10.0.0.0/8,127.0.0.1/32,fd00::/8";
        let networks: AllowedNetworks = "fd00::/8,127.0.0.1/32,10.0.0.0/8,10.0.0.0/8".parse().unwrap();
        assert_eq!(networks.to_string(), text);
        assert_eq!("".parse(), Ok(AllowedNetworks::default()));
        let malformed = [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10/8",
            "fd00::/129",
            "a/8",
            "10.0.0.0/",
            "010.0.0.0/8",
        ];
        for text in malformed {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Malformed(text.to_owned())));
        }
        let error = "10.1.2.3/8".parse::<Cidr>().unwrap_err();
        assert_eq!(error.to_string(), "network 10.1.2.3/8: bits behind the prefix are set; write 10.0.0.0/8");
        let many: Vec<String> = (0..17).map(|nth| format!("10.{nth}.0.0/16")).collect();
        assert_eq!(many.join(",").parse::<AllowedNetworks>(), Err(CidrError::TooMany));
    }
}
