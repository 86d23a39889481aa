//! Tokamax's calls as entries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::classes::platform_of;
use super::format::{DEVICE_KIND, FORMAT, MAX_CALL_BYTES, MAX_RECORDS};
use super::measured::fastest;
use crate::cache::{CacheKey, Entry, Peer, PeerRecord};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::counted::counted;
use crate::device::DeviceIdentity;
use crate::exchange::json_text::canonical;
use crate::hlo::tokamax_label;

/// One call as a file of Tokamax's has it.
pub(super) struct TokamaxCallData {
    /// `{"op":{"__type":…},"arguments":{…}}`.
    pub(super) stamp: String,
    /// Its configs with their measurements.
    pub(super) value: String,
    /// What the file holds besides its calls.
    pub(super) envelope: Option<String>,
}

/// The entries of the calls so far.
#[derive(Default)]
pub(super) struct Calls {
    entries: Vec<(CacheKey, Entry)>,
    places: HashMap<CacheKey, usize>,
    /// Records of calls without a config, by device kind.
    without_config: BTreeMap<String, Vec<PeerRecord>>,
    place: u64,
    pub(super) skipped: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Calls {
    /// Adds a call; `what` names it in messages.
    pub(super) fn put(&mut self, device_kind: &str, data: TokamaxCallData, what: impl Fn() -> String) {
        let (call, config) = match read(&data) {
            Ok(read) => read,
            Err(reason) => return self.skipped.push(format!("{}: {reason}", what())),
        };
        let TokamaxCallData { stamp, value, envelope } = data;
        let record = PeerRecord { place: self.place, key: stamp, value, envelope };
        self.place += 1;
        match config {
            Some(config) => self.keep(key_of(call, device_kind), config, record),
            // every config failed there: nothing to look up, but Tokamax keeps the record
            None => self.without_config.entry(device_kind.to_owned()).or_default().push(record),
        }
    }

    fn keep(&mut self, key: CacheKey, config: Config, record: PeerRecord) {
        let known = self.places.get(&key).and_then(|place| self.entries.get_mut(*place));
        let Some((key, entry)) = known else {
            let peer = Some(Peer { format: FORMAT.to_owned(), records: vec![record] });
            self.places.insert(key.clone(), self.entries.len());
            return self.entries.push((key, Entry { peer, ..Entry::new(config) }));
        };
        let name = format!("`{}`", key.call);
        let Some(peer) = &mut entry.peer else { return };
        if let Some((index, same)) =
            peer.records.iter_mut().enumerate().find(|(_, known)| canonical(&known.key) == canonical(&record.key))
        {
            *same = record;
            if index == 0 {
                entry.config = config;
            }
            return self.skipped.push(format!("{name} occurs twice; the last one counts"));
        }
        if !has_room(peer, &record) {
            let reason = format!("more than {MAX_RECORDS} calls or {MAX_CALL_BYTES} bytes for one label");
            return self.skipped.push(format!("{name}: {reason}"));
        }
        peer.records.push(record);
        self.notes.push(format!(
            "{name}: a label does not distinguish the operation's own settings; look-ups give the first one's config, \
             an export gives all"
        ));
    }

    /// The entries; what was left out and the notes are complete then.
    pub(super) fn finish(&mut self) -> Vec<(CacheKey, Arc<Entry>)> {
        self.keep_without_config();
        std::mem::take(&mut self.entries).into_iter().map(|(key, entry)| (key, Arc::new(entry))).collect()
    }

    /// Attaches each record without a config to an entry of its device, because there is no entry without a config.
    fn keep_without_config(&mut self) {
        for (kind, records) in std::mem::take(&mut self.without_config) {
            let count = records.len();
            let peers = self.entries.iter_mut().filter(|(key, _)| key.device.device_kind == kind);
            let mut peers = peers.filter_map(|(_, entry)| entry.peer.as_mut()).peekable();
            let mut kept = 0;
            for record in records {
                while peers.next_if(|peer| !has_room(peer, &record)).is_some() {}
                if let Some(peer) = peers.peek_mut() {
                    peer.records.push(record);
                    kept += 1;
                }
            }
            let kind = kind.escape_debug();
            if kept > 0 {
                let calls = counted(kept, "call");
                self.notes.push(format!("`{kind}`: {calls} without a config; an export has them, look-ups do not"));
            }
            if kept < count {
                let calls = counted(count - kept, "call");
                let next = "import them together with calls of the device that have one";
                self.skipped.push(format!("`{kind}`: {calls} without a config, for which there is no entry: {next}"));
            }
        }
    }
}

/// The call of a record, and its config if one was measured, or what is wrong.
fn read(data: &TokamaxCallData) -> Result<(Call, Option<Config>), String> {
    if data.stamp.len() + data.value.len() > MAX_CALL_BYTES {
        return Err(format!("more than {MAX_CALL_BYTES} bytes for one call"));
    }
    let label = tokamax_label(&data.stamp).and_then(|label| Some(Call::new(label.op_id, label.call_key?)));
    let call = label.ok_or("it names no operation with its arguments")?;
    let config = fastest(&data.value).map_err(|reason| format!("`{call}`: {reason}"))?;
    Ok((call, config))
}

fn key_of(call: Call, device_kind: &str) -> CacheKey {
    let device = DeviceIdentity {
        platform: platform_of(device_kind).to_owned(),
        device_kind: device_kind.to_owned(),
        hardware: BTreeMap::from([(DEVICE_KIND.to_owned(), device_kind.to_owned())]),
    };
    CacheKey { call, direction: Direction::Forward, device }
}

/// Whether a label can hold one more record.
fn has_room(peer: &Peer, record: &PeerRecord) -> bool {
    let length =
        |record: &PeerRecord| record.key.len() + record.value.len() + record.envelope.as_ref().map_or(0, String::len);
    let held: usize = peer.records.iter().map(length).sum();
    peer.records.len() < MAX_RECORDS && held + length(record) <= MAX_CALL_BYTES
}
