//! What the storage holds does not grow with the number of batches.

use super::*;
use crate::engine::holdings::Holdings;

/// Batches of a round, and rounds.
const BATCHES: u64 = 40;
const ROUNDS: usize = 6;
/// Bytes by which the data file may be larger than its rows ever were, and how many times as large.
const FILE_BYTES: usize = 1 << 20;
const FILE_FACTOR: usize = 6;

fn bytes_of(model: &Model) -> usize {
    model.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[test]
fn nothing_grows_with_the_number_of_batches() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage) = create();
        let (mut model, mut most, mut states) = (Model::new(), 0, Vec::new());
        for round in 0..ROUNDS {
            for _ in 0..BATCHES {
                let mutations = batch(&mut model, &mut random);
                let is_flushed = random.unit() < 0.6;
                let durability = if is_flushed { Durability::Flushed } else { Durability::Asynchronous };
                let update = apply_as(&storage, &mutations, None, durability).unwrap();
                states.extend(update.superversion.iter().map(Arc::downgrade));
                most = most.max(bytes_of(&model));
                if random.next().is_multiple_of(10) {
                    storage.checkpoint().unwrap();
                }
            }
            storage.flush_idle().unwrap();
            storage.checkpoint().unwrap();
            let mut held = Holdings::default();
            storage.add_holdings(&mut held);
            let rows = u64::try_from(bytes_of(&model)).unwrap();
            assert_eq!(
                held,
                Holdings { rows, data_file: 0, log: held.log, ..Holdings::default() },
                "round {round}"
            );
            assert!(held.log <= SHORT.most, "round {round}: {} bytes of log", held.log);
            let file = files.data.bytes().len();
            assert!(file <= FILE_BYTES + FILE_FACTOR * most, "round {round}: {file} bytes of {most}");
            states.retain(|state| state.strong_count() > 0);
            assert!(states.len() <= 1, "round {round}: {} states are there", states.len());
        }
    });
}
