//! Directed scenarios as text files: see [`transcript`].

mod transcript;

#[test]
fn every_transcript_is_what_happens() {
    transcript::check_all();
}
