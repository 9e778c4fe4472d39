//! A copy-on-write view of a file: writes stay in memory.

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;

use crate::disk::Disk;
use crate::layout::PAGE;

type OverlayPage = Box<[u8; PAGE as usize]>;

#[derive(Debug)]
struct OverlayContents {
    len: u64,
    /// Bytes of the file below that are still visible. Truncated bytes read as zeros if the length
    /// grows again.
    below_len: u64,
    /// Written pages by number.
    written: BTreeMap<u64, OverlayPage>,
}

/// A disk that keeps writes to another one in memory.
#[derive(Debug)]
pub struct Overlay<D> {
    below: D,
    state: Mutex<OverlayContents>,
}

impl<D: Disk> Overlay<D> {
    /// An overlay of `below`, which must not change meanwhile.
    pub fn new(below: D) -> io::Result<Overlay<D>> {
        let below_len = below.len()?;
        let state = Mutex::new(OverlayContents { len: below_len, below_len, written: BTreeMap::new() });
        Ok(Overlay { below, state })
    }

    /// Reads from below; zeros after its first `below_len` bytes.
    fn read_below(&self, below_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = below_len.saturating_sub(offset).min(out.len() as u64);
        let (there, beyond) = out.split_at_mut(usize::try_from(there).expect("at most the buffer"));
        beyond.fill(0);
        if there.is_empty() { Ok(()) } else { self.below.read_at(offset, there) }
    }
}

/// Splits `len` bytes at `offset` by page: page number, offset in the page, range of the bytes.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let narrow = |n: u64| usize::try_from(n).expect("less than a page");
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = narrow(at % PAGE);
        let part = done..len.min(done + narrow(PAGE) - within);
        done = part.end;
        (!part.is_empty()).then_some((at / PAGE, within, part))
    })
}

impl<D: Disk> Disk for Overlay<D> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if offset + out.len() as u64 > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(state.below_len, offset, out)?;
        for (number, within, part) in blocks(offset, out.len()) {
            if let Some(block) = state.written.get(&number) {
                let len = part.len();
                out[part].copy_from_slice(&block[within..within + len]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let below_len = state.below_len;
        for (number, within, part) in blocks(offset, data.len()) {
            let block = match state.written.entry(number) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let mut block: OverlayPage = Box::new([0; PAGE as usize]);
                    self.read_below(below_len, number * PAGE, &mut block[..])?;
                    entry.insert(block)
                }
            };
            block[within..within + part.len()].copy_from_slice(&data[part]);
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.below_len = state.below_len.min(len);
        drop(state.written.split_off(&len.div_ceil(PAGE)));
        if let Some(block) = state.written.get_mut(&(len / PAGE)) {
            block[usize::try_from(len % PAGE).expect("less than a page")..].fill(0);
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;
    use crate::sim::SplitMix;

    #[test]
    fn overlay_reads_like_a_file_and_leaves_the_disk_unchanged() {
        let mut random = SplitMix(3);
        let first: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let below = SimDisk::new(first.clone());
        let overlay = Overlay::new(below.clone()).unwrap();
        let plain = SimDisk::new(first.clone());
        for _ in 0..300 {
            let len = usize::try_from(plain.len().unwrap()).unwrap();
            let mut draw = |most: usize| usize::try_from(random.next() >> 8).unwrap() % (most + 1);
            let offset = draw(len);
            let size = draw(9_000.min(len - offset));
            if draw(20) == 0 {
                let len = (draw(6) * 4096 + draw(2) * draw(4095)) as u64;
                overlay.set_len(len).unwrap();
                plain.set_len(len).unwrap();
                continue;
            }
            let data = vec![u8::try_from(draw(255)).unwrap(); size];
            overlay.write_at(offset as u64, &data).unwrap();
            plain.write_at(offset as u64, &data).unwrap();
            let mut all = vec![1; len];
            overlay.read_at(0, &mut all).unwrap();
            assert!(all == plain.bytes(), "they differ");
        }
        assert_eq!(below.bytes(), first);
        assert!(overlay.read_at(plain.len().unwrap(), &mut [0]).is_err());
        overlay.set_len(0).unwrap();
        assert!(overlay.state.lock().written.is_empty(), "nothing is kept of what was cut off");
    }
}
