//! The bytes in the golden files of other crates, as first inputs.

/// The lines `name: hexadecimal` of a file; what stands behind a `#` is a comment.
pub(crate) fn lines(text: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    text.lines().filter_map(|line| {
        let (name, digits) = line.split_once(": ")?;
        Some((name, digits.split_whitespace().map(byte).collect()))
    })
}

/// A file that is one value: hexadecimal, with comments.
pub(crate) fn value(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: String = lines.flat_map(str::split_whitespace).collect();
    digits.as_bytes().chunks(2).map(|pair| byte(std::str::from_utf8(pair).expect("ASCII"))).collect()
}

fn byte(digits: &str) -> u8 {
    u8::from_str_radix(digits, 16).expect("golden files are hexadecimal")
}

/// Files in one text: a line with the name of each, and below it lines that begin with an offset.
pub(crate) fn dumps(text: &'static str) -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for line in text.lines() {
        match line.split_once("  ") {
            Some((offset, digits)) if offset.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                files.last_mut().expect("a name comes first").extend(digits.split_whitespace().map(byte));
            }
            _ => files.push(Vec::new()),
        }
    }
    files
}
