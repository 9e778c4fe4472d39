//! This machine's users and groups.

use std::fs;

/// Where the system keeps its users and groups, unless they come from a directory service.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A user's name, if the system has one for it.
pub(crate) fn name(uid: u32) -> Option<String> {
    Some(user(&read(USERS), uid)?.name.to_owned())
}

/// A user's name, or the number if the system has none for it.
pub(crate) fn name_or_number(uid: u32) -> String {
    name(uid).unwrap_or_else(|| uid.to_string())
}

/// Whether a user is a member of a group.
pub(crate) fn is_in_group(uid: u32, gid: u32) -> bool {
    is_member(&read(USERS), &read(GROUPS), uid, gid)
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

struct User<'a> {
    name: &'a str,
    /// The user's own group.
    gid: u32,
}

fn user(users: &str, uid: u32) -> Option<User<'_>> {
    users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _password, number, gid, ..] = fields[..] else { return None };
        (number.parse() == Ok(uid)).then_some(User { name, gid: gid.parse().ok()? })
    })
}

fn is_member(users: &str, groups: &str, uid: u32, gid: u32) -> bool {
    let Some(user) = user(users, uid) else { return false };
    let is_listed = groups.lines().any(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [_name, _password, number, members, ..] = fields[..] else { return false };
        number.parse() == Ok(gid) && members.split(',').any(|member| member == user.name)
    });
    user.gid == gid || is_listed
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nkvqueue:x:997:996::/:/bin/false\nann:x:1000:1000::/:/bin/sh\n";

    #[test]
    fn user_names_are_read_from_passwd() {
        let name = |uid| user(SOME, uid).map(|user| user.name);
        assert_eq!([0, 997, 99].map(name), [Some("root"), Some("kvqueue"), None]);
    }

    #[test]
    fn members_are_those_listed_and_those_whose_own_group_it_is() {
        let groups = "root:x:0:\nkvqueue:x:996:bob,ann\nbroken\nothers:x:995:annabel\n";
        let is_member = |uid, gid| is_member(SOME, groups, uid, gid);
        assert!(is_member(997, 996) && is_member(1000, 996));
        assert!(!is_member(997, 995) && !is_member(1000, 995) && !is_member(99, 996));
    }
}
