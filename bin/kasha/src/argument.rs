//! Keys and values on the command line.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Read;

use anyhow::{Context, Result};

/// A key or a value: any bytes that the system hands over.
#[derive(Clone, Debug)]
pub struct Argument(Vec<u8>);

impl From<OsString> for Argument {
    fn from(text: OsString) -> Self {
        Self(text.into_encoded_bytes())
    }
}

impl AsRef<[u8]> for Argument {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Argument {
    /// The value that it stands for: all of standard input for `-`, and itself otherwise.
    pub fn value(&self) -> Result<Cow<'_, [u8]>> {
        if self.0 != b"-" {
            return Ok(Cow::Borrowed(&self.0));
        }
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("standard input cannot be read (K0403)")?;
        Ok(Cow::Owned(bytes))
    }

    /// Its text; other bytes are escaped.
    pub fn shown(&self) -> String {
        crate::told::show(&self.0)
    }
}
