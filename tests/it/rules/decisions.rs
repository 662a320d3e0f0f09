//! The decisions in `docs/decisions` stay short, point to files that exist, and need nothing outside of the repository.
//!
//! Reads the files as text. Not checked: whether a decision still describes the code; whoever changes the code does
//! that.

use std::fs;
use std::path::{Path, PathBuf};

/// The most bytes of a file.
const FILE_BYTES_MAX: usize = 15_000;
/// The heading of the list of decisions that are replaced; it names no files.
const EARLIER: &str = "Earlier";
/// What would lead a reader outside of the repository.
const OUTSIDE: [&str; 3] = ["../shared", "DESIGN", "catalogue"];

#[test]
fn each_decision_names_files_that_exist() {
    for (name, text) in files() {
        let mut sections = text.split("\n## ");
        let before = sections.next().unwrap();
        assert!(before.starts_with("# Decisions: "), "{name} begins with its title");
        for section in sections {
            let heading = section.lines().next().unwrap();
            let named: Vec<&str> = code_spans(section).filter(|span| is_path(span)).collect();
            for path in &named {
                assert!(root().join(path).is_file(), "{name}, {heading}: {path} does not exist");
            }
            assert!(heading == EARLIER || !named.is_empty(), "{name}, {heading}: names no file of the repository");
        }
    }
}

#[test]
fn no_file_of_decisions_is_long_or_leads_outside_of_the_repository() {
    for (name, text) in files() {
        assert!(text.len() <= FILE_BYTES_MAX, "{name} has {} bytes of at most {FILE_BYTES_MAX}", text.len());
        for outside in OUTSIDE {
            assert!(!text.contains(outside), "{name} refers to {outside}");
        }
    }
}

#[test]
fn the_architecture_links_each_file_of_decisions() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in files() {
        assert!(architecture.contains(&format!("(docs/decisions/{name})")), "ARCHITECTURE.md does not link {name}");
    }
}

/// The name and text of each file of decisions.
fn files() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("docs/decisions")).unwrap();
    let files: Vec<(String, String)> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    assert!(!files.is_empty());
    files
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a code span is the path of a file: it has a folder of the repository in front, and is no pattern.
fn is_path(span: &str) -> bool {
    let folder = span.split_once('/').map(|(folder, _)| folder);
    !span.contains(['*', '{', ' ']) && folder.is_some_and(|folder| !folder.is_empty() && root().join(folder).is_dir())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
