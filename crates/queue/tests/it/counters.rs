//! The counters as other programs may leave them.

use crate::common::on_database;

#[test]
fn len_reads_numbers_of_any_length() {
    on_database(async |t| {
        let q = t.queue("q");
        let base = q.range().0;
        let base = base.split_last().unwrap().1;
        let (npush, npop) = ([base, b"\x01npush\0"].concat(), [base, b"\x01npop\0"].concat());
        for (pushed, popped, len) in [
            (&[5_u8][..], &[][..], 5),
            (&[0, 1], &[6], 250),
            (&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[4, 0, 0, 0, 0, 0, 0, 0], 5),
            // Only a foreign hand can do this; it is shown, not hidden.
            (&[1], &[3], -2),
        ] {
            t.run(async |tr| {
                tr.set(&npush, pushed);
                tr.set(&npop, popped);
                Ok(())
            })
            .await;
            assert_eq!(t.len(&q).await, len);
        }
    });
}
