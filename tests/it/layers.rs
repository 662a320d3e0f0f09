//! The house keeps its shape: floors, walls, headers, migrations, networks, and nothing left for later.
//!
//! Reads the sources as text, without their comments: what is named by a path counts, also in tests beside the code.
//! A change to a table here is a decision about the house; write it down in docs/decisions/.

use std::fs;
use std::path::{Path, PathBuf};

use landfall_chain::{Chain, Family};
use sha2::{Digest, Sha256};

/// Each room and the rooms it may name, lowest floor first.
const ROOMS: [(&str, &str); 33] = [
    // 2: pure. Each names only what stands before it; randomness is an argument.
    ("amount", ""),
    ("time", ""),
    ("random", ""),
    ("secrets", ""),
    ("printable", ""),
    ("deposit", "amount time"),
    ("request", "deposit"),
    ("identity", "printable request"),
    ("event", "amount time deposit identity"),
    ("account", "amount time request identity"),
    ("balance", "time account"),
    ("key", "amount time"),
    ("webhook", "amount time"),
    ("incident", "time deposit"),
    ("decision", "time incident"),
    // 3: SQL over the types of floor 2.
    ("store", "amount time secrets deposit event request identity account balance key webhook incident decision"),
    // What names of webhooks stand for, vetted.
    ("resolver", "webhook"),
    // What is registered, through whichever door.
    ("registry", "amount time printable deposit event request identity account key webhook decision store resolver"),
    // What operators decide about chains and identities, whoever asks for it.
    ("operator", "time printable deposit event request identity incident decision store"),
    // Whose turn it is at work that one process at a time does.
    ("turn", "time store"),
    // Under which names that is served which asks for no key.
    ("hosts", ""),
    // 4: never each other, they meet in the database.
    ("watcher", "amount time deposit event request identity account balance key webhook incident decision store turn"),
    ("delivery", "amount time deposit event request identity account key webhook store resolver"),
    ("feed", "time store turn"),
    // What a client has at the other end of a webhook; it knows neither store nor delivery.
    ("receiver", "time event webhook"),
    (
        "api",
        "amount time random deposit event request identity account balance key webhook decision store registry hosts",
    ),
    ("health", "amount time deposit event request identity account key webhook incident decision store hosts"),
    // Between 4 and 5: reads into the settings of the rooms below, opens nothing.
    (
        "config",
        "amount time secrets deposit event request identity account key webhook store registry watcher delivery api health",
    ),
    // 5: the composition root.
    (
        "app",
        "amount time random deposit event request identity account key webhook store resolver registry watcher delivery feed api health config",
    ),
    // 6: the program.
    ("telemetry", ""),
    (
        "sandbox",
        "amount time random deposit event request identity account key webhook decision store resolver registry watcher delivery feed receiver api health config app",
    ),
    (
        "cli",
        "amount time random secrets printable deposit event request identity account balance key webhook incident decision store resolver registry operator watcher delivery feed receiver api health config app sandbox",
    ),
    ("main", "cli telemetry"),
];
const PURE: &str =
    "amount time random secrets printable deposit event request identity account balance key webhook incident decision";
/// Foreign crates and the rooms that may name them.
const CRATES: [(&str, &str); 11] = [
    ("sqlx", "store"),
    ("hyper", "app api"),
    ("async_nats", "delivery"),
    ("landfall_evm", "app"),
    ("landfall_solana", "app"),
    ("landfall_rpc", ""),
    ("landfall_sim", ""),
    ("landfall_node", ""),
    ("landfall_cluster", ""),
    ("alloy", ""),
    ("solana", ""),
];
/// What a crate of chains/ may name of the house. Who is not listed is a family of chains, and may name what they share.
const SHARED: [(&str, &str); 3] = [("chain", ""), ("rpc", "landfall-chain"), ("sim", "landfall-chain")];
const FAMILY: &str = "landfall-chain landfall-rpc";
/// Who may name the server that shows its family's chain, for tests: it stands on `chain` alone.
const SERVERS: [(&str, &str); 1] = [("solana", "landfall-cluster")];
/// The crate of chains/ that alone may name an SDK, by how the SDK's crates begin.
const SDKS: [(&str, &str); 4] = [("alloy", "evm"), ("solana", "solana"), ("spl", "solana"), ("five8", "solana")];
/// No migration is edited once it is released: its hash stands here. A change to the schema is a new file.
const MIGRATIONS: [(&str, &str); 34] = [
    ("0001_init.sql", "bcb5b2df17fa669ceee913746a551dffe9716f435ad62ae9b0599eb6d1650ce6"),
    ("0002_movements.sql", "43eb6127b5e66168a334d5c079cf6ce8dfd81978793b5214ed503fd1cc353cc0"),
    ("0003_incidents.sql", "9f31b48118ddbba99ba10fa5eced51ce9537a8d11c1815a38db66363cde16112"),
    ("0004_backfills.sql", "64db334d6d90a90a279849fd97a60fcfd0ef478cca85183ec9ad75a315f8196a"),
    ("0005_incidents_of_deposits.sql", "826091baecf5169800d2be3c714bca2b52ae2dcf5b7d0ab11be22da387eba451"),
    ("0006_endpoint_latency.sql", "12664593fe5661ae83886ec20a2ed6c13913a77a9b372a1ac3eff85265e1d7bb"),
    ("0007_trace_witnesses.sql", "3b2f287e8c529495af32ba9786c0a6432884cdc82c2c0f5d77f2d8e976d02207"),
    ("0008_kept_witnesses.sql", "ad054e1336d9f0390c47140b27653d9c660f5be6f2088e94faa8e8eb62f173ac"),
    ("0009_native_settings.sql", "b11662fc750c800f03663751d5a2aee3e5fc53bdd4b9ec022e520d2d5b59a2e3"),
    ("0010_solana_books.sql", "754bf48daa87ef2bbf64a39761895b8bb38e2a722259eb1b1f23ef4ab35f64a0"),
    ("0011_asset_facts.sql", "429c04fec892852c4fbcc7c8b97b847af7e4b3620bce2968f9efc35e2b832d79"),
    ("0012_auth.sql", "59e67b9413da2f66e90fdc8915b8b53457a1c5aa12b244f3ede7084e1f08c0f3"),
    ("0013_webhooks.sql", "e7bb8febee9c256597edbaed9eac70152bfc38742c903cd512e6bf5e778c30dd"),
    ("0014_identities.sql", "061c9886c14636e66f09e944e4c63cad4063a36558d9189e54d7c3eda7efaa5f"),
    ("0015_delivery_queues.sql", "db0a25ee7bdbcabb95e4bb41c9f7f9943bbd079342d49dcd87b9b3f7c0220310"),
    ("0016_feed.sql", "fa66c7c9501c5dc2c6cb86ee60224206f33f3d5f09c4add3012d1866866bfb96"),
    ("0017_balances.sql", "a3a83852d218ac4b505afa0b056e570c4fed17ec5330d5b114af52adec6828f8"),
    ("0018_delivery_strain.sql", "f0407b07ac89fde84bc0dda3ed6ee392d7670419cdecc20b035efd8916edd83c"),
    ("0019_balances_followed.sql", "3513c46c1d64d4208f798f7d6cf57b6703c498e652e6b28e2f667972049720b2"),
    ("0020_nats.sql", "1637bc66359beb79f221d475412fd2ef71f9a6f337ee849c247ee7a5114c489f"),
    ("0021_deposits_of_a_kind.sql", "b26e4331cb565b20622ad3e0d174b1103242a5db671555edfc9c57ee07f8cd23"),
    ("0022_identity_events.sql", "e427ec2b7e1868c4a72f8e40cca1da085c89427074f687940a0b90182b8056bb"),
    ("0023_looked.sql", "029f32bafde69ffc152caefa0f813d94efcb55f1cb1f31f8b4b8adc8daece18a"),
    ("0024_unexplained.sql", "c129066aaa6e51bd69f30d773a8afa9e5237c69a6f5a6541d2382ee6c289a2ae"),
    ("0025_account_pages.sql", "b7be17356c8b41e685cab6b1b2ffdd6802a9d313cd564a8f57386352261749a3"),
    ("0026_deposit_pages.sql", "f3ab71c3d15b1a7ba367eafc61c3ceee5a8465e33e62be330cf07e60e636560a"),
    ("0027_webhooks_kept.sql", "acf107eea18ec30af4848d7fa5413bc7cd0d2df55967d5fd59be68a5017237d4"),
    ("0028_kinds_of_deposits.sql", "d0959c9495339a771ac2582bf45cb0ff66b65d3666be050fa7d6b8a3e88bf509"),
    ("0029_backfills_of_many.sql", "a9ac5197fe35a7e567462caf2668ab2894eaa876591f9b3353d5f8193822a57d"),
    ("0030_levels_of_backfills.sql", "95764652c651c0cfb42ab58982d9d434eb1f5b8ee0ed8cfaaa9a04c1b91dae25"),
    ("0031_believed_when_proved.sql", "8f33c2293ca91ce86188df47fcaa0f8798d0a8339f8d7a5f39ae4f0ba25ae715"),
    ("0032_balance_short.sql", "940f80aa6c96ede781f695936d9e18570a4e2252d18ff587cd833b9311459ccd"),
    ("0033_held_assets.sql", "8259dbcf0a93d885bf01c9a6c194d98948f8d19f8254544ce7c3ad817db5922b"),
    ("0034_keys_of_an_environment.sql", "5daa0981429371c08f48b341f854ea5c7575c1329aaba73d5eea28a975ab5f23"),
];
/// What a finished house does not have. Written in two parts, because this file is searched too.
const LEFTOVERS: [(&str, &str); 4] = [
    (concat!("todo", "!("), "do it"),
    (concat!("unimplemented", "!("), "implement it"),
    (concat!("#[", "ignore"), "a test that cannot run fails and says what to install"),
    (concat!("[", "allow("), "write #[expect(.., reason = \"..\")]"),
];

#[test]
fn each_room_names_only_rooms_of_lower_floors() {
    let faults: Vec<String> = sources("src").iter().flat_map(|(path, text)| floor_faults(path, text)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_broken_floor_is_told_with_its_line_and_what_to_do() {
    let text = "//! Sends; `crate::watcher` is not named here.\nuse crate::store::Db;\n\
                use crate::{\n    time::{Clock, crate_watcher},\n    watcher::Watcher, // at last\n};\n\
                fn f() { super::super::api::router(); crate::random::number(); sqlx::query(\"\"); }\n\
                use solana_sdk as chain;\n";
    let expected = [
        "src/delivery/send.rs:5: delivery names watcher, and may name only amount time deposit event request identity account key webhook store resolver; \
         pass it in from app, or let the two meet in the database",
        "src/delivery/send.rs:7: delivery names api, and may name only amount time deposit event request identity account key webhook store resolver; \
         pass it in from app, or let the two meet in the database",
        "src/delivery/send.rs:7: delivery names random, and may name only amount time deposit event request identity account key webhook store resolver; \
         pass it in from app, or let the two meet in the database",
        "src/delivery/send.rs:7: delivery names the crate sqlx, which is for store only",
        "src/delivery/send.rs:8: delivery names the crate solana, which is for no room of src",
    ];
    assert_eq!(floor_faults(Path::new("src/delivery/send.rs"), text), expected);
    let pure = floor_faults(Path::new("src/event.rs"), "use tokio::time::sleep;\nuse super::account::Row;\n");
    assert_eq!(pure.len(), 2, "{pure:?}");
    assert_eq!(pure[0], "src/event.rs:1: event names the crate tokio, and is pure: what waits belongs on floor 4");
    assert!(floor_faults(Path::new("src/main.rs"), "landfall::store::Db::open();")[0].contains("main names store"));
    assert!(floor_faults(Path::new("src/cellar/mod.rs"), "")[0].contains("cellar stands on no floor"));
    assert_eq!(floor_faults(Path::new("src/store/db.rs"), text).len(), 4, "watcher, api, random, solana: not sqlx");
}

#[test]
fn the_walls_of_the_crates_stand() {
    let manifest = |path: &str| fs::read_to_string(root().join(path)).unwrap().parse::<toml::Table>().unwrap();
    let house = manifest("Cargo.toml");
    for name in crates_listed(&house, &["dependencies", "build-dependencies"]) {
        let is_sdk = SDKS.iter().any(|(sdk, _)| name.starts_with(sdk));
        let sdk = is_sdk || ["landfall-sim", "landfall-node", "landfall-cluster"].contains(&name.as_str());
        assert!(!sdk, "Cargo.toml: the house depends on {name}, which belongs to chains/* or to tests");
    }
    for member in fs::read_dir(root().join("chains")).unwrap() {
        let member = member.unwrap().file_name().display().to_string();
        let crate_ = manifest(&format!("chains/{member}/Cargo.toml"));
        let tests = crates_listed(&crate_, &["dev-dependencies"]);
        let tests = tests.into_iter().filter(|name| !SERVERS.contains(&(member.as_str(), name.as_str())));
        for name in crates_listed(&crate_, &["dependencies", "build-dependencies"]).into_iter().chain(tests) {
            let fault = wall_fault(&member, &name);
            assert_eq!(fault, None, "chains/{member}/Cargo.toml");
        }
    }
}

#[test]
fn a_broken_wall_is_told_with_what_to_do() {
    let stands = [("chain", "serde"), ("rpc", "landfall-chain"), ("evm", "landfall-rpc"), ("evm", "alloy-trie")];
    let broken = [
        ("evm", "sqlx", "chains read chains; what is stored is the store's"),
        ("chain", "landfall-rpc", "chain may name nothing of the house"),
        ("rpc", "landfall-evm", "rpc may name only landfall-chain"),
        ("solana", "landfall-evm", "solana may name only landfall-chain landfall-rpc"),
        ("rpc", "alloy", "alloy belongs to chains/evm"),
        ("evm", "spl-token-interface", "spl-token-interface belongs to chains/solana"),
    ];
    for (member, name) in stands {
        assert_eq!(wall_fault(member, name), None, "{member} {name}");
    }
    for (member, name, fault) in broken {
        assert_eq!(wall_fault(member, name).as_deref(), Some(fault), "{member} {name}");
    }
}

#[test]
fn a_crate_is_seen_behind_another_name_and_for_one_target() {
    let manifest = "[dependencies]\nserde = '1'\nbase = { package = 'sqlx', version = '1' }\n\
                    [target.'cfg(unix)'.dependencies]\nalloy.workspace = true\n[dev-dependencies]\nhex = '1'\n";
    let mut listed = crates_listed(&manifest.parse().unwrap(), &["dependencies"]);
    listed.sort_unstable();
    assert_eq!(listed, ["alloy", "serde", "sqlx"]);
    let house: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let shared = house["workspace"]["dependencies"].as_table().unwrap();
    let renamed: Vec<&str> = shared.values().filter_map(|how| how.get("package")?.as_str()).collect();
    assert_eq!(renamed, ["const-hex"], "what a crate lists as `.workspace` has its own name");
}

#[test]
fn the_map_names_every_room_and_every_folder_of_chains_and_tests() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = text.split("## The map").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: Vec<&str> = map.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for folder in ["src", "chains", "tests"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().display().to_string();
            let name = name.trim_end_matches(".rs");
            assert!(name == "lib" || named.contains(&name), "ARCHITECTURE.md, the map: {folder}/{name} has no row");
        }
    }
}

#[test]
fn every_source_file_says_first_what_it_is_responsible_for() {
    for (path, text) in all_sources() {
        let header = text.starts_with("//! ") || text.starts_with("//!\n");
        assert!(header, "{}:1: begin with //!: what it is for, what it promises, what it does not do", path.display());
    }
}

#[test]
fn nothing_is_left_for_later() {
    for (path, text) in all_sources() {
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let found = LEFTOVERS.iter().find(|(leftover, _)| code.contains(leftover));
            assert_eq!(found.map(|(_, instead)| instead), None, "{}:{number}: {line}", path.display());
        }
    }
}

#[test]
fn migrations_are_numbered_without_gaps_and_never_edited() {
    let mut files: Vec<_> = fs::read_dir(root().join("migrations")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert_eq!(
        files.len(),
        MIGRATIONS.len(),
        "list each file of migrations/ with its sha256 in MIGRATIONS, and no other"
    );
    assert_eq!(files.len(), landfall::store::MIGRATIONS.len(), "store::MIGRATIONS lists each file of migrations/");
    for (index, file) in files.iter().enumerate() {
        let text = fs::read_to_string(file).unwrap();
        let (name, expected) = MIGRATIONS[index];
        let (version, description, embedded) = landfall::store::MIGRATIONS[index];
        assert_eq!(file.file_name().unwrap(), name);
        assert_eq!(version, i64::try_from(index + 1).unwrap(), "versions have no gaps");
        assert_eq!(name, format!("{version:04}_{description}.sql"));
        assert!(embedded == text, "store::MIGRATIONS embeds another text as {name}");
        let hash = hex::encode(Sha256::digest(&text));
        assert_eq!(hash, expected, "migrations/{name} was edited; databases that have it would differ: add a new file");
    }
}

#[test]
fn every_chain_of_the_interface_has_its_network() {
    for (family, name, count, networks) in
        [(Family::Evm, "evm", 8, landfall_evm::networks()), (Family::Solana, "solana", 2, landfall_solana::networks())]
    {
        let chains: Vec<Chain> = Chain::ALL.into_iter().filter(|chain| chain.family() == family).collect();
        assert_eq!(chains.len(), count);
        let listed: Vec<Chain> = networks.iter().map(|network| network.chain).collect();
        assert_eq!(listed, chains, "one network each, in the interface's order");
        for chain in chains {
            let file = root().join(format!("chains/{name}/networks/{}.toml", chain.name().to_lowercase()));
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let table: toml::Table = text.parse().unwrap();
            assert_eq!(table["chain"].as_str(), Some(chain.name()), "{}: the interface's name", file.display());
        }
    }
}

/// The crates that a manifest lists by their own names: also those that it renames, and those for some targets only.
fn crates_listed(manifest: &toml::Table, kinds: &[&str]) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let listed = tables.flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table())).flatten();
    let own_name = |(name, how): (&String, &toml::Value)| {
        how.get("package").and_then(|own| own.as_str()).unwrap_or(name).to_owned()
    };
    listed.map(own_name).collect()
}

/// Why the crate `member` of chains/ must not depend on the crate `name`.
fn wall_fault(member: &str, name: &str) -> Option<String> {
    if name.starts_with("sqlx") {
        return Some("chains read chains; what is stored is the store's".to_owned());
    }
    let may = SHARED.iter().find(|(shared, _)| *shared == member).map_or(FAMILY, |(_, may)| may);
    if name.starts_with("landfall") && !may.split(' ').any(|may| may == name) {
        let only = if may.is_empty() { "nothing of the house".to_owned() } else { format!("only {may}") };
        return Some(format!("{member} may name {only}"));
    }
    let (_, owner) = SDKS.iter().find(|(sdk, owner)| name.starts_with(sdk) && *owner != member)?;
    Some(format!("{name} belongs to chains/{owner}"))
}

/// What in `text`, the source file at `path`, breaks a floor or a wall: a line each.
fn floor_faults(path: &Path, text: &str) -> Vec<String> {
    let room = path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().replace(".rs", "")).unwrap();
    if room == "lib" {
        return Vec::new();
    }
    let Some((_, lower)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}: {room} stands on no floor; give it a line in ROOMS of {}", path.display(), file!())];
    };
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut faults = Vec::new();
    for (at, named) in named_rooms(&code) {
        if named != room && !lower.split(' ').any(|may| may == named) {
            let instead = "pass it in from app, or let the two meet in the database";
            faults.push((at, format!("{room} names {named}, and may name only {lower}; {instead}")));
        }
    }
    for (name, rooms) in CRATES {
        if !rooms.split(' ').any(|may| may == room) {
            let only = if rooms.is_empty() { "no room of src" } else { rooms };
            let only = if rooms.is_empty() { only.to_owned() } else { format!("{only} only") };
            faults.extend(
                crates_named(&code, name).map(|at| (at, format!("{room} names the crate {name}, which is for {only}"))),
            );
        }
    }
    if PURE.split(' ').any(|pure| pure == room) {
        let fault = format!("{room} names the crate tokio, and is pure: what waits belongs on floor 4");
        faults.extend(crates_named(&code, "tokio").map(|at| (at, fault.clone())));
    }
    faults.sort();
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    faults.into_iter().map(|(at, fault)| format!("{}:{}: {fault}", path.display(), line(at))).collect()
}

/// The rooms that paths from the root, or upward, lead to, and where: `crate::a::b`, `crate::{a, b::c}`, `super::a`.
fn named_rooms(code: &str) -> Vec<(usize, &str)> {
    let mut named = Vec::new();
    for prefix in ["crate::", "landfall::", "super::"] {
        for (at, _) in code.match_indices(prefix).filter(|(at, _)| begins_word(code, *at)) {
            let start = at + prefix.len();
            if !code[start..].starts_with('{') {
                named.push((start, word(code, start)));
                continue;
            }
            let mut depth = 0;
            let mut begins = false;
            for (offset, c) in code[start..].char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ' ' | '\n' => continue,
                    _ if begins && depth == 1 => named.push((start + offset, word(code, start + offset))),
                    _ => {}
                }
                begins = c == '{' || c == ',';
                if depth == 0 {
                    break;
                }
            }
        }
    }
    named.retain(|(_, name)| ROOMS.iter().any(|(room, _)| room == name));
    named
}

/// Where the crate is named: as the beginning of a path, of a `use` or of an attribute.
fn crates_named<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let names = |at: usize| {
        let end = at + word(code, at).len();
        let used = code[..at].ends_with("use ") || code[..at].ends_with("#[");
        begins_word(code, at) && (used || code[end..].starts_with("::"))
    };
    code.match_indices(name).map(|(at, _)| at).filter(move |at| names(*at))
}

fn begins_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn word(code: &str, start: usize) -> &str {
    let rest = &code[start..];
    &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())]
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let all: Vec<_> = ["src", "chains", "tests"].into_iter().flat_map(sources).collect();
    assert!(all.len() > 50, "the sources were not found");
    all
}

/// The source files below a folder of the repository, by their paths in it.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
