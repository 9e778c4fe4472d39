//! Finding the queues under a prefix.

use kvqueue_queue::{RetryPolicy, all_queues, queues, queues_page_named};

use crate::common::{TestDb, k, on_database};

async fn found(t: &TestDb, prefix: &[u8]) -> Vec<String> {
    let names = t.run(async |tr| queues(tr, prefix).await).await;
    names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn queues_are_found_among_foreign_keys() {
    on_database(async |t| {
        assert!(found(t, &t.prefix).await.is_empty());
        for name in ["b", "a", "a\0", "a\0b", "ab", "\0"] {
            t.push(&t.queue(name), &["item"]).await;
        }
        let long = [b"\x01".as_slice(), &[b'b'; 300], b"\0\x01npush\0"].concat();
        let foreign: [&[u8]; 9] = [
            b"",                          // the prefix itself
            b"\x00",                      // before all names
            b"\x01a\x00",                 // the bare tuple (a)
            b"\x01aa\x00",                // the bare tuple of no queue
            b"\x01aa\x00\x01other\x00",   // a byte string that is no record of ours
            b"\x01aa\x00\x15\x01",        // a number
            b"\x01no end",                // no tuple
            b"\x02text\x00\x01npush\x00", // a name that is text, not bytes
            &long,                        // a name too long for a queue
        ];
        t.run(async |tr| {
            for key in foreign {
                tr.set(&[t.prefix.as_slice(), key].concat(), b"");
            }
            Ok(())
        })
        .await;
        assert_eq!(found(t, &t.prefix).await, ["\0", "a", "a\0", "a\0b", "ab", "b"]);
    });
}

#[test]
fn a_queue_exists_from_its_first_push_until_it_is_deleted() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        assert!(session.take(&t.db, k(1)).await.unwrap().got.is_empty());
        assert!(found(t, &t.prefix).await.is_empty());
        session.push(&t.db, &["item"]).await.unwrap();
        drop(session.take(&t.db, k(1)).await.unwrap());
        assert_eq!(found(t, &t.prefix).await, ["q"]);
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert!(found(t, &t.prefix).await.is_empty());
    });
}

#[test]
fn any_record_but_a_token_makes_a_queue_exist() {
    on_database(async |t| {
        let stamped = [b"\x01val\0\x33".as_slice(), &[7; 12]].concat();
        let slot = [b"\x01token\0\x30".as_slice(), &[7; 16]].concat();
        let records: [(&str, &[u8]); 5] = [
            ("by items", &stamped),
            ("by npop", b"\x01npop\0"),
            ("by npush", b"\x01npush\0"),
            ("not by another name", b"\x01nother\0"),
            ("not by slots", &slot),
        ];
        t.run(async |tr| {
            for (name, record) in records {
                let base = t.queue(name).range().0;
                // A record that sorts before all of ours, so that the first key decides nothing.
                let earlier = [&base[..base.len() - 1], b"\x01attributes\0"].concat();
                tr.set(&earlier, b"");
                tr.set(&[&base[..base.len() - 1], record].concat(), b"");
            }
            Ok(())
        })
        .await;
        assert_eq!(found(t, &t.prefix).await, ["by items", "by npop", "by npush"]);
    });
}

#[test]
fn queues_under_other_prefixes_are_not_listed() {
    on_database(async |t| {
        t.push(&t.queue("q"), &["item"]).await;
        let inner = [t.prefix.as_slice(), b"inner/"].concat();
        assert!(found(t, &inner).await.is_empty());
        let queue = kvqueue_queue::Queue::new(&inner, b"i").unwrap();
        t.push(&queue, &["item"]).await;
        assert_eq!(found(t, &inner).await, ["i"]);
        assert_eq!(found(t, &t.prefix).await, ["q"]);
    });
}

#[test]
fn twenty_thousand_queues_are_found_in_pages() {
    on_database(async |t| {
        let names: Vec<String> = (0..20_000).map(|n| format!("q{n:05}")).collect();
        for page in names.chunks(2_000) {
            t.run(async |tr| {
                for name in page {
                    let queue = t.queue(name);
                    let key = crate::common::record(&queue, "npush", b"");
                    tr.set(&key, &1_u64.to_le_bytes());
                }
                Ok(())
            })
            .await;
        }
        // Each page has this time, and all together need more.
        let policy =
            RetryPolicy { timeout: Some(std::time::Duration::from_secs(5)), ..RetryPolicy::default() };
        let found = all_queues(&t.db, &t.prefix, &policy).await.unwrap();
        assert!(found.iter().map(Vec::as_slice).eq(names.iter().map(String::as_bytes)));
    });
}

/// Between queues of a few keys lie queues of many, and names whose first keys are no records of a queue.
#[test]
fn queues_are_found_between_large_ones_and_foreign_keys() {
    on_database(async |t| {
        let mut expected = Vec::new();
        for number in 0..300_usize {
            let name = format!("q{number:03}");
            let base = t.queue(&name).range().0;
            let base = &base[..base.len() - 1];
            // Foreign keys lie before all records; 40 of them are more than a read gives.
            let foreign = match number % 50 {
                7 | 8 => 40,
                _ => number % 3,
            };
            let (is_queue, rows) = (number % 4 > 0, if number % 60 == 9 { 3_000 } else { number % 5 });
            t.run(async |tr| {
                for at in 0..foreign {
                    let key = [base, b"\x01attributes\0\x15", &[u8::try_from(at + 1).unwrap()]].concat();
                    tr.set(&key, &[b'x'; 4_000]);
                }
                for at in 0..rows {
                    // Behind all records of a queue.
                    tr.set(
                        &[base, b"\x01zzz\0\x16", &u16::try_from(at).unwrap().to_be_bytes()].concat(),
                        b"x",
                    );
                }
                if is_queue {
                    tr.set(&[base, b"\x01npush\0"].concat(), &1_u64.to_le_bytes());
                }
                Ok(())
            })
            .await;
            expected.extend(is_queue.then_some(name));
        }
        assert_eq!(found(t, &t.prefix).await, expected);
    });
}

#[test]
fn queues_whose_names_begin_alike_are_found() {
    on_database(async |t| {
        for name in ["a", "a\0", "a\0b", "a\0\0", "ab", "abc", "b"] {
            t.push(&t.queue(name), &["item"]).await;
        }
        let named = async |text: &str| -> Vec<String> {
            let page = t.run(async |tr| queues_page_named(tr, &t.prefix, text.as_bytes(), None).await).await;
            assert_eq!(page.next, None);
            page.names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
        };
        assert_eq!(named("a").await, ["a", "a\0", "a\0\0", "a\0b", "ab", "abc"]);
        assert_eq!(named("a\0").await, ["a\0", "a\0\0", "a\0b"]);
        assert_eq!(named("ab").await, ["ab", "abc"]);
        assert!(named("abcd").await.is_empty());
        assert_eq!(named("").await.len(), 7);
    });
}
