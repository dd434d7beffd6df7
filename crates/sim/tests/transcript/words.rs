//! Operations as words of a script: a name from the table of operations, then its arguments in their order.

use kasha_wire::Update;
use kasha_wire::operation::arguments::Source;
use kasha_wire::operation::{Bounds, ItemKind, Items, Lifetime, Parts};

/// The update that these words name. Operations on several keys cannot be named.
pub fn update<'a>(words: &[&'a str]) -> Update<'a> {
    let (name, arguments) = words.split_first().expect("an update's name");
    let row = Update::ALL.iter().find(|row| row.name == *name);
    let mut arguments = Arguments(arguments.iter());
    let update = Update::build(row.unwrap_or_else(|| panic!("{name}: no such update")).code, &mut arguments);
    assert_eq!(arguments.0.next(), None, "one word too many: {words:?}");
    update.unwrap_or_else(|wanted| panic!("{wanted} is wanted: {words:?}"))
}

struct Arguments<'w, 'a>(std::slice::Iter<'w, &'a str>);

impl<'a> Arguments<'_, 'a> {
    fn number<T: std::str::FromStr>(&mut self) -> Result<T, &'static str> {
        self.0.next().and_then(|word| word.parse().ok()).ok_or("a number")
    }
}

impl<'a> Source<'a> for Arguments<'_, 'a> {
    type Error = &'static str;

    fn no_such_operation(what: &'static str) -> &'static str {
        what
    }
    fn key(&mut self) -> Result<&'a [u8], &'static str> {
        self.0.next().map(|word| word.as_bytes()).ok_or("a key")
    }
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        self.0.next().map(|word| word.as_bytes()).ok_or("a value")
    }
    fn version(&mut self) -> Result<u64, &'static str> {
        self.number()
    }
    fn delta(&mut self) -> Result<i64, &'static str> {
        self.number()
    }
    /// No terms, and the usual end.
    fn which(&mut self, of: &[u8]) -> Result<u8, &'static str> {
        Ok(of[0])
    }
    fn bounds(&mut self) -> Result<Bounds, &'static str> {
        Ok(Bounds::NONE)
    }
    fn lifetime(&mut self) -> Result<Lifetime, &'static str> {
        Lifetime::from_millis(self.number()?).ok_or("more than nothing")
    }
    fn items(&mut self, _: ItemKind) -> Result<Items<'a>, &'static str> {
        Err("an update of one key")
    }
    fn parts(&mut self) -> Result<Parts<'a>, &'static str> {
        Err("an update of one key")
    }
}
