//! Padding of log records to whole blocks.

use super::record::BLOCK;

/// A zeroed block into which short records are copied. Clearing a block for each record would cost
/// more than encoding the record.
#[derive(Debug)]
pub struct PaddedBlock {
    bytes: Box<[u8; BLOCK]>,
    /// Bytes at the start that may not be zero.
    used: usize,
}

impl Default for PaddedBlock {
    fn default() -> PaddedBlock {
        PaddedBlock { bytes: Box::new([0; BLOCK]), used: 0 }
    }
}

impl PaddedBlock {
    /// The record followed by zeros, `len` bytes in all.
    pub fn padded<'b>(&'b mut self, record: &'b mut Vec<u8>, len: usize) -> &'b [u8] {
        if len > BLOCK {
            record.resize(len, 0);
            return record;
        }
        let own = record.len();
        self.bytes[..own].copy_from_slice(record);
        if own < self.used {
            self.bytes[own..self.used].fill(0);
        }
        self.used = own;
        &self.bytes[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_record_is_padded_with_zeros() {
        let mut block = PaddedBlock::default();
        for (own, len) in
            [(10, BLOCK), (4000, BLOCK), (7, BLOCK), (600, 1024), (1, BLOCK), (5000, 2 * BLOCK), (0, 512)]
        {
            let record = vec![own as u8 | 1; own];
            let padded = block.padded(&mut record.clone(), len).to_vec();
            assert_eq!(padded.len(), len);
            assert!(padded[..own] == record && padded[own..].iter().all(|byte| *byte == 0), "{own} of {len}");
        }
    }
}
