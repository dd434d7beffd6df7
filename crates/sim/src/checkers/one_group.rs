//! One group (E4, R4.1): a change and the completion record of the update that made it are in one entry group, so that
//! no crash keeps one without the other.
//!
//! It is read from the bytes that are written to segment files. Only updates write entries that change an object or
//! keep an operation key's result.

use kasha_machine::FileName;

use crate::checkers::records::{COMPLETION_ENTRY, groups_in};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{View, Watch};

const OBJECT_ENTRY: u8 = 1;
const TOMBSTONE_ENTRY: u8 = 2;
const OPERATION_KEY_ENTRY: u8 = 4;

/// Watches segment files.
#[derive(Debug, Default)]
pub struct OneGroup {
    violations: Vec<String>,
    groups: u64,
}

impl OneGroup {
    fn on_bytes(&mut self, by: &str, file: FileName, bytes: &[u8]) {
        groups_in(bytes, |group| {
            let records = group.entries.iter().filter(|entry| entry.0 == COMPLETION_ENTRY).count();
            let is_change = |kind: u8| matches!(kind, OBJECT_ENTRY | TOMBSTONE_ENTRY | OPERATION_KEY_ENTRY);
            let changes = group.entries.iter().filter(|entry| is_change(entry.0)).count();
            self.groups += u64::from(changes > 0);
            if records > 1 || (records == 0 && changes > 0) {
                self.violations.push(format!(
                    "one_group: {by} wrote a group with {changes} changes and {records} completion records to {file:?} \
                     (E4, R4.1)"
                ));
            }
        });
    }
}

impl Watch for OneGroup {
    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { .. } = file else { return };
        let process = &view.processes[by.0];
        if let Some(content) = process.disk.cached(file) {
            self.on_bytes(&process.name, file, &content.read(offset, len));
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: groups", self.groups);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, group, segment};

    #[test]
    fn a_change_without_its_record_is_found() {
        let mut watch = OneGroup::default();
        let record = group(RPC);
        watch.on_bytes("one", segment(0), &record);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        let mut change = record.clone();
        change[48] = OBJECT_ENTRY;
        watch.on_bytes("one", segment(0), &[record, change].concat());
        assert_eq!(watch.take_violations().len(), 1);
    }
}
