//! An error and what caused it, in one line: libraries say little in an error's own text.

use std::error::Error;

/// The error and its causes, outermost first, separated by ": ".
pub fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn causes_follow_the_error() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] Error);

        assert_eq!(with_causes(&Outer(Error::other("inner"))), "outer: inner");
        assert_eq!(with_causes(&Error::other("alone")), "alone");
    }
}
