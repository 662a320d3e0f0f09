//! The glossary (`docs/develop/glossary.md`) in names and comments: files, types, functions, constants and columns have
//! none of the old words, nor have the product's comments.

use crate::rules::docs::{comments, paragraphs};
use crate::rules::layers::{all_sources, product_sources, root};

/// An old word, and what says it now.
const OLD: [(&str, &str); 11] = [
    ("told", "reported"),
    ("untold", "unreported"),
    ("tell", "report"),
    ("tells", "reports"),
    ("heard", "responses"),
    ("unheard", "unanswered"),
    ("voice", "vote"),
    ("voices", "votes"),
    ("restate", "replace_record"),
    ("outweighed", "is_weaker"),
    ("stride", "window"),
];
/// Old words and phrases that only comments are searched for: names may have them in another sense.
const OLD_IN_COMMENTS: [(&str, &str); 18] = [
    ("telling", "reporting"),
    ("hear", "get a response"),
    ("hears", "gets a response"),
    ("restates", "replaces"),
    ("restated", "replaced"),
    ("lack", "miss"),
    ("lacks", "misses"),
    ("lacked", "missed"),
    ("lacking", "missing"),
    ("bear out", "corroborate"),
    ("bears out", "corroborates"),
    ("borne out", "corroborated"),
    ("take up", "start at"),
    ("takes up", "starts at"),
    ("taken up", "started at"),
    ("second look", "cross-check"),
    ("look again", "check again"),
    // As in "an endpoint's word".
    ("s word", "report"),
];
const DECLARES: [&str; 8] = ["fn", "struct", "enum", "type", "trait", "const", "static", "mod"];

/// The words of a name, whether `snake_case`, `CamelCase` or `UPPER_CASE`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    words
}

fn old_word(name: &str) -> Option<(&'static str, &'static str)> {
    let words = words(name);
    OLD.into_iter().find(|(old, _)| words.iter().any(|word| word == old))
}

/// An old word or phrase in a paragraph of comments. What stands in backticks is code.
fn old_phrase(paragraph: &str) -> Option<(&'static str, &'static str)> {
    let prose = paragraph.split('`').step_by(2).collect::<Vec<_>>().join(" code ").to_lowercase();
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let text = format!(" {} ", words.collect::<Vec<_>>().join(" "));
    OLD.into_iter().chain(OLD_IN_COMMENTS).find(|(old, _)| text.contains(&format!(" {old} ")))
}

/// The names that a line declares: behind `fn`, `struct` and so on.
fn declared(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    let tokens: Vec<&str> =
        code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|it| !it.is_empty()).collect();
    let pairs: Vec<&str> = tokens.windows(2).filter(|pair| DECLARES.contains(&pair[0])).map(|pair| pair[1]).collect();
    pairs.into_iter()
}

#[test]
fn names_have_the_words_of_the_glossary() {
    assert_eq!(old_word("who_told_it"), Some(("told", "reported")));
    assert_eq!(old_word("ToldHolding"), Some(("told", "reported")));
    assert_eq!(old_word("RETOLD"), None, "a part of a word is none");
    let mut found = Vec::new();
    for (path, text) in all_sources() {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let names = text.lines().flat_map(declared).chain([file.as_str()]);
        found.extend(names.filter_map(|name| {
            let (old, new) = old_word(name)?;
            Some(format!("{}: {name} has {old:?}: say {new:?}", path.display()))
        }));
    }
    let schema = std::fs::read_to_string(root().join("migrations/0001_init.sql")).unwrap();
    let code = schema.lines().map(|line| line.split("--").next().unwrap_or_default());
    let columns = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    found.extend(columns.filter_map(|name| Some(format!("a column: {name} has {:?}", old_word(name)?.0))));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn comments_have_the_words_of_the_glossary() {
    assert_eq!(old_phrase("What is Told, alike."), Some(("told", "reported")));
    assert_eq!(old_phrase("It is an endpoint's word."), Some(("s word", "report")));
    assert_eq!(old_phrase("The words of `told`, in a restatement; take `two` up."), None, "code, and parts of words");
    let mut found = Vec::new();
    for (path, source) in product_sources() {
        let paragraphs = paragraphs(&comments(&source));
        found.extend(paragraphs.iter().filter_map(|paragraph| {
            let (old, new) = old_phrase(paragraph)?;
            Some(format!("{}: {old:?}: say {new:?}:{paragraph}", path.display()))
        }));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
