//! Values that operators write and that may be secrets: URLs with a user, a password and parameters.
//!
//! Promises: if it is not certain which part of a URL is the host, nothing of the URL is shown. Texts of others are
//! shown without these values. Pure.

/// The form of a URL whose parts are certain.
pub const WRITTEN: &str =
    "where @ : / ? # % in a name, a password or a value are written %40 %3A %2F %3F %23 %25 (percent-encoded)";

/// Shown in place of a value.
const HIDDEN: &str = "***";
/// Hiding shorter values everywhere would spoil the text. They are hidden only inside quotation marks.
const CHARS_MIN: usize = 4;

/// Whether it is not certain where a URL's user and password end, so that part of the password could be taken for the
/// host.
pub fn is_doubtful(url: &str) -> bool {
    let behind_scheme = url.split_once("://").map_or(url, |(_, behind)| behind);
    behind_scheme.rsplit_once('@').is_some_and(|(before, _)| before.contains(['@', '/', '?', '#', '\\']))
}

/// The text without these values.
pub fn without(text: &str, mut values: Vec<String>) -> String {
    // The longest first: a part of one must not hide the rest of it from the search.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.iter().filter(|value| !value.is_empty()).fold(text.to_owned(), |text, value| {
        if value.chars().count() >= CHARS_MIN {
            return text.replace(value, HIDDEN);
        }
        ['"', '\'']
            .iter()
            .fold(text, |text, mark| text.replace(&format!("{mark}{value}{mark}"), &format!("{mark}{HIDDEN}{mark}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_doubtful_where_its_last_at_sign_is_not_the_end_of_user_and_password() {
        let clear = ["postgres:///x", "postgres://h/x?a=b#c", "nats://me:pw@h:1", "https://me:p%40%2Fw@h/p?q#f", "x"];
        assert!(!clear.into_iter().any(is_doubtful));
        let doubtful =
            ["a://me:p@w@h", "a://me:1/2@h", "a://me:1?2@h", "a://me:1#2@h", "a://h/x?a=b@c", "https://me:1\\2@h"];
        assert!(doubtful.into_iter().all(is_doubtful));
    }

    #[test]
    fn values_are_hidden_the_longest_first_and_short_ones_in_quotation_marks_only() {
        let values = || ["me", "secret", "secret-two", ""].map(str::to_owned).to_vec();
        let text = "role \"me\" of them: secret-two, secret";
        assert_eq!(without(text, values()), "role \"***\" of them: ***, ***");
    }
}
