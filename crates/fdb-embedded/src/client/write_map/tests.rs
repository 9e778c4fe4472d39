use super::*;

fn value(map: &WriteMap, key: &[u8], stored: Option<&[u8]>) -> Option<Vec<u8>> {
    match map.get(key) {
        Some(writes) => writes.value(stored.map(<[u8]>::to_vec)).unwrap(),
        None if map.cleared().contains(key) => None,
        None => stored.map(<[u8]>::to_vec),
    }
}

fn mutations(map: &WriteMap) -> Vec<Mutation> {
    map.clone().take_mutations()
}

#[test]
fn operations_stack_on_the_database_and_fold_on_own_values() {
    let mut map = WriteMap::default();
    map.atomic(AtomicOp::Add, b"k", &[1]);
    map.atomic(AtomicOp::Add, b"k", &[2]);
    assert_eq!(value(&map, b"k", Some(&[10])), Some(vec![13]));
    assert!(map.get(b"k").unwrap().is_dependent());
    map.set(b"k", &[1]);
    map.atomic(AtomicOp::Add, b"k", &[2]);
    assert_eq!(mutations(&map), [Mutation::Set { key: b"k".to_vec(), value: vec![3] }]);
    map.atomic(AtomicOp::CompareAndClear, b"k", &[3]);
    assert_eq!(value(&map, b"k", Some(&[10])), None);
}

#[test]
fn a_clear_makes_an_operation_independent_of_the_database() {
    let mut map = WriteMap::default();
    map.clear_range(b"a", b"z");
    map.atomic(AtomicOp::Add, b"k", &[2]);
    assert_eq!(value(&map, b"k", Some(&[10])), Some(vec![2]));
    assert!(map.dependent_parts(b"a", b"z").is_empty());
    assert_eq!(map.dependent_parts(b"a", b"zz").iter().collect::<Vec<_>>(), [(&b"z"[..], &b"zz"[..])]);
}

#[test]
fn a_key_removed_by_compare_and_clear_counts_as_written() {
    let mut map = WriteMap::default();
    map.set(b"k", &[1]);
    map.atomic(AtomicOp::CompareAndClear, b"k", &[1]);
    assert_eq!(value(&map, b"k", Some(&[10])), None);
    assert!(map.get(b"k").is_some() && map.decides(b"k"), "selectors count it, others cannot spoil it");
    assert_eq!(mutations(&map), [Mutation::ClearRange { begin: b"k".to_vec(), end: b"k\0".to_vec() }]);
}

#[test]
fn a_value_without_its_stamp_stays_unreadable_until_cleared() {
    let mut map = WriteMap::default();
    map.set_stamped_value(b"k", &[0; 10], 0);
    map.set(b"k", b"v");
    assert!(map.unreadable().contains(b"k"));
    assert_eq!(mutations(&map).len(), 2, "both are sent");
    assert_eq!(value(&map, b"k", None).as_deref(), Some(&b"v"[..]), "for direct reads of the key");
    map.atomic(AtomicOp::Add, b"k", &[1]);
    map.clear_range(b"k", b"l");
    assert!(map.unreadable().is_empty() && mutations(&map).len() == 1);
}

#[test]
fn earlier_writes_in_a_stamped_keys_range_are_sent_before_it() {
    let mut map = WriteMap::default();
    let key = [&b"q"[..], &[0xff; 10]].concat();
    map.clear_range(b"a", b"z");
    map.set(&key, b"before");
    map.set_stamped_key(stamped_range(&key, 1, 0), 1, b"v");
    map.set(&key, b"after");
    let sent = mutations(&map);
    let is_set = |m: &Mutation, v: &[u8]| matches!(m, Mutation::Set { value, .. } if value == v);
    let place = |v: &[u8]| sent.iter().position(|m| is_set(m, v)).unwrap();
    let stamped = sent.iter().position(|m| matches!(m, Mutation::StampedKey { .. })).unwrap();
    assert!(place(b"before") < stamped && stamped < place(b"after"), "{sent:?}");
    assert!(map.unreadable().contains(&key), "a later write does not make it readable");
}

#[test]
fn sent_size_equals_that_of_foundationdb() {
    let mut map = WriteMap::default();
    map.clear_range(b"a", b"e");
    map.set(b"c", b"v");
    // Clears of [a, c) and [c\0, e), and the set.
    assert_eq!(map.sent_size(), (44 + 2) + (44 + 3) + (44 + 2));
    map.atomic(AtomicOp::Or, b"x", &[1]);
    map.atomic(AtomicOp::Or, b"x", &[2]);
    assert_eq!(map.sent_size(), (44 + 2) + (44 + 3) + (44 + 2) + (44 + 2), "one operation");
    map.atomic(AtomicOp::Or, b"x", &[1, 2]);
    assert_eq!(map.sent_size(), (44 + 2) + (44 + 3) + 2 * (44 + 2) + (44 + 3), "of another length");
}

#[test]
fn a_stamped_key_is_unreadable_from_the_read_version_on_until_cleared() {
    let mut map = WriteMap::default();
    let key = [&b"q"[..], &[0xff; 10], b"\0\x01"].concat();
    map.set_stamped_key(stamped_range(&key, 1, 5), 1, b"v");
    let at = |version: i64| [&b"q"[..], &version.to_be_bytes(), &[0, 0, 0, 1]].concat();
    assert!(!map.unreadable().contains(&at(4)));
    assert!(map.unreadable().contains(&at(5)) && map.unreadable().contains(&key));
    map.clear_range(b"q", b"r");
    assert!(map.unreadable().is_empty() && mutations(&map).len() == 1);
}

#[test]
fn single_key_reads_equal_reads_of_the_whole_map() {
    let mut map = WriteMap::default();
    map.set_stamped_value(b"unreadable", &[0; 10], 0);
    map.set_stamped_key(stamped_range(&[&b"s"[..], &[0xff; 10]].concat(), 1, 0), 1, b"v");
    map.clear_range(b"cleared", b"cleared0");
    map.set(b"cleared/set", b"v");
    map.atomic(AtomicOp::Add, b"added", &[1]);
    map.set(b"set", b"v");
    let place = template([&b"s"[..], &[0; 10]].concat(), 1);
    let keys = [b"unreadable", &place[..], b"s\x01", b"cleared", b"cleared/set", b"added", b"set", b"none"];
    for key in keys {
        let only = map.only(key);
        let seen = |map: &WriteMap| {
            let unreadable = map.unreadable().contains(key);
            (map.get(key).cloned(), map.cleared().contains(key), unreadable, map.decides(key))
        };
        assert_eq!(seen(&only), seen(&map), "{key:?}");
        assert!(mutations(&only).len() <= 2, "{key:?}");
    }
}
