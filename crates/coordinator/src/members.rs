//! What the state knows of the group of coordinators: who its members are, and where; who is to become one; and who was one.

use kasha_types::MemberId;
use kasha_viewstamped::MEMBERS_MAX;
use kasha_wire::GroupMember;

use crate::check::{Checked, must};
use crate::limits::{COUNT_MAX, FORMER_MEMBERS_MAX, GROUP_MAX};
use crate::state::EndedInvitation;
use crate::{Command, State};

impl State {
    pub(crate) fn permits_group_of(members: u8) -> Checked {
        must!(members % 2 == 1 && members <= GROUP_MAX, "R9.14: a group of {members}");
        Ok(())
    }

    /// Whether a command about the group, or about the level, may be applied now.
    pub(crate) fn permits_of_group(&self, command: &Command) -> Checked {
        match command {
            Command::GroupWanted { members } => Self::permits_group_of(*members),
            Command::MemberAt { of } => self.permits_member_at(of),
            Command::MemberGone { member } | Command::InvitationEnds { member } => self.permits_member_gone(*member),
            Command::MemberLeaves { member } => self.permits_member_leaves(*member),
            Command::MemberStays { member } => {
                must!(self.leaving.contains(member), "{member} does not leave");
                Ok(())
            }
            Command::Raise { level } => {
                must!(*level > self.level, "R7.6: levels rise, and the cluster is at {}", self.level);
                Ok(())
            }
            _ => unreachable!("it is about something else: {command:?}"),
        }
    }

    /// Performs such a command. Returns whether the configuration is a new one.
    pub(crate) fn apply_of_group(&mut self, command: &Command) -> bool {
        match *command {
            Command::GroupWanted { members } => self.group_wanted = members,
            Command::MemberLeaves { member } => self.leaving.push(member),
            Command::MemberStays { member } => self.leaving.retain(|of| *of != member),
            Command::MemberAt { of } => self.apply_member_at(of),
            Command::MemberGone { member } => self.apply_member_gone(member),
            Command::InvitationEnds { member } => self.apply_invitation_ends(member),
            // All processes are to learn it.
            Command::Raise { level } => self.level = level,
            _ => unreachable!("it is about something else: {command:?}"),
        }
        !matches!(command, Command::GroupWanted { .. } | Command::MemberLeaves { .. } | Command::MemberStays { .. })
    }

    fn permits_member_at(&self, of: &GroupMember) -> Checked {
        let (group, member) = (&self.configuration.group, of.member);
        let known = group.iter().find(|known| known.member == member);
        let may_be = member >= self.next_member || self.was_invited_as(of.folder) == Some(member);
        must!(known.is_some() || may_be, "R9.6: {member} was another one");
        must!(member.0 <= COUNT_MAX, "a count is near its end: {member}");
        must!(known.is_some() || group.len() < MEMBERS_MAX, "there are too many members");
        let has_folder = known.is_none_or(|known| [0, of.folder].contains(&known.folder));
        must!(has_folder || group.len() == 1, "R9.6: {member} has another folder");
        Ok(())
    }

    fn permits_member_gone(&self, member: MemberId) -> Checked {
        must!(self.configuration.group.iter().any(|of| of.member == member), "{member} is not known");
        Ok(())
    }

    fn permits_member_leaves(&self, member: MemberId) -> Checked {
        self.permits_member_gone(member)?;
        must!(!self.leaving.contains(&member), "{member} leaves already");
        must!(self.leaving.len() + 1 < self.configuration.group.len(), "{member} is the last one");
        Ok(())
    }

    fn apply_member_at(&mut self, of: GroupMember) {
        self.ended_invitations.retain(|ended| ended.member != of.member);
        let group = &mut self.configuration.group;
        group.retain(|known| known.member != of.member);
        group.push(of);
        group.sort_by_key(|of| of.member);
        self.next_member = self.next_member.max(MemberId(of.member.0 + 1));
    }

    fn apply_member_gone(&mut self, member: MemberId) {
        let left = self.configuration.group.iter().find(|of| of.member == member);
        self.former_members.extend(left.map(|of| of.folder));
        let more = self.former_members.len().saturating_sub(FORMER_MEMBERS_MAX);
        self.former_members.drain(..more);
        self.forget_member(member);
    }

    /// As which member a folder was invited that did not count in the end.
    pub(crate) fn was_invited_as(&self, folder: u32) -> Option<MemberId> {
        self.ended_invitations.iter().find(|ended| ended.folder == folder).map(|ended| ended.member)
    }

    fn apply_invitation_ends(&mut self, member: MemberId) {
        let invited = self.configuration.group.iter().find(|of| of.member == member);
        self.ended_invitations.extend(invited.map(|of| EndedInvitation { folder: of.folder, member }));
        let more = self.ended_invitations.len().saturating_sub(FORMER_MEMBERS_MAX);
        self.ended_invitations.drain(..more);
        self.forget_member(member);
    }

    fn forget_member(&mut self, member: MemberId) {
        self.configuration.group.retain(|of| of.member != member);
        self.leaving.retain(|of| *of != member);
    }

    /// Whether all of that can be.
    pub(crate) fn check_members(&self) -> Checked {
        let (group, next) = (&self.configuration.group, self.next_member);
        must!(group.len() <= MEMBERS_MAX, "{} members", group.len());
        must!(group.is_sorted_by(|a, b| a.member < b.member), "members are in order and distinct");
        must!(group.last().is_none_or(|of| of.member < next), "ids of members are not used again");
        must!(next.0 <= COUNT_MAX + 1, "a count is near its end: {next}");
        must!(self.former_members.len() <= FORMER_MEMBERS_MAX, "{} former members", self.former_members.len());
        let ended = &self.ended_invitations;
        must!(ended.len() <= FORMER_MEMBERS_MAX, "{} invitations that ended", ended.len());
        must!(ended.iter().all(|ended| ended.member < next), "ids of members are not used again");
        let is_known = |member: &MemberId| group.iter().any(|of| of.member == *member);
        must!(self.leaving.iter().all(is_known) && self.leaving.len() <= group.len(), "only members leave");
        Self::permits_group_of(self.group_wanted)
    }
}
