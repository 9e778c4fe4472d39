//! The user who runs a command.

use std::fs;

use super::Who;

/// The users of this machine, unless they come from a directory service.
const USERS: &str = "/etc/passwd";

/// The user of a process on this machine, by the number of the user.
pub(crate) fn local_user(uid: u32) -> Who {
    let users = fs::read_to_string(USERS).unwrap_or_default();
    Who::Local { uid, name: name(&users, uid).map(str::to_owned) }
}

fn name(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_user_is_found_by_the_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:0::/:/bin/sh\n";
        assert_eq!([0, 1000, 1].map(|uid| name(users, uid)), [Some("root"), Some("ann"), None]);
    }
}
