//! The README's Rust example consists of lines of `examples/readme.rs`, which is compiled.

#[test]
fn the_example_of_the_readme_is_a_program() {
    let readme = include_str!("../../../README.md");
    let program: Vec<_> = include_str!("../examples/readme.rs").lines().map(words).collect();
    let (_, shown) = readme.split_once("```rust\n").expect("the README shows Rust");
    let (shown, rest) = shown.split_once("```").expect("a whole example");
    assert!(!rest.contains("```rust"), "one example");
    for line in shown.lines().map(words).filter(|line| !line.is_empty()) {
        assert!(program.contains(&line), "examples/readme.rs lacks {line:?}");
    }
}

/// White space does not matter.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
