//! `kasha explain K0312`: the page of an error's code.

use anyhow::{Result, bail};
use clap::Args;
use kasha_runtime::say;

/// Each code and its page, in order.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

#[derive(Args)]
pub struct ExplainArguments {
    /// The code, as errors end with it: K0312. Without one, all codes are listed.
    code: Option<String>,
}

pub fn run(arguments: &ExplainArguments) -> Result<()> {
    let Some(code) = &arguments.code else {
        PAGES.iter().for_each(|(_, page)| say!("{}", title(page)));
        return Ok(());
    };
    let code = code.trim_matches(['(', ')']).to_uppercase();
    let is_it = |known: &str| known == code || known.strip_prefix('K') == Some(&code);
    let Some((_, page)) = PAGES.iter().find(|(known, _)| is_it(known)) else {
        bail!("there is no error {code:?}: `kasha explain` lists all codes (K0403)");
    };
    say!("{}", page.trim_end());
    Ok(())
}

fn title(page: &str) -> &str {
    page.lines().next().unwrap_or_default().trim_start_matches("# ")
}

/// An error for people: its text, and what to type to read its page.
pub fn told(error: &anyhow::Error) -> String {
    let text = format!("kasha: {error:#}");
    match hint(&text) {
        Some(hint) => format!("{text}\n{hint}"),
        None => text,
    }
}

/// Whether a command was used wrongly: a flag, a setting or a word is impossible.
pub fn is_wrong_usage(error: &anyhow::Error) -> bool {
    code(&format!("{error:#}")) == Some("0403")
}

/// What to type to read the page of the error that this text ends with.
fn hint(error: &str) -> Option<String> {
    code(error).map(|code| format!("       `kasha explain K{code}` says what to do"))
}

/// The digits of the code that this text ends with.
fn code(error: &str) -> Option<&str> {
    error.rsplit_once("(K")?.1.get(..4).filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_with_its_title() {
        assert!(PAGES.len() > 50);
        for (code, page) in PAGES {
            assert!(title(page).starts_with(&format!("{code}: ")), "{code}");
        }
    }

    #[test]
    fn an_error_names_its_page() {
        assert_eq!(hint("memory is full (K0312)"), Some("       `kasha explain K0312` says what to do".to_owned()));
        assert_eq!(hint("line 3: (K0403) at the end (K0310)").as_deref().map(|hint| &hint[22..27]), Some("K0310"));
        assert_eq!([hint("no code"), hint("(Kasha)"), hint("(K12")], [None, None, None]);
    }
}
