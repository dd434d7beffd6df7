//! The rules of this model that can be switched off: R7.7, clause by clause, and the decisions that its text leaves
//! open.

use crate::Broken;
use crate::recovery::bounds::{self, Bounds};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// (a) A fast answer leaves when the primary's own file holds its entry.
    AnswerOnFile,
    /// (b) a promotion leaves `served` as it is.
    ServedUntouched,
    /// (c) the mark is on file before the term is reported recovered.
    MarkBeforeReport,
    /// (c) The mark is cleared before a cut removes what the mark covers.
    MarkClearedByCut,
    /// (c) A loss of power clears the mark, under `replicated`.
    MarkOfBoot,
    /// A loss of power clears the mark under `fsync`, too, where fast answers wait for the page cache only.
    MarkOfBootFsync,
    /// (c) Damage clears the mark, also damage to the log's last bytes.
    MarkOfDamage,
    /// (d) A term whose log is whole logs `Whole`.
    WholeLogged,
    /// (d) It logs `Whole` behind the last replayed request.
    WholeLast,
    /// (e) Only a `Whole` of the current list counts.
    WholeOfCurrentList,
    /// (e) only the mark of the epoch that served last counts.
    MarkOfServedEpoch,
    /// (e) a whole log is taken even against later epochs.
    WholePreferred,
    /// (e) While a term waits for a witness, it keeps asking all members, and takes a whole log that comes.
    FencesOn,
    /// A term attaches no member before its own file has `Whole`.
    AttachAfterFile,
    /// (f) an orderly stop gates all answers for the rest of the term.
    StopGates,
    /// (f) an orderly stop syncs before the empty list is committed.
    StopSynced,
    /// Step 4: what is replayed goes through `look_up`.
    ReplayLooksUp,
}

const fn broken(name: &'static str, rule: &'static str, what: &'static str, code: &'static str) -> Broken {
    Broken { name, rule, what, code }
}

/// The name of the switch, the rule, the code that keeps it, and the bounds in which its absence shows.
pub const SWITCHES: &[(Rule, Broken, &Bounds)] = &[
    (
        Rule::AnswerOnFile,
        broken(
            "file_lags_answers",
            "R7.7 (a) [M]",
            "a fast answer leaves before the own file holds its entry",
            "node request::answer",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::ServedUntouched,
        broken(
            "served_by_promotion",
            "R7.7 (b) [M]",
            "a promotion is taken for a term that served",
            "coordinator Command::Promote",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::MarkBeforeReport,
        broken(
            "mark_after_report",
            "R7.7 (c) [M]",
            "a term is reported recovered before its mark is on file",
            "node beginning::advance",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::MarkClearedByCut,
        broken(
            "mark_kept_by_cut",
            "R7.7 (c) [M]",
            "a cut removes what the mark speaks of, and the mark stays",
            "node copy::truncate_log",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::MarkOfBoot,
        broken("mark_survives_power_loss", "R7.7 (c) [M]", "a loss of power leaves the mark", "node load::judge_boot"),
        &bounds::POWER,
    ),
    (
        Rule::MarkOfBootFsync,
        broken(
            "mark_survives_power_loss_fsync",
            "R7.7 (a), (c)",
            "the same under fsync, where the page cache held the fast answers",
            "node load::judge_boot",
        ),
        &bounds::POWER_FSYNC,
    ),
    (
        Rule::MarkOfDamage,
        broken(
            "mark_survives_damage",
            "R7.7 (c) [M]",
            "damage of a log's last bytes passes for a torn end, and leaves the mark",
            "node load::judge_load",
        ),
        &bounds::DAMAGE,
    ),
    (
        Rule::WholeLogged,
        broken(
            "whole_not_logged",
            "R7.7 (d) [M]",
            "there are marks only: what an unserved term replayed is not known to be whole",
            "node beginning::begin_epoch",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::WholeLast,
        broken(
            "whole_before_replay",
            "R7.7 (d) [M]",
            "a log says that it is whole before the last replayed request",
            "node beginning::begin_epoch",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::WholeOfCurrentList,
        broken(
            "whole_of_an_older_list",
            "R7.7 (e) [M]",
            "what a log says of an older list counts",
            "replication Election::choice",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::MarkOfServedEpoch,
        broken(
            "mark_of_an_older_term",
            "R7.7 (e) [M]",
            "a mark of a term before the one that served last counts",
            "replication Election::choice",
        ),
        &bounds::ONE_MEMBER,
    ),
    (
        Rule::WholePreferred,
        broken(
            "unserved_term_preferred",
            "R7.7 (e) [M]",
            "with a whole log among the reports the greatest one is taken, and no witness is asked",
            "replication Election::choice",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::FencesOn,
        broken(
            "fences_once",
            "R7.7 (e) [M]",
            "a term that waits for a witness hears no member any more",
            "node witnesses::advance",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::AttachAfterFile,
        broken(
            "attached_before_whole",
            "R7.7 (c), (d)",
            "a term cuts its members' logs before its own file says that its log is whole",
            "node primary::ship",
        ),
        &bounds::WITNESS_LOST,
    ),
    (
        Rule::StopGates,
        broken(
            "stop_answers_fast",
            "R7.7 (f) [M]",
            "an orderly stop syncs and reports, and answers without a sync meanwhile",
            "node request::answer",
        ),
        &bounds::STOP,
    ),
    (
        Rule::StopSynced,
        broken(
            "stop_only_closes",
            "R7.7 (f) [M]",
            "an orderly stop gates answers, and the empty list is committed before all is synced",
            "node serving::list_is_closed",
        ),
        &bounds::STOP,
    ),
    (
        Rule::ReplayLooksUp,
        broken(
            "recovery_without_look_up",
            "section 7, step 4",
            "what a witness holds is executed again, though the log has it",
            "node request::on_replay",
        ),
        &bounds::WITNESS_LOST,
    ),
];
