//! Reading an image from the rows of a queue.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::{ItemId, Kind, LeaseId, Meta, Packing, Progress};
use twox_hash::XxHash3_128;

use super::element::{Ids, split_bytes, split_last, split_number, split_stamp, unpacked};
use super::{
    Division, Held, HeldItem, Image, Stored, batches, cancelled, ended, expiry, lease, schedules, side,
};

/// A key and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// The rows of one queue.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Those under the name as a byte string, without prefix and name.
    pub(crate) records: Vec<Row>,
    /// A recipe's items, without prefix and name.
    pub(crate) items: Vec<Row>,
    /// The effects of handlers: item and number.
    pub(crate) effects: Vec<Row>,
}

/// The records, sorted by their second element; what is only part of an item is put together at the end.
struct Parts<'i> {
    ids: &'i mut Ids,
    image: Image,
    values: BTreeMap<ItemId, Vec<u8>>,
    metas: BTreeMap<ItemId, Meta>,
    chunks: BTreeMap<ItemId, Vec<u8>>,
    bodies: BTreeMap<ItemId, Vec<u8>>,
    pieces: BTreeMap<LeaseId, Vec<u8>>,
    progress: BTreeMap<LeaseId, BTreeMap<usize, Progress>>,
    headers: Vec<(LeaseId, Vec<u8>)>,
    later: Vec<(u64, ItemId, Meta)>,
    /// The times that lead from ids to the records of waiting items.
    dues: BTreeMap<ItemId, u64>,
    dead: Vec<(ItemId, Meta)>,
    /// Operations in the log by which they are forgotten.
    logged: BTreeSet<Vec<u8>>,
    /// A sweeper says that there were no leases when `npop` was this.
    idle: Option<u64>,
    schedules: schedules::Parts,
    batches: batches::Parts,
    ended: ended::Parts,
}

/// What the rows say; the error names a record that nobody should have written.
pub(crate) fn read(kind: Kind, ids: &mut Ids, rows: &Rows) -> Result<Image, String> {
    let mut parts = Parts::new(ids);
    for (key, value) in &rows.records {
        parts.record(key, value).ok_or_else(|| format!("record {} is not understood", key.escape_ascii()))?;
    }
    for (key, value) in &rows.items {
        let id =
            parts.ids.get(key).ok_or_else(|| format!("item key {} is not understood", key.escape_ascii()))?;
        parts.values.insert(id, value.clone());
    }
    for (key, value) in &rows.effects {
        let id = parts.ids.get(key).ok_or("an effect of no item")?;
        parts.image.effects.insert(id, number(value));
    }
    parts.image(kind)
}

fn number(value: &[u8]) -> u64 {
    value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Parts<'_> {
    fn new(ids: &mut Ids) -> Parts<'_> {
        Parts {
            ids,
            image: Image::default(),
            values: BTreeMap::new(),
            metas: BTreeMap::new(),
            chunks: BTreeMap::new(),
            bodies: BTreeMap::new(),
            pieces: BTreeMap::new(),
            progress: BTreeMap::new(),
            headers: Vec::new(),
            later: Vec::new(),
            dues: BTreeMap::new(),
            dead: Vec::new(),
            logged: BTreeSet::new(),
            idle: None,
            schedules: schedules::Parts::default(),
            batches: batches::Parts::default(),
            ended: ended::Parts::default(),
        }
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (name, rest) = split_bytes(key)?;
        let counters = &mut self.image.counters;
        match (name.as_slice(), rest) {
            (b"npush", []) => counters.npush = number(value),
            (b"npop", []) => counters.npop = number(value),
            (b"ndone", []) => counters.ndone = number(value),
            (b"nlater", []) => counters.nlater = number(value),
            (b"ndue", []) => counters.ndue = number(value),
            (b"nback", []) => counters.nback = number(value),
            (b"ndead", []) => counters.ndead = number(value),
            (b"ncancel", []) => counters.ncancel = number(value),
            (b"val" | b"kval", _) => {
                let id = self.ids.get(rest).filter(|id| id.partition() == 0)?;
                self.values.insert(id, value.to_vec());
            }
            (b"part", _) => {
                let id = self.ids.get(rest).filter(|id| id.partition() > 0)?;
                self.values.insert(id, value.to_vec());
            }
            (b"partitions", []) => {
                let ([1, count, most], rest) = value.split_first_chunk()? else { return None };
                (rest.len() == 8).then_some(())?;
                let max_disorder = number(rest);
                self.image.division = Some(Division { count: *count, most: *most, max_disorder });
            }
            (b"meta", _) => drop(self.metas.insert(self.ids.get(rest)?, side::decode(value)?)),
            // In the order of their numbers, since that is how rows come.
            (b"chunk", _) => {
                self.chunks.entry(self.ids.get(split_last(rest)?.0)?).or_default().extend_from_slice(value);
            }
            (b"lease", _) => self.headers.push((lease::id(rest)?, value.to_vec())),
            (b"progress", _) => drop(self.progress.insert(lease::id(rest)?, lease::progress(value)?)),
            (b"held", _) => self.pieces.entry(lease::id(rest)?).or_default().extend_from_slice(value),
            (b"cancelled", _) => {
                let record = cancelled::decode(self.ids, value)?;
                self.image.cancelled.insert(lease::id(rest)?, record);
            }
            (b"expiry", _) => {
                let (time, rest) = split_number(rest)?;
                self.image.expiry.insert((time, self.ids.get(rest)?), value.to_vec());
            }
            (b"later", _) => {
                let (due, rest) = split_number(rest)?;
                self.later.push((due, self.ids.get(rest)?, side::decode(value)?));
            }
            (b"due", _) => {
                self.dues.insert(self.ids.get(rest)?, u64::from_le_bytes(value.try_into().ok()?));
            }
            (b"dead", _) => self.dead.push((self.ids.get(rest)?, side::decode(value)?)),
            (b"body", _) => drop(self.bodies.insert(self.ids.get(rest)?, value.to_vec())),
            (b"unique", _) => drop(self.image.unique.insert(split_bytes(rest)?.0, self.ids.get(value)?)),
            (b"op", _) => {
                // The stamp, the number of items, the digest of what was pushed, how it was dealt out to partitions, and what became of each item.
                let (items, digest) = value.get(12..)?.split_first_chunk()?;
                (digest.len() == 16 || digest.len() >= 18).then_some(())?;
                let items = u32::from_le_bytes(*items);
                self.image.operations.insert(split_bytes(rest)?.0, items);
            }
            (b"oplog", _) => drop(self.logged.insert(value.to_vec())),
            (b"want", _) => drop(self.image.line.insert(split_stamp(rest)?.0, lease::want(value)?)),
            (b"pause", []) => self.image.frozen = true,
            // The index of a keyed queue is read apart.
            (
                b"listed" | b"active" | b"parked" | b"rate" | b"timer" | b"hold" | b"onhold" | b"nblocked"
                | b"running" | b"vtime" | b"nactive" | b"nfreed" | b"rule" | b"rules" | b"rules-pending",
                _,
            ) => {}
            (b"duty", []) => {
                // Format, session, and two versions; and `npop`, if the queue was idle.
                let npop = value.get(33..)?;
                (npop.is_empty() || npop.len() == 8).then_some(())?;
                self.idle = (!npop.is_empty()).then(|| number(npop));
            }
            (b"schedule" | b"schedule-state" | b"schedule-due" | b"schedule-log", _) => {
                self.schedules.record(self.ids, &name, rest, value)?;
            }
            (b"batch" | b"batch-item" | b"batch-count" | b"batch-due", _) => {
                self.batches.record(&name, rest, value)?;
            }
            (b"history" | b"ended" | b"ended-id" | b"ended-by" | b"result", _) => {
                self.ended.record(self.ids, &name, rest, value)?;
            }
            // What sessions and sweepers say to themselves.
            (b"token" | b"sweep" | b"times" | b"clocks", _) => {}
            _ => return None,
        }
        Some(())
    }

    fn image(mut self, kind: Kind) -> Result<Image, String> {
        for (id, value) in std::mem::take(&mut self.values) {
            let meta = self.metas.remove(&id).unwrap_or_default();
            let stored = self.stored(kind, &id, value, meta)?;
            self.image.ready.insert(id, stored);
        }
        for (due, id, meta) in std::mem::take(&mut self.later) {
            let stored = self.put_aside(kind, &id, meta)?;
            if self.dues.remove(&id) != Some(due) {
                return Err(format!("no time leads from {id:?} to its record"));
            }
            self.image.later.insert((due, id), stored);
        }
        for (id, meta) in std::mem::take(&mut self.dead) {
            let stored = self.put_aside(kind, &id, meta)?;
            self.image.dead.insert(id, stored);
        }
        for (id, header) in std::mem::take(&mut self.headers) {
            let held =
                self.held(kind, id, &header)?.ok_or_else(|| format!("lease {id:?} is not understood"))?;
            self.image.leases.insert(id, held);
        }
        if !self.image.operations.keys().eq(&self.logged) {
            return Err(format!("the log of operations has {:?}", self.logged));
        }
        // Sweepers do not look for leases as long as that is so.
        if self.idle == Some(self.image.counters.npop) && !self.image.leases.is_empty() {
            return Err("the record says that the queue is idle, but it has leases".to_owned());
        }
        self.image.batches = std::mem::take(&mut self.batches).batches()?;
        self.image.kept.clone_from(&self.ended.kept);
        self.image.ended = std::mem::take(&mut self.ended).ended()?;
        expiry::check(&self.image)?;
        self.image.schedules = std::mem::take(&mut self.schedules).schedules()?;
        let left = [
            ("side records", self.metas.keys().next().map(|id| format!("{id:?}"))),
            ("chunks", self.chunks.keys().next().map(|id| format!("{id:?}"))),
            ("bodies", self.bodies.keys().next().map(|id| format!("{id:?}"))),
            ("times", self.dues.keys().next().map(|id| format!("{id:?}"))),
            ("progress", self.progress.keys().next().map(|id| format!("{id:?}"))),
            ("pieces", self.pieces.keys().next().map(|id| format!("{id:?}"))),
        ];
        match left.into_iter().find_map(|(what, whose)| Some((what, whose?))) {
            Some((what, whose)) => Err(format!("{what} of {whose} belong to nothing")),
            None => Ok(self.image),
        }
    }

    /// An item in one piece; what it is made of belongs to nothing else.
    fn stored(&mut self, kind: Kind, id: &ItemId, value: Vec<u8>, meta: Meta) -> Result<Stored, String> {
        let mut payload = match kind {
            // One that is too long for a value is stored as it is.
            Kind::Recipe(Packing::Tuple) | Kind::Priority(_, Packing::Tuple)
                if meta.payload_len.is_none() =>
            {
                unpacked(&value).ok_or_else(|| format!("the value of {id:?} is no tuple"))?
            }
            _ => value,
        };
        payload.extend(self.chunks.remove(id).unwrap_or_default());
        match meta.payload_len {
            Some(len) if len != payload.len() as u64 => {
                Err(format!("{id:?} has {} bytes of {len}", payload.len()))
            }
            _ => Ok(Stored { payload, meta: side::essence(meta) }),
        }
    }

    fn put_aside(&mut self, kind: Kind, id: &ItemId, meta: Meta) -> Result<Stored, String> {
        let body = self.bodies.remove(id).ok_or_else(|| format!("{id:?} has no body"))?;
        self.stored(kind, id, body, meta)
    }

    fn held(&mut self, kind: Kind, lease: LeaseId, header: &[u8]) -> Result<Option<Held>, String> {
        let Some(header) = lease::Header::decode(header) else { return Ok(None) };
        let body = self.pieces.remove(&lease).unwrap_or(header.inline);
        let Some(rows) = lease::body(self.ids, &body) else { return Ok(None) };
        if let Some((span, fingerprints)) = &header.search {
            let read: Option<Vec<ItemId>> = span.iter().map(|id| self.ids.get(id)).collect();
            let ids = || rows.iter().map(|(id, ..)| id.clone());
            if read != ids().min().zip(ids().max()).map(|(least, greatest)| vec![least, greatest]) {
                return Err(format!("lease {lease:?} has items from {read:?} on, says its header"));
            }
            let fingerprint = |id: ItemId| {
                let [low, high, ..] = XxHash3_128::oneshot(id.as_bytes()).to_le_bytes();
                [low, high]
            };
            let right: Vec<_> = ids().map(fingerprint).collect();
            if *fingerprints != right {
                return Err(format!("lease {lease:?} has the fingerprints {fingerprints:?}, not {right:?}"));
            }
        }
        let mut items = Vec::new();
        let states = header.settled.into_iter().zip(header.joined);
        for ((id, mut meta, value), (settled, joined)) in rows.into_iter().zip(states) {
            if let Some(batch) = joined.iter().find(|batch| meta.batches.contains(batch)) {
                return Err(format!("{id:?} joined {batch}, and was a member of it before"));
            }
            // It is as if its side record had them.
            meta.batches.extend(joined);
            let stored = if settled { None } else { Some(self.stored(kind, &id, value, meta)?) };
            items.push(HeldItem { id, settled, stored });
        }
        let progress = self.progress.remove(&lease);
        if progress.is_some() != header.has_progress {
            return Err(format!(
                "lease {lease:?} has the progress {progress:?}, and its header says the opposite"
            ));
        }
        let (deadline, length) = (header.deadline, header.length);
        Ok(Some(Held { served: header.served, deadline, length, items, progress }))
    }
}
