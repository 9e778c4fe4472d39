//! `kvqueue limits`

use crate::operations::{ListHeld, ListRules, RemoveRule, SetRule, Unblock};

super::operation::group! {
    /// Print the rules of a keyed queue, or change one; list held keys, or let one go on
    #[command(
        long_about = "Print the rules of a keyed queue, or change one; list held keys, or let one go on.\n\n\
        A rule is for the keys that match its pattern, in which * stands for any text. A pattern without a slash is for keys without a slash, and for all keys \
        before whose first slash it matches, together: 'tenant-7' limits the key tenant-7 and the keys tenant-7/... together. A pattern with a slash, such as \
        '*/*', is for keys with one. Of several rules that match, the one with the most characters other than * sets each limit.\n\n\
        Rules are kept in the database, and take effect at once in all daemons and workers. `kvqueue pop` takes items without regard to them."
    )]
    Command {
        List(ListRules),
        Set(SetRule),
        Remove(RemoveRule),
        Held(ListHeld),
        Unblock(Unblock),
    }
}
