//! The README's program is the example, which is compiled; and it says the command with which it is run.
#![allow(missing_docs)]

const README: &str = include_str!("../../../README.md");
const EXAMPLE: &str = include_str!("../examples/readme.rs");

/// The only block of this language.
fn block(language: &str) -> &'static str {
    let opening = format!("```{language}\n");
    let mut blocks = README.split(opening.as_str()).skip(1);
    let (first, more) = (blocks.next(), blocks.next());
    assert!(first.is_some() && more.is_none(), "one block of {language}");
    first.unwrap().split("```").next().unwrap()
}

#[test]
fn the_program_of_the_readme_is_the_example() {
    let program: Vec<&str> = EXAMPLE.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    assert_eq!(block("rust"), program.join("\n") + "\n", "copy the example into the README, without its header");
    assert!(block("rust").contains("fn main()"), "a whole program");
    assert!(block("toml").contains("crates/client") && README.contains("cargo run --release --example readme"));
}
