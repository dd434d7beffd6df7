//! `kasha`. See the library beside it.

fn main() {
    kasha::main();
}
