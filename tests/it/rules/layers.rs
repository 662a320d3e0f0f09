//! The house keeps its shape: floors, walls, headers, migrations, networks, and nothing left for later.
//!
//! Reads the sources as text, without their comments: what is named by a path counts, also in tests beside the code.
//! A change to a table here is a decision about the house; write it down in docs/decisions/.

use std::fs;
use std::path::{Path, PathBuf};

use landfall_chain::{Chain, Family};

/// Each room and the rooms it may name, lowest floor first.
const ROOMS: [(&str, &str); 39] = [
    // 2: pure. Each names only what stands before it; randomness is an argument.
    ("amount", ""),
    ("time", ""),
    ("random", ""),
    ("secrets", ""),
    ("printable", ""),
    ("deposit", "amount time"),
    ("request", "deposit"),
    ("identity", "printable request"),
    ("account", "amount time request identity"),
    ("balance", "time account"),
    ("gas", "amount time"),
    ("transfer", "time deposit request gas"),
    ("event", "amount time deposit identity gas transfer"),
    ("key", "amount time"),
    ("webhook", "amount time"),
    ("incident", "time deposit"),
    ("overrides", "time incident"),
    ("policy", "amount time deposit"),
    // 3: SQL over the types of floor 2.
    (
        "store",
        "amount time secrets deposit event request identity account balance gas transfer key webhook incident overrides policy",
    ),
    // What names of webhooks stand for, vetted.
    ("resolver", "webhook"),
    // What is registered, through whichever door.
    (
        "registry",
        "amount time printable deposit event request identity account balance gas transfer key webhook overrides policy store resolver",
    ),
    // What operators decide about chains and identities, whoever asks for it.
    ("operator", "time printable deposit event request identity gas transfer incident overrides policy store"),
    // Whose turn it is at work that one process at a time does.
    ("lease", "time store"),
    // Under which names that is served which asks for no key.
    ("hosts", ""),
    // 4: never each other, they meet in the database.
    (
        "watcher",
        "amount time deposit event request identity account balance key webhook incident overrides store lease",
    ),
    // Sends transfers; it meets the watcher in the record of blocks.
    ("sender", "time deposit event request identity account balance gas transfer incident store lease"),
    ("delivery", "amount time deposit event request identity account key webhook store resolver"),
    ("feed", "time store lease"),
    // Reads what native currencies cost; the sender finds it in the store.
    ("prices", "time gas store"),
    // What a client has at the other end of a webhook; it knows neither store nor delivery.
    ("receiver", "time event webhook"),
    (
        "api",
        "amount time random deposit event request identity account balance gas transfer key webhook overrides policy store registry hosts",
    ),
    (
        "health",
        "amount time deposit event request identity account transfer key webhook incident overrides store hosts",
    ),
    // Asks chains and the signer what the sender would ask; changes nothing.
    ("doctor", "amount time gas transfer store"),
    // Between 4 and 5: reads into the settings of the rooms below, opens nothing.
    (
        "config",
        "amount time secrets deposit event request identity account gas key webhook store registry watcher sender delivery prices api health",
    ),
    // 5: the composition root.
    (
        "app",
        "amount time random deposit event request identity account key webhook store resolver registry watcher sender delivery feed prices api health doctor config",
    ),
    // 6: the program.
    ("telemetry", ""),
    (
        "sandbox",
        "amount time random deposit event request identity account gas transfer key webhook overrides store resolver registry operator watcher sender delivery feed receiver api health config app",
    ),
    (
        "cli",
        "amount time random secrets printable deposit event request identity account balance gas transfer key webhook incident overrides policy store resolver registry operator watcher sender delivery feed receiver api health doctor config app sandbox",
    ),
    ("main", "cli telemetry"),
];
const PURE: &str = "amount time random secrets printable deposit request identity account balance gas transfer event key webhook incident overrides policy";
/// Foreign crates and the rooms that may name them.
const CRATES: [(&str, &str); 12] = [
    ("sqlx", "store"),
    ("hyper", "app api"),
    ("async_nats", "delivery"),
    ("landfall_evm", "app"),
    ("landfall_solana", "app"),
    // Who composes it, and who makes a keystore: the verbs, and the play.
    ("landfall_signer", "app cli sandbox"),
    ("landfall_rpc", ""),
    ("landfall_sim", ""),
    ("landfall_node", ""),
    ("landfall_cluster", ""),
    ("alloy", ""),
    ("solana", ""),
];
/// What a crate of chains/ may name of the house. Who is not listed is a family of chains, and may name what they
/// share.
const SHARED: [(&str, &str); 3] = [("chain", ""), ("rpc", "landfall-chain"), ("sim", "landfall-chain")];
const FAMILY: &str = "landfall-chain landfall-rpc";
/// What the signer may name of the house: what is asked of it, and how a family encodes what it signs.
const SIGNER: &str = "landfall-chain landfall-evm landfall-solana";
/// Stores and networks: whoever holds the keys has neither.
const NOT_BESIDE_KEYS: [&str; 7] = ["sqlx", "reqwest", "hyper", "axum", "async-nats", "rustls", "socket2"];
/// Who may name the server that shows its family's chain, for tests: it stands on `chain` alone.
const SERVERS: [(&str, &str); 1] = [("solana", "landfall-cluster")];
/// The crate of chains/ that alone may name an SDK, by how the SDK's crates begin.
const SDKS: [(&str, &str); 4] = [("alloy", "evm"), ("solana", "solana"), ("spl", "solana"), ("five8", "solana")];
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

/// The rooms of `src/watcher` and those that each may name, lowest first.
const ROOMS_OF_WATCHER: [(&str, &str); 11] = [
    ("error", ""),
    ("read", ""),
    ("retries", ""),
    ("balances", "error"),
    ("assets", "error"),
    ("books", "error read"),
    ("settle", "error books balances"),
    ("traces", "error read retries books settle"),
    ("follow", "error read retries books settle"),
    ("past", "error read books settle traces"),
    ("explain", "error books"),
];

#[test]
fn rooms_of_the_watcher_name_only_rooms_below_them() {
    let mut faults = Vec::new();
    for (path, text) in sources("src/watcher") {
        let room = path.components().nth(2).unwrap().as_os_str().to_string_lossy().replace(".rs", "");
        let Some((_, lower)) = ROOMS_OF_WATCHER.iter().find(|(name, _)| *name == room) else {
            assert_eq!(room, "mod", "{}: give it a line in ROOMS_OF_WATCHER", path.display());
            continue;
        };
        let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        for named in
            code.split("crate::watcher::").skip(1).filter_map(|rest| rest.split_once("::").map(|(name, _)| name))
        {
            let Some((named, _)) = ROOMS_OF_WATCHER.iter().find(|(name, _)| *name == named) else { continue };
            if *named != room && !lower.split(' ').any(|may| may == *named) {
                faults.push(format!("{}: {room} names {named}, and may name only {lower}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Who may touch all of a `Follower`: who follows, and who settles what was followed.
const ROOMS_THAT_EXTEND_THE_WATCHER: [&str; 3] = ["mod", "follow", "settle"];

#[test]
fn the_watcher_is_extended_only_by_who_follows_and_who_settles() {
    for (path, text) in sources("src/watcher") {
        let room = path.components().nth(2).unwrap().as_os_str().to_string_lossy().replace(".rs", "");
        let extends = text.lines().any(|line| line.starts_with("impl") && line.ends_with(" Follower<S> {"));
        let may = ROOMS_THAT_EXTEND_THE_WATCHER.contains(&room.as_str());
        assert!(may || !extends, "{}: extend `Books`, which all share, and no `Follower`", path.display());
    }
}

#[test]
fn a_broken_floor_is_reported_with_its_line_and_what_to_do() {
    let text = "//! Sends; `crate::watcher` is not named here.\nuse crate::store::Db;\n\
                use crate::{\n    time::{Clock, crate_watcher},\n    watcher::Follower, // at last\n};\n\
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
fn the_signer_has_neither_store_nor_network() {
    let manifest: toml::Table = fs::read_to_string(root().join("signer/Cargo.toml")).unwrap().parse().unwrap();
    let names = crates_listed(&manifest, &["dependencies", "build-dependencies"]);
    assert!(!names.is_empty());
    for name in names {
        assert_eq!(signer_fault(&name), None, "signer/Cargo.toml");
    }
    let broken = [
        ("sqlx", "whoever holds the keys has neither store nor network"),
        ("hyper-util", "whoever holds the keys has neither store nor network"),
        ("landfall-rpc", "the signer may name only landfall-chain landfall-evm landfall-solana"),
        ("landfall", "the signer may name only landfall-chain landfall-evm landfall-solana"),
        ("alloy", "alloy belongs to chains/evm"),
    ];
    for (name, fault) in broken {
        assert_eq!(signer_fault(name).as_deref(), Some(fault), "{name}");
    }
}

#[test]
fn a_broken_wall_is_reported_with_what_to_do() {
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
fn migrations_are_numbered_without_gaps_and_all_embedded() {
    let mut files: Vec<_> = fs::read_dir(root().join("migrations")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), landfall::store::MIGRATIONS.len(), "store::MIGRATIONS lists each file of migrations/");
    for (index, file) in files.iter().enumerate() {
        let (version, description, embedded) = landfall::store::MIGRATIONS[index];
        assert_eq!(version, i64::try_from(index + 1).unwrap(), "versions have no gaps");
        let name = format!("{version:04}_{description}.sql");
        assert_eq!(file.file_name().unwrap(), name.as_str());
        assert!(embedded == fs::read_to_string(file).unwrap(), "store::MIGRATIONS embeds another text as {name}");
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

/// Why the signer must not depend on the crate `name`.
fn signer_fault(name: &str) -> Option<String> {
    if NOT_BESIDE_KEYS.iter().any(|begin| name.starts_with(begin)) {
        return Some("whoever holds the keys has neither store nor network".to_owned());
    }
    if name.starts_with("landfall") && !SIGNER.split(' ').any(|may| may == name) {
        return Some(format!("the signer may name only {SIGNER}"));
    }
    let (_, owner) = SDKS.iter().find(|(sdk, _)| name.starts_with(sdk))?;
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

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn all_sources() -> Vec<(PathBuf, String)> {
    let all: Vec<_> = ["src", "chains", "signer", "tests"].into_iter().flat_map(sources).collect();
    assert!(all.len() > 50, "the sources were not found");
    all
}

/// The sources of the product: `src`, and `src` of each crate of chains/ and of the signer.
pub(crate) fn product_sources() -> Vec<(PathBuf, String)> {
    let is_src = |path: &PathBuf, nth: usize| path.components().nth(nth).is_some_and(|part| part.as_os_str() == "src");
    let all = all_sources().into_iter();
    let is_product = |path: &PathBuf| {
        is_src(path, 0)
            || path.starts_with("signer") && is_src(path, 1)
            || path.starts_with("chains") && is_src(path, 2)
    };
    all.filter(|(path, _)| is_product(path)).collect()
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
