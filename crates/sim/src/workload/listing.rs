//! A table is listed, page after page, while keys come and go.

use kasha_client::session::{Listing as Pages, Shows};
use kasha_machine::Rng;
use kasha_wire::Update;
use kasha_wire::operation::Lifetime;
use kasha_wire::outcome::Outcome;

use super::{Ask, Workload};
use crate::history::{Action, DEFAULT_TABLE, Told};

/// Keys that are put and never deleted, of all slots. The checker `listed_once` knows them by their names.
const STAYING: u64 = 60;
/// So many of them are put together.
const TOGETHER: u64 = 3;
/// Keys that come and go.
const CHANGING: u64 = 200;

/// Listings, and what they list.
#[derive(Debug)]
pub struct Listing {
    /// Where the present listing is: begun anew at its end.
    pages: Pages,
    /// The read of a page that is under way.
    waits: Option<Action>,
}

fn from_the_beginning() -> Pages {
    let mut pages = Pages::new(DEFAULT_TABLE);
    pages.set_prefix(b"l");
    pages
}

impl Default for Listing {
    fn default() -> Self {
        Self { pages: from_the_beginning(), waits: None }
    }
}

impl Workload for Listing {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if self.waits.is_none() && rng.chance(2, 3) {
            self.pages.set_page(u32::try_from(rng.between(1, 40)).expect("small"));
            let shows = if rng.chance(1, 2) { Shows::Values } else { Shows::Keys };
            let page = self.pages.read(shows).expect("a short prefix").expect("begun anew at its end");
            return self.waits.insert(page.into()).clone().into();
        }
        // No value is put twice: each says which update it is of.
        let value = format!("{:x}", rng.next_u64()).into_bytes();
        if rng.chance(1, 4) {
            let first = rng.below(STAYING);
            if rng.chance(1, 2) {
                return Action::put(format!("ls{first}").as_bytes(), &value).into();
            }
            // Most likely of several shards, and always the same ones together: what is put together is checked together.
            let group = first - first % TOGETHER..first - first % TOGETHER + TOGETHER;
            let keys: Vec<_> = group.map(|number| format!("ls{number}")).collect();
            return Action::multi_put(keys.iter().map(|key| (key.as_bytes(), &value[..]))).into();
        }
        let key = format!("lc{}", rng.below(CHANGING)).into_bytes();
        match rng.below(5) {
            0 | 1 => Action::put(&key, &value),
            2 => {
                let lifetime = Lifetime::from_millis(rng.between(1, 300)).expect("not 0");
                Update::put_expiring(&key, lifetime, &value).into()
            }
            _ => Update::delete(&key).into(),
        }
        .into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        if self.waits.take_if(|page| page == action).is_none() {
            return;
        }
        match told {
            Told::Executed { outcome: Outcome::Keys(page), .. } => drop(self.pages.on_page(page.clone())),
            Told::Executed { outcome: Outcome::KeysAndValues(page), .. } => drop(self.pages.on_page(page.clone())),
            Told::Executed { outcome, .. } => unreachable!("{outcome:?} of a listing"),
            // The same page is asked for again.
            _ => return,
        }
        if self.pages.cursor().is_none() {
            self.pages = from_the_beginning();
        }
    }
}
