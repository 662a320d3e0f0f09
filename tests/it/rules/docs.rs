//! The book keeps up with the program: `docs/reference/` names each key, incident, problem code and command, and links
//! resolve. Sentences can be read at once, in the book and in the product's comments.
//!
//! The lists come from the program: keys from the configuration's answer to an unknown key, codes from the API's
//! document, commands from `--help`. Whether a page is true is not judged here. `docs/reference/cli.md` is renewed by
//! `LANDFALL_RENEW=1 cargo test --test it rules::docs::`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall::api::openapi_json;
use landfall::config::Config;
use landfall::doctor::KINDS;
use landfall::health::{COMPLAINTS, METRICS};
use serde_json::Value;

use crate::rules::layers::product_sources;

const SENTENCE_WORDS_MAX: usize = 35;
const README_WORDS_MAX: usize = 899;
const CLI: &str = "docs/reference/cli.md";
const CHAIN: &str = "[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n";
const RENEW: &str = "renew it: LANDFALL_RENEW=1 cargo test --test it docs::";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// README and every page of the book.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The lines of a page that are in no block of code.
fn lines(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().map(str::trim).filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    })
}

/// The comments of a source file as a page. A line of code is an empty line of it.
pub(crate) fn comments(source: &str) -> String {
    let lines = source.lines().map(|line| line.trim_start().strip_prefix("//").unwrap_or_default());
    lines.map(|line| line.trim_start_matches(['/', '!'])).collect::<Vec<_>>().join("\n")
}

/// Paragraphs and items of lists: neither headings, nor tables, nor code.
pub(crate) fn paragraphs(page: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in lines(&page.replace("```", "\n\n```")) {
        let item = item(line);
        if line.is_empty() || line.starts_with(['#', '|']) || item.is_some() {
            paragraphs.push(String::new());
        }
        if !line.starts_with(['#', '|']) {
            let paragraph = paragraphs.last_mut().unwrap();
            *paragraph = format!("{paragraph} {}", item.unwrap_or(line));
        }
    }
    paragraphs
}

/// What an item of a list says: `- this`, `2. this`.
fn item(line: &str) -> Option<&str> {
    let (mark, rest) = line.split_once(' ')?;
    let is_number = mark.strip_suffix('.').is_some_and(|number| number.parse::<u8>().is_ok());
    (mark == "-" || mark == "*" || is_number).then_some(rest)
}

fn sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let sentence = sentences.last_mut().unwrap();
        *sentence = format!("{sentence} {word}");
        if word.ends_with(['.', '?', '!']) {
            sentences.push(String::new());
        }
    }
    sentences
}

/// The sentences of a page that cannot be read at once, each behind its number of words.
fn long_sentences(page: &str) -> Vec<String> {
    let all = paragraphs(page).into_iter().flat_map(|paragraph| sentences(&paragraph));
    let counted = all.map(|sentence| (sentence.split_whitespace().count(), sentence));
    let long = counted.filter(|(words, _)| *words > SENTENCE_WORDS_MAX);
    long.map(|(words, sentence)| format!("{words} words:{sentence}")).collect()
}

/// The headings of a page, as a link names them behind `#`.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = lines(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

/// Where the links of a page lead.
fn links(page: &str) -> Vec<String> {
    let prose: Vec<&str> = lines(page).collect();
    let prose = prose.join("\n");
    let targets =
        prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// What stands in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What the first cells of the tables in a part of a page name, in backticks.
fn rows(part: &str) -> BTreeSet<String> {
    let cells = lines(part).filter(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    cells.flat_map(quoted).collect()
}

/// What stands below a heading of the second order.
fn below<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, part) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("there is no {heading}"));
    part.split_once("\n## ").map_or(part, |(part, _)| part)
}

/// The keys of the section in which `text` has one that nobody knows.
fn keys(text: &str) -> BTreeSet<String> {
    let error = Config::parse("landfall.toml", text, |_| None).unwrap_err().to_string();
    let (_, expected) = error.split_once("unknown field `mistaken`, expected ").unwrap_or_else(|| panic!("{error}"));
    quoted(expected)
}

#[test]
fn every_key_of_the_configuration_has_a_row_and_every_row_is_a_key() {
    let page = text("docs/reference/configuration.md");
    let wrong = "mistaken = 1\n";
    let cases = [
        ("Top level", format!("{wrong}{CHAIN}")),
        ("`[store]`", format!("{CHAIN}[store]\n{wrong}")),
        ("`[api]`", format!("{CHAIN}[api]\n{wrong}")),
        ("`[admin]`", format!("{CHAIN}[admin]\n{wrong}")),
        ("`[nats]`", format!("{CHAIN}[nats]\n{wrong}")),
        ("`[transfers]`", format!("{CHAIN}[transfers]\n{wrong}")),
        ("`[pkcs11]`", format!("{CHAIN}[pkcs11]\n{wrong}")),
        ("`[transfers.prices]`", format!("{CHAIN}[transfers]\nsigner = \"unix:s\"\n[transfers.prices]\n{wrong}")),
        (
            "`[transfers.prices.symbols.SYMBOL]`",
            format!("{CHAIN}[transfers]\nsigner = \"unix:s\"\n[transfers.prices.symbols.ETH]\n{wrong}"),
        ),
        ("`[chains.NAME]`", format!("{CHAIN}{wrong}")),
        ("`[chains.NAME.transfers]`", format!("{CHAIN}[chains.ETHEREUM_TESTNET.transfers]\n{wrong}")),
        (
            "`[chains.NAME.transfers.caps.SYMBOL]`",
            format!("{CHAIN}[chains.ETHEREUM_TESTNET.transfers.caps.ETH]\n{wrong}"),
        ),
        (
            "Endpoints: tables in `rpc`",
            "[chains.ETHEREUM_TESTNET]\nrpc = [{ url = \"http://a\", mistaken = 1 }]\n".to_owned(),
        ),
        ("`[[chains.NAME.tiers]]`", format!("{CHAIN}[[chains.ETHEREUM_TESTNET.tiers]]\n{wrong}")),
        ("`[[chains.NAME.assets]]`", format!("{CHAIN}[[chains.ETHEREUM_TESTNET.assets]]\n{wrong}")),
    ];
    for (heading, text) in cases {
        assert_eq!(rows(below(&page, heading)), keys(&text), "the keys below {heading}");
    }
}

#[test]
fn every_metric_has_a_row_and_every_row_is_a_metric() {
    let page = text("docs/reference/status-and-health.md");
    let names = METRICS.iter().map(|metric| metric.name).chain([COMPLAINTS]);
    assert_eq!(rows(below(&page, "Metrics")), names.map(str::to_owned).collect());
}

#[test]
fn every_line_of_the_doctor_has_a_row_and_every_row_is_a_line() {
    let page = text("docs/reference/status-and-health.md");
    assert_eq!(rows(below(&page, "Doctor")), KINDS.map(str::to_owned).into());
}

#[test]
fn every_kind_of_incident_has_a_row_and_a_heading() {
    let source = text("src/incident.rs");
    let (_, names) = source.split_once("pub const fn name(self)").unwrap();
    let (names, _) = names.split_once("\n    }\n").unwrap();
    let kinds: BTreeSet<String> = names.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(kinds.contains("deep_reorg"), "{kinds:?}");
    let page = text("docs/reference/incidents.md");
    let headings: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    assert_eq!(headings, kinds);
    let table: BTreeSet<String> = rows(&page).into_iter().filter(|name| !name.starts_with("landfall ")).collect();
    assert_eq!(table, kinds);
}

#[test]
fn every_problem_code_has_a_row() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array().unwrap();
    let codes: BTreeSet<String> = codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect();
    assert_eq!(rows(&text("docs/reference/problems.md")), codes);
}

/// What a command says of itself, and its verbs.
fn help(verbs: &[&str], page: &mut String) {
    let output = Command::new(env!("CARGO_BIN_EXE_landfall")).args(verbs).arg("--help").output().unwrap();
    assert!(output.status.success(), "{verbs:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = [&["landfall"], verbs].concat().join(" ");
    page.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end()));
    let Some((_, commands)) = help.split_once("\nCommands:\n") else { return };
    let commands = commands.lines().take_while(|line| line.starts_with("  "));
    let named = commands.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    for verb in named.filter(|verb| *verb != "help") {
        self::help(&[verbs, &[verb]].concat(), page);
    }
}

#[test]
fn the_page_of_the_command_line_is_what_help_says() {
    let mut page = "# The command line\n\nWritten by `LANDFALL_RENEW=1 cargo test --test it rules::docs::`. \
         What the commands are for: [commands](../operate/commands.md).\n"
        .to_owned();
    help(&[], &mut page);
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    if std::env::var("LANDFALL_RENEW").is_ok() {
        fs::write(root().join(CLI), &page).unwrap();
    }
    let committed = text(CLI);
    let differs = committed.lines().zip(page.lines()).find(|(one, other)| one != other);
    assert!(committed == page, "{CLI} is out of date at {differs:?}; {RENEW}");
}

#[test]
fn links_resolve_and_every_page_is_linked() {
    let mut pages: BTreeMap<PathBuf, String> =
        pages().into_iter().map(|path| (path.canonicalize().unwrap(), String::new())).collect();
    pages.insert(root().join("ARCHITECTURE.md").canonicalize().unwrap(), String::new());
    for (path, page) in &mut pages {
        *page = fs::read_to_string(path).unwrap();
    }
    let mut linked = BTreeSet::new();
    for (path, page) in &pages {
        for link in links(page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let target = target.canonicalize().unwrap_or_else(|_| panic!("{}: {link} is not there", path.display()));
            let is_there = anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor);
            assert!(is_there, "{}: {link} names no heading", path.display());
            linked.insert(target);
        }
    }
    let summary = root().join("docs/SUMMARY.md").canonicalize().unwrap();
    assert!(linked.contains(&summary), "nothing leads to the book");
    for path in pages.keys() {
        assert!(linked.contains(path), "nothing leads to {}", path.display());
    }
}

#[test]
fn no_sentence_of_the_book_is_longer_than_can_be_read_at_once() {
    let mut long = Vec::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        long.extend(long_sentences(&page).iter().map(|sentence| format!("{}: {sentence}", path.display())));
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn no_sentence_of_a_comment_is_longer_than_can_be_read_at_once() {
    let count = |first: usize, between: &str, second: usize| {
        let [first, second] = [first, second].map(|words| "word ".repeat(words));
        long_sentences(&comments(&format!("//! {first}\n{between}    /// {second}\n"))).len()
    };
    assert_eq!([count(20, "", 15), count(20, "", 16), count(20, "mod code;\n", 16)], [0, 1, 0]);
    let mut long = Vec::new();
    for (path, source) in product_sources() {
        let sentences = long_sentences(&comments(&source));
        long.extend(sentences.iter().map(|sentence| format!("{}: {sentence}", path.display())));
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_readme_is_a_front_door() {
    let words = text("README.md").split_whitespace().count();
    assert!(words <= README_WORDS_MAX, "README.md has {words} words; what is more belongs into docs/");
}
