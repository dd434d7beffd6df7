//! What the table says, beside what Redis says of itself.

mod described;
mod patterns;
mod replies;
mod table;
