//! The guard of webhooks, by tables: what must be refused whatever way it is written, and what must not be.
//!
//! Through the two doors that a registration takes: the text of the URL, then what its name stands for.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use landfall::resolver::{ResolveError, Resolver};
use landfall::webhook::{AllowedNetworks, Scheme, WebhookUrlError, check_url};
use proptest::prelude::*;

/// Machines of one's own, of one's cloud, of nobody.
const INSIDE: [[u8; 4]; 12] = [
    [127, 0, 0, 1],
    [127, 255, 255, 254],
    [10, 0, 0, 1],
    [172, 31, 255, 1],
    [192, 168, 1, 254],
    [169, 254, 169, 254],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
    [192, 0, 0, 192],
    [198, 18, 0, 1],
    [0, 0, 0, 0],
    [255, 255, 255, 255],
];

/// Names that are public and whose owners let them stand for machines inside; and what they stand for.
const NAMES: [(&str, &[&str]); 14] = [
    ("127.0.0.1.nip.io", &["127.0.0.1"]),
    ("169.254.169.254.sslip.io", &["169.254.169.254"]),
    ("localtest.me", &["127.0.0.1", "::1"]),
    ("mixed.example.com", &["93.184.216.34", "10.0.0.1"]),
    ("mixed-other-way.example.com", &["10.0.0.1", "93.184.216.34"]),
    ("six.example.com", &["2606:4700::1111", "fd00::1"]),
    ("mapped.example.com", &["::ffff:127.0.0.1"]),
    ("nat64.example.com", &["64:ff9b::7f00:1"]),
    ("six-to-four.example.com", &["2002:7f00:1::1"]),
    ("unspecified.example.com", &["0.0.0.0"]),
    ("metadata-six.example.com", &["fd00:ec2::254"]),
    ("link.example.com", &["fe80::1"]),
    ("multicast.example.com", &["224.0.0.1"]),
    ("nobody.example.com", &[]),
];

/// Every way that we know to write one IPv4 address as a host that a parser takes for that address.
fn as_numbers(octets: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = octets.map(u32::from);
    let whole = u32::from_be_bytes(octets);
    let (last_two, last_three) = (whole & 0xffff, whole & 0x00ff_ffff);
    let dotted = format!("{a}.{b}.{c}.{d}");
    let wide =
        |text: &str| text.chars().map(|digit| if digit.is_ascii_digit() { wide_digit(digit) } else { digit }).collect();
    vec![
        dotted.clone(),
        format!("{dotted}."),
        whole.to_string(),
        format!("0x{whole:x}"),
        format!("0X{whole:08X}"),
        format!("0{whole:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.{b}.0x{c:x}.{d}"),
        format!("0x00000000{a:x}.{b}.{c}.{d}"),
        format!("{a}.{last_three}"),
        format!("0x{a:x}.0{last_three:o}"),
        format!("{a}.{b}.{last_two}"),
        format!("{a}.{b}.0x{last_two:x}"),
        wide(&dotted),
        dotted.replace('.', "\u{3002}"),
        dotted.replace('.', "\u{ff0e}"),
        dotted.replace('.', "\u{ff61}"),
        format!("{a}.{b}.{c}.\u{ad}{d}"),
    ]
}

fn wide_digit(digit: char) -> char {
    char::from_u32(0xff10 + digit.to_digit(10).unwrap()).unwrap()
}

/// Ways to hide an IPv4 address in an IPv6 one.
fn in_six(octets: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = octets;
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    vec![
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{high:04X}:{low:04X}]"),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[::ffff:0:{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b:1::{high:x}:{low:x}]"),
        format!("[2001:0:4136:e378:8000:63bf:{:x}:{:x}]", !high, !low),
        format!("[fe80::5efe:{a}.{b}.{c}.{d}]"),
    ]
}

/// Names that nobody on the internet has.
const NAMES_INSIDE: &[&str] = &[
    "localhost",
    "LOCALHOST",
    "localhost.",
    "api.localhost",
    "localhost.localdomain",
    "intranet",
    "router",
    "db.local",
    "printer.local.",
    "metadata.google.internal",
    "METADATA.GOOGLE.INTERNAL",
    "vault.service.internal",
    "kubernetes.default.svc.cluster.local",
    "a.lan",
    "nas.home",
    "hub.home.arpa",
    "files.corp",
    "x.intranet",
    "x.private",
    "1.0.0.127.in-addr.arpa",
    "secret.onion",
    "host.docker.internal",
    "a.test",
    "a.invalid",
    "\u{24db}\u{24de}\u{24d2}\u{24d0}\u{24db}\u{24d7}\u{24de}\u{24e2}\u{24e3}",
    "loc\u{ad}alhost",
    "\u{ff4c}ocalhost",
    "localhost\u{3002}",
    "\u{2460}\u{2461}\u{2466}.\u{24ea}.\u{24ea}.\u{2460}",
    "metadata",
];

/// What is no plain URL.
const ODD: &[&str] = &[
    "",
    "https://",
    "https:///",
    "https:example.com",
    "https:/example.com",
    "//example.com/",
    "example.com/hook",
    "https:\\\\example.com\\",
    "https://example.com\\@127.0.0.1/",
    "https://127.0.0.1\\@example.com/",
    "https://user@example.com/",
    "https://user:pass@example.com/",
    "https://:pass@example.com/",
    "https://@example.com/",
    "https://:@example.com/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1@example.com/",
    "https://example.com:443@127.0.0.1/",
    "https://example.com/#",
    "https://example.com/#@127.0.0.1/",
    "https://exa mple.com/",
    " https://example.com/",
    "https://example.com/\n",
    "https://exam\tple.com/",
    "https://example.com/\r\nHost:127.0.0.1",
    "https://example.com/\0",
    "https://127.0.0.%31/",
    "https://%6cocalhost/",
    "https://example%2ecom/",
    "https://%31%32%37.0.0.1/",
    "https://example.com%00.internal/",
    "https://example.com:99999/",
    "https://example.com:-1/",
    "https://example.com:0/",
    "https://example.com:http/",
    "https://256.256.256.256/",
    "https://1.2.3.4.5/",
    "https://0x100000000/",
    "https://127.0.0.0x/x",
    "https://[::1/",
    "https://[::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[v1.x]/",
    "https://::1/",
    "https://a..b/",
    "https://xn--/",
    "https://exa<mple.com/",
    "https://*/",
    "https://./",
    "https://../",
    "https://\u{202e}example.com/",
];

/// What is refused for what it says, each for a reason of its own.
fn others() -> Vec<String> {
    let six = [
        "::",
        "::1",
        "0:0:0:0:0:0:0:1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "2001::1",
        "2001:10::1",
        "2001:20::1",
        "2001:2::1",
        "4000::1",
        "fd20:ce::254",
    ];
    let ports = [
        1, 7, 20, 21, 22, 23, 25, 53, 69, 79, 80, 110, 111, 119, 135, 139, 143, 389, 445, 465, 512, 587, 631, 873, 993,
        1023,
    ];
    let schemes = ["http", "ftp", "file", "gopher", "ws", "wss", "ldap", "dict", "data", "javascript", "ssh", "unix"];
    let mut urls: Vec<String> = six.iter().map(|host| format!("https://[{host}]/")).collect();
    urls.extend(NAMES_INSIDE.iter().map(|name| format!("https://{name}/hook")));
    urls.extend(ports.iter().map(|port| format!("https://example.com:{port}/")));
    urls.extend(schemes.iter().map(|scheme| format!("{scheme}://example.com/")));
    urls.extend(ODD.iter().map(|url| (*url).to_owned()));
    urls.push(format!("https://example.com/{}", "a".repeat(2_048)));
    urls.push(format!("https://{}.com/", "a.".repeat(130)));
    urls
}

#[test]
fn every_hostile_url_is_refused_by_its_text() {
    let nowhere = AllowedNetworks::default();
    let mut refused = BTreeSet::new();
    for octets in INSIDE {
        for host in as_numbers(octets) {
            let url = format!("https://{host}/hook");
            let plain = Ipv4Addr::from(octets).to_string();
            // Not by chance: the parser saw the address behind the form.
            assert_eq!(check_url(&url, &nowhere), Err(WebhookUrlError::Private(plain)), "{url}");
            refused.insert(url);
        }
        for host in in_six(octets) {
            let url = format!("https://{host}/hook");
            assert!(matches!(check_url(&url, &nowhere), Err(WebhookUrlError::Private(_))), "{url}");
            refused.insert(url);
        }
    }
    for url in others() {
        assert!(check_url(&url, &nowhere).is_err(), "{url:?} is taken: {:?}", check_url(&url, &nowhere));
        refused.insert(url);
    }
    println!("hostile urls: {} refused of {}", refused.len(), refused.len());
    assert!(refused.len() >= 300, "{}", refused.len());
}

/// Whether an address is one of somebody's own machines, by the standard library's reading: not all that we refuse.
fn is_inside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            let mapped = v6.to_ipv4_mapped().is_some_and(|v4| is_inside(v4.into()));
            mapped || v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_url_panics_and_none_that_is_taken_leads_inside(
        text in "\\PC{0,60}",
        host in "[0-9a-fxA-F.:%\\[\\]@/]{1,40}",
        octets in any::<[u8; 4]>(),
        inside in 0..INSIDE.len(),
        form in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        byte in 0x20_u8..0x7f,
    ) {
        let nowhere = AllowedNetworks::default();
        let of = |octets: [u8; 4]| {
            let forms = [as_numbers(octets), in_six(octets)].concat();
            form.get(&forms).clone()
        };
        let mut changed = format!("https://{}/hook", of(INSIDE[inside])).chars().collect::<Vec<char>>();
        let at = at.index(changed.len());
        changed[at] = char::from(byte);
        let hosts = [host, of(octets)].map(|host| format!("https://{host}/hook"));
        for url in [text, changed.into_iter().collect()].into_iter().chain(hosts) {
            if check_url(&url, &nowhere).is_ok() {
                let leads_to = url::Url::parse(&url).unwrap();
                let address = match leads_to.host() {
                    Some(url::Host::Ipv4(v4)) => Some(v4.into()),
                    Some(url::Host::Ipv6(v6)) => Some(v6.into()),
                    Some(url::Host::Domain(_)) | None => None,
                };
                prop_assert!(!address.is_some_and(is_inside), "{url:?} leads to {address:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_name_that_stands_for_a_machine_inside_is_refused_without_saying_which() {
    let resolver = Resolver::new(|name| {
        let (_, addresses) = NAMES.iter().find(|(known, _)| *known == name).ok_or(io::ErrorKind::NotFound)?;
        Ok(addresses.iter().map(|address| address.parse().unwrap()).collect())
    });
    let nowhere = AllowedNetworks::default();
    for (name, addresses) in NAMES {
        let url = check_url(&format!("https://{name}/hook"), &nowhere).unwrap();
        let error = resolver.vet(&url, &nowhere).await.unwrap_err();
        assert_eq!(error.to_string(), format!("webhook url: {name} is not reachable from the internet"));
        let reported = addresses.iter().any(|address| !name.contains(address) && error.to_string().contains(address));
        assert!(!reported, "{error}");
    }
    let url = check_url("https://not-yet.example.com/", &nowhere).unwrap();
    resolver.vet(&url, &nowhere).await.expect("who is to have the name may not have it yet");
}

#[tokio::test]
async fn benign_urls_are_taken_as_they_are() {
    let resolver = Resolver::new(|_| Ok(vec!["93.184.216.34".parse().unwrap(), "2606:4700::1111".parse().unwrap()]));
    let nowhere = AllowedNetworks::default();
    let cases = [
        ("https://example.com/hook", "https://example.com/hook"),
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM/Hook?tenant=a%20b&x=@", "https://example.com/Hook?tenant=a%20b&x=@"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        ("https://example.com:1024/a", "https://example.com:1024/a"),
        ("https://hooks.b\u{fc}cher.example/", "https://hooks.xn--bcher-kva.example/"),
        ("https://\u{4f8b}\u{3048}.jp/", "https://xn--r8jz45g.jp/"),
        ("https://a-b.c_d.example.co.uk/x", "https://a-b.c_d.example.co.uk/x"),
        ("https://93.184.216.34/", "https://93.184.216.34/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("https://1.1.1.1:9443/", "https://1.1.1.1:9443/"),
        ("https://localhost.example.com/", "https://localhost.example.com/"),
        ("https://internal-api.example.com/", "https://internal-api.example.com/"),
        ("https://172.15.0.1/", "https://172.15.0.1/"),
        ("https://homearpa.com/", "https://homearpa.com/"),
    ];
    for (url, kept) in cases {
        let taken = check_url(url, &nowhere).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(taken.as_str(), kept);
        resolver.vet(&taken, &nowhere).await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_lets_a_webhook_reach_the_networks_that_are_named_and_no_others() {
    let allowed: AllowedNetworks = "10.1.0.0/16,::1/128".parse().unwrap();
    let inside: IpAddr = "10.1.2.3".parse().unwrap();
    let resolver = Resolver::new(move |name| {
        Ok(if name == "ledger" { vec![inside] } else { vec!["93.184.216.34".parse().unwrap()] })
    });
    let vet = async |text: &str| resolver.vet(&check_url(text, &allowed)?, &allowed).await;
    for url in
        ["https://10.1.2.3/", "http://10.1.2.3:80/", "http://[::1]:9000/", "http://ledger/", "https://ledger:22/"]
    {
        assert_eq!(vet(url).await, Ok(()), "{url}");
    }
    assert_eq!(vet("https://example.com/").await, Ok(()));
    for url in ["https://10.2.0.1/", "https://127.0.0.1/", "http://169.254.169.254/", "https://[fd00::1]/"] {
        assert!(matches!(vet(url).await, Err(WebhookUrlError::Private(_))), "{url}");
    }
    // What is not encrypted does not leave the house.
    assert_eq!(vet("http://93.184.216.34/").await, Err(WebhookUrlError::Scheme("http".into())));
    assert!(vet("http://example.com/").await.is_err());
    assert!(vet("https://user@10.1.2.3/").await.is_err());
}

#[tokio::test]
async fn a_name_is_taken_with_up_to_64_addresses_all_of_which_are_vetted() {
    let nowhere = AllowedNetworks::default();
    let named = async |count: usize, inside: bool| {
        let mut addresses: Vec<IpAddr> = (0..count).map(|at| format!("93.184.216.{at}").parse().unwrap()).collect();
        addresses.extend(inside.then(|| "10.1.2.3".parse::<IpAddr>().unwrap()));
        let resolver = Resolver::new(move |_| Ok(addresses.clone()));
        let url = check_url("https://example.com/", &nowhere).unwrap();
        (resolver.vet(&url, &nowhere).await, resolver.vetted("example.com", Scheme::Https, &nowhere).await)
    };
    for count in [1, 64] {
        let (registered, delivered) = named(count, false).await;
        assert_eq!((registered, delivered.unwrap().len()), (Ok(()), count));
    }
    for count in [0, 65] {
        let (registered, delivered) = named(count, false).await;
        assert!(matches!(registered, Err(WebhookUrlError::Private(_))), "{count}");
        assert!(matches!(delivered, Err(ResolveError::Count(reported)) if reported == count), "{count}");
    }
    let (registered, delivered) = named(63, true).await;
    assert!(matches!(registered, Err(WebhookUrlError::Private(_))));
    assert!(matches!(delivered, Err(ResolveError::Blocked)));
}

#[tokio::test]
async fn names_that_nobody_answers_for_are_asked_for_by_some_who_register_at_once_and_hold_up_no_delivery() {
    let ((open, gate), asked) = (mpsc::channel::<()>(), Arc::new(AtomicUsize::new(0)));
    let (gate, counted) = (Mutex::new(gate), Arc::clone(&asked));
    let resolver = Resolver::new(move |name| {
        if name != "example.com" {
            counted.fetch_add(1, Ordering::Relaxed);
            assert!(gate.lock().unwrap().recv().is_err(), "until the test ends");
        }
        Ok(vec!["93.184.216.34".parse().unwrap()])
    });
    let nowhere = AllowedNetworks::default();
    let urls: Vec<_> =
        (0..600).map(|index| check_url(&format!("https://{index}.tarpit.example/"), &nowhere).unwrap()).collect();
    let registered = join_all(urls.iter().map(|url| resolver.vet(url, &nowhere)));
    let (registered, delivered) = tokio::join!(registered, resolver.vetted("example.com", Scheme::Https, &nowhere));
    assert!(registered.iter().all(Result::is_ok), "who is to have the name may not have it yet");
    assert_eq!((delivered.unwrap().len(), asked.load(Ordering::Relaxed)), (1, 32));
    drop(open);
}

/// A resolver that says nothing until the sender is dropped, and how often it was asked.
fn silent() -> (Resolver, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let ((open, gate), asked) = (mpsc::channel::<()>(), Arc::new(AtomicUsize::new(0)));
    let (gate, counted) = (Mutex::new(gate), Arc::clone(&asked));
    let resolver = Resolver::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(gate.lock().unwrap().recv().is_err(), "until the test ends");
        Ok(vec!["93.184.216.34".parse().unwrap()])
    });
    (resolver, open, asked)
}

#[tokio::test]
async fn a_name_that_nobody_answers_for_is_asked_for_once_however_many_deliveries_want_it() {
    let (resolver, open, asked) = silent();
    let nowhere = AllowedNetworks::default();
    let begun = Instant::now();
    let delivered = join_all((0..600).map(|_| resolver.vetted("tarpit.example", Scheme::Https, &nowhere))).await;
    assert!(delivered.iter().all(|tried| matches!(tried, Err(ResolveError::TimedOut))));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(resolver.is_looked_up("tarpit.example"), "in vain: who attempts it now is told so at once");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let other = tokio::time::timeout(Duration::from_secs(10), tokio::task::spawn_blocking(|| 7));
    assert_eq!(other.await.expect("a thread is left").unwrap(), 7);
    drop(open);
    resolver.answered().await;
    assert_eq!(resolver.vetted("tarpit.example", Scheme::Https, &nowhere).await.unwrap().len(), 1);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "late as it is, the answer serves");
}

#[tokio::test]
async fn a_name_for_which_there_is_no_place_has_not_failed_and_is_asked_for_when_there_is_one() {
    let (resolver, open, asked) = silent();
    for index in 0..512 {
        assert!(!resolver.is_looked_up(&format!("{index}.tarpit.example")));
    }
    let until = Instant::now() + Duration::from_secs(60);
    while asked.load(Ordering::Relaxed) < 512 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!resolver.is_looked_up("late.example"));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(resolver.is_looked_up("7.tarpit.example"), "in vain");
    assert!(!resolver.is_looked_up("late.example"), "the time without a place is nobody's");
    assert_eq!(asked.load(Ordering::Relaxed), 512);
    drop(open);
    while !resolver.is_looked_up("late.example") && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asked.load(Ordering::Relaxed), 513);
    let nowhere = AllowedNetworks::default();
    assert_eq!(resolver.vetted("late.example", Scheme::Https, &nowhere).await.unwrap().len(), 1);
}

#[tokio::test]
async fn names_that_failed_before_leave_half_of_the_places_to_others() {
    let ((open, gate), silent) = (mpsc::channel::<()>(), Arc::new(AtomicUsize::new(0)));
    let (failed, counted) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::clone(&silent));
    let (gate, once) = (Mutex::new(gate), Arc::clone(&failed));
    let resolver = Resolver::new(move |name| {
        if name == "well.example" {
            return Ok(vec!["93.184.216.34".parse().unwrap()]);
        }
        // Once it fails, and then it says nothing any more.
        if !once.lock().unwrap().insert(name.to_owned()) {
            counted.fetch_add(1, Ordering::Relaxed);
            assert!(gate.lock().unwrap().recv().is_err(), "until the test ends");
        }
        Err(io::ErrorKind::NotFound.into())
    });
    let nowhere = AllowedNetworks::default();
    let names: Vec<String> = (0..600).map(|index| format!("{index}.tarpit.example")).collect();
    let until = Instant::now() + Duration::from_secs(60);
    let are_there = || failed.lock().unwrap().len() == 600 && silent.load(Ordering::Relaxed) >= 256;
    while !are_there() && Instant::now() < until {
        names.iter().for_each(|name| _ = resolver.is_looked_up(name));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    names.iter().for_each(|name| _ = resolver.is_looked_up(name));
    assert_eq!(resolver.vetted("well.example", Scheme::Https, &nowhere).await.unwrap().len(), 1);
    assert_eq!((failed.lock().unwrap().len(), silent.load(Ordering::Relaxed)), (600, 256));
    drop(open);
}
