//! What documents show of programs consists of lines of these programs, which are compiled.

use std::path::Path;

fn lines_of(program: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(program);
    std::fs::read_to_string(path).expect("an example of the client").lines().map(words).collect()
}

/// White space does not matter.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every line of the blocks of Rust in this text is one of the program. Returns how many blocks there are.
fn shows(text: &str, program: &str) -> usize {
    let lines = lines_of(program);
    let blocks = text.split("```rust\n").skip(1);
    for block in blocks.clone() {
        let (shown, _) = block.split_once("```").expect("a whole block");
        for line in shown.lines().map(words).filter(|line| !line.is_empty()) {
            assert!(lines.contains(&line), "examples/{program} lacks {line:?}");
        }
    }
    blocks.count()
}

#[test]
fn the_example_of_the_readme_is_a_program() {
    assert_eq!(shows(include_str!("../../../README.md"), "readme.rs"), 1, "one example");
}

#[test]
fn the_recipes_are_programs() {
    let recipes = include_str!("../../../docs/recipes.md");
    let mut programs = Vec::new();
    for section in recipes.split("\n## ").skip(1) {
        let (_, program) = section.split_once("crates/client/examples/").expect("each recipe names its program");
        let (program, _) = program.split_once(')').expect("a link");
        assert!(shows(section, program) > 0, "{program} is shown");
        programs.push(program.to_owned());
    }
    assert_eq!(programs, ["quota.rs", "charge.rs", "wallet.rs", "jobs.rs", "sessions.rs", "locks.rs"]);
}
