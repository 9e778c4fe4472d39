//! A queue is divided into partitions while daemons work on it.

use super::{Reloading, queues, wait_until_done};
use crate::support::{Database, run};

#[test]
fn a_reload_divides_a_queue_and_its_consumers_go_on() {
    let with = |lines: &str| queues(&[("q", &format!("handler = 'stdout'\n{lines}"))]);
    let mut test = Reloading::start(Database::new(), &with(""), &["-v"]);
    run(&test.db, &["push", "q", "before"]).ok();
    wait_until_done(&test.db, "q", 1);
    let mut done = 1;
    for (count, max_disorder) in [(4, "1s"), (2, "200ms"), (1, "1s")] {
        test.hang_up(&with(&format!("partitions = {count}\nmax-disorder = '{max_disorder}'")));
        let said = test.daemon.wait_for_event("queue_divided");
        assert!(said.contains(&format!(r#""partitions":{count}"#)), "{said}");
        assert!(said.contains(&format!(r#""max_disorder":"{max_disorder}""#)), "{said}");
        for n in 0..8 {
            run(&test.db, &["push", "q", &format!("{count} {n}")]).ok();
        }
        done += 8;
        wait_until_done(&test.db, "q", done);
    }
    assert_eq!(test.daemon.events("consumer_started"), 1, "the consumer has stayed the same");
    test.stop();
}
