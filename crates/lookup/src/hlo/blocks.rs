//! The search itself: blocks of a file, in parallel, each with enough of its neighbours to read stamps across its
//! edges.
//!
//! A stamp belongs to the block in which it begins, so each is found exactly once whatever the block size. Memory is
//! one block per thread, for any file size and line length.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memchr::memmem::Finder;
use rayon::prelude::*;

use super::escape::Escapes;
use super::source::Source;
use super::stamp::{self, MAX_STAMP_BYTES};
use super::tally::{Tally, Transformations, name_start};
use super::user_label::UserLabels;

/// Bytes before a stamp that are searched for the beginning of its name.
const LEFT_BYTES: usize = 1 << 12;
/// Bytes after a block that are read along with it; a stamp that is longer still is read on its own.
const RIGHT_BYTES: usize = 1 << 11;

/// How to search.
pub(crate) struct Search<'a> {
    pub(crate) escapes: Escapes,
    pub(crate) user: Option<&'a UserLabels>,
    pub(crate) block_bytes: usize,
}

/// A section of a file with the part of it that this search owns.
struct Window<'a> {
    bytes: &'a [u8],
    base: u64,
    own: std::ops::Range<usize>,
    at_end: bool,
}

/// Reads up to [`MAX_STAMP_BYTES`] at an offset of the file.
type Refetch<'a> = &'a dyn Fn(u64) -> io::Result<Vec<u8>>;

impl Search<'_> {
    /// Searches a whole source on all threads.
    pub(crate) fn run(&self, source: &dyn Source) -> io::Result<Tally> {
        let length = source.len();
        let next = AtomicU64::new(0);
        let failed = AtomicBool::new(false);
        let block = self.block_bytes.max(1) as u64;
        let tallies: Vec<Tally> = (0..rayon::current_num_threads())
            .into_par_iter()
            .map(|_| {
                let mut tally = Tally::default();
                let mut buffer = vec![0; LEFT_BYTES + self.block_bytes.max(1) + RIGHT_BYTES];
                loop {
                    let start = next.fetch_add(block, Ordering::Relaxed);
                    if start >= length || failed.load(Ordering::Relaxed) {
                        return Ok(tally);
                    }
                    self.block(source, start, &mut buffer, &mut tally)
                        .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                }
            })
            .collect::<io::Result<_>>()?;
        let mut total = Tally::default();
        tallies.into_iter().for_each(|tally| total.merge(tally));
        Ok(total)
    }

    fn block(&self, source: &dyn Source, start: u64, buffer: &mut [u8], tally: &mut Tally) -> io::Result<()> {
        let left = start.min(LEFT_BYTES as u64);
        let base = start - left;
        let left = left as usize;
        let wanted = (left + self.block_bytes.max(1) + RIGHT_BYTES).min(buffer.len());
        let read = source.read_at(buffer.get_mut(..wanted).unwrap_or_default(), base)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        let window = Window {
            bytes,
            base,
            own: left.min(read)..(left + self.block_bytes.max(1)).min(read),
            at_end: base + read as u64 >= source.len(),
        };
        self.window(&window, tally, &|offset| source.window(offset, MAX_STAMP_BYTES))
    }

    fn window(&self, window: &Window<'_>, tally: &mut Tally, refetch: Refetch<'_>) -> io::Result<()> {
        for prefix in [stamp::EJKERNEL, stamp::TOKAMAX] {
            // a prefix that begins in this block may end in the next
            let end = (window.own.end + prefix.len() - 1).min(window.bytes.len());
            let haystack = window.bytes.get(window.own.start..end).unwrap_or_default();
            for hit in Finder::new(prefix).find_iter(haystack) {
                self.hit(window, window.own.start + hit, tally, refetch)?;
            }
        }
        match self.user {
            Some(user) => self.user_labels(user, window, tally, refetch),
            None => Ok(()),
        }
    }

    fn hit(&self, window: &Window<'_>, at: usize, tally: &mut Tally, refetch: Refetch<'_>) -> io::Result<()> {
        let rest = window.bytes.get(at..).unwrap_or_default();
        let before = window.bytes.get(at.saturating_sub(LEFT_BYTES)..at).unwrap_or_default();
        let offset = window.base + at as u64;
        let is_hash = rest.get(stamp::EJKERNEL.len()) == Some(&b'#');
        let (length, open) = if is_hash {
            let extent = stamp::measure_hash(rest);
            (extent.length, extent.open)
        } else if let Some(length) = tally.repeated_length(rest) {
            (length, false)
        } else {
            match stamp::parse(rest, self.escapes) {
                Some(parsed) => (parsed.length, parsed.open),
                None => (0, rest.len() < stamp::EJKERNEL.len() + 2),
            }
        };
        if open && !window.at_end && rest.len() < MAX_STAMP_BYTES {
            let longer = refetch(offset)?;
            if let Some(parsed) = stamp::parse(&longer, self.escapes) {
                self.count(&longer, parsed.length, before, offset, tally);
            }
        } else if length > 0 {
            self.count(rest, length, before, offset, tally);
        }
        Ok(())
    }

    fn count(&self, bytes: &[u8], length: usize, before: &[u8], offset: u64, tally: &mut Tally) {
        let spelling = bytes.get(..length).unwrap_or_default();
        if self.is_file_path(before, bytes.get(length..).unwrap_or_default()) {
            return;
        }
        let is_json = spelling.get(stamp::EJKERNEL.len()) != Some(&b'#');
        let is_new = is_json && tally.repeated_length(bytes).is_none();
        tally.count(
            spelling,
            offset,
            || Transformations::of(before, self.escapes),
            || stamp::parse(bytes, self.escapes).and_then(|parsed| parsed.stamp),
        );
        if is_new {
            tally.remember(spelling);
        }
    }

    /// Whether the quoted string around a stamp names a source file, which is not a scope.
    fn is_file_path(&self, before: &[u8], after: &[u8]) -> bool {
        match self.escapes {
            Escapes::Raw => false,
            Escapes::C => {
                let Some(start) = name_start(before, self.escapes) else { return false };
                let ahead = before.get(..start - 1).unwrap_or_default();
                if ahead.ends_with(b"op_name=") {
                    return false;
                }
                // a row of the FileNames or FunctionNames table: a number and the quoted string
                let line = memchr::memrchr(b'\n', ahead).map_or(ahead, |at| ahead.get(at + 1..).unwrap_or_default());
                let is_row = line.split_last().is_some_and(|(&blank, number)| {
                    blank == b' ' && !number.is_empty() && number.iter().all(u8::is_ascii_digit)
                });
                is_row || ahead.ends_with(b"source_file=")
            }
            Escapes::Mlir => {
                let near = after.get(..LEFT_BYTES).unwrap_or(after);
                let Some(quote) = memchr::memchr(b'"', near) else { return false };
                matches!(near.get(quote + 1..), Some([b':', digit, ..]) if digit.is_ascii_digit())
            }
        }
    }

    /// A user's expression is matched within strings: sections between quotes, line ends and control bytes.
    ///
    /// A section belongs to the block in which it begins; one longer than [`MAX_STAMP_BYTES`] is not a name.
    fn user_labels(
        &self,
        user: &UserLabels,
        window: &Window<'_>,
        tally: &mut Tally,
        refetch: Refetch<'_>,
    ) -> io::Result<()> {
        let is_end = |bytes: &[u8], at: usize| match bytes.get(at) {
            Some(b'"') if self.escapes != Escapes::Raw => at == 0 || bytes.get(at - 1) != Some(&b'\\'),
            Some(&byte) => byte < 0x20,
            None => false,
        };
        let end_after =
            |bytes: &[u8], from: usize| (from..bytes.len().min(from + MAX_STAMP_BYTES)).find(|&at| is_end(bytes, at));
        let mut start = window.own.start;
        if start > 0 && !is_end(window.bytes, start - 1) {
            match (start..window.own.end).find(|&at| is_end(window.bytes, at)) {
                Some(end) => start = end + 1,
                None => return Ok(()),
            }
        }
        while start < window.own.end {
            let offset = window.base + start as u64;
            match end_after(window.bytes, start) {
                Some(end) => {
                    user.count(window.bytes.get(start..end).unwrap_or_default(), self.escapes, offset, tally);
                    start = end + 1;
                }
                None if window.at_end => {
                    let rest = window.bytes.get(start..).unwrap_or_default();
                    if rest.len() <= MAX_STAMP_BYTES {
                        user.count(rest, self.escapes, offset, tally);
                        return Ok(());
                    }
                    start = (start..window.bytes.len())
                        .find(|&at| is_end(window.bytes, at))
                        .map_or(usize::MAX, |at| at + 1);
                }
                None => {
                    let longer = refetch(offset)?;
                    if let Some(end) = end_after(&longer, 0) {
                        user.count(longer.get(..end).unwrap_or_default(), self.escapes, offset, tally);
                    }
                    start =
                        (start..window.own.end).find(|&at| is_end(window.bytes, at)).map_or(usize::MAX, |at| at + 1);
                }
            }
        }
        Ok(())
    }

    /// Searches a stream, in order, in constant memory; also returns the line of each entry's first occurrence.
    pub(crate) fn run_stream(&self, mut reader: impl Read) -> io::Result<(Tally, Vec<u64>)> {
        let block = self.block_bytes.max(MAX_STAMP_BYTES);
        let mut tally = Tally::default();
        let mut lines = Vec::new();
        let mut line = 1_u64;
        let mut buffer: Vec<u8> = Vec::with_capacity(LEFT_BYTES + block + MAX_STAMP_BYTES);
        let (mut base, mut own_start) = (0_u64, 0_usize);
        loop {
            let wanted = (own_start + block + MAX_STAMP_BYTES).saturating_sub(buffer.len());
            let read = reader.by_ref().take(wanted as u64).read_to_end(&mut buffer)?;
            let at_end = read < wanted;
            let own_end = if at_end { buffer.len() } else { (own_start + block).min(buffer.len()) };
            let window = Window { bytes: &buffer, base, own: own_start..own_end, at_end };
            self.window(&window, &mut tally, &|offset| {
                let from = usize::try_from(offset - base).unwrap_or(usize::MAX);
                let rest = buffer.get(from..).unwrap_or_default();
                Ok(rest.get(..MAX_STAMP_BYTES).unwrap_or(rest).to_vec())
            })?;
            let newlines = |from: usize, to: usize| {
                memchr::memchr_iter(b'\n', buffer.get(from..to).unwrap_or_default()).count() as u64
            };
            for entry in tally.entries.get(lines.len()..).unwrap_or_default() {
                let first = usize::try_from(entry.first - base).unwrap_or(usize::MAX).min(own_end);
                lines.push(line + newlines(own_start, first));
            }
            line += newlines(own_start, own_end);
            if at_end {
                return Ok((tally, lines));
            }
            let keep_from = own_end.saturating_sub(LEFT_BYTES);
            buffer.drain(..keep_from);
            base += keep_from as u64;
            own_start = own_end - keep_from;
        }
    }
}

/// Line numbers, from 1, of offsets in a source: newlines are counted only up to the last of them.
pub(crate) fn lines_at(source: &dyn Source, offsets: &[u64], block_bytes: usize) -> io::Result<Vec<u64>> {
    let block = block_bytes.max(1) as u64;
    let last = offsets.iter().copied().max().unwrap_or(0);
    let count_in = |buffer: &mut Vec<u8>, start: u64, end: u64| -> io::Result<u64> {
        buffer.resize((end - start) as usize, 0);
        let read = source.read_at(buffer, start)?;
        Ok(memchr::memchr_iter(b'\n', buffer.get(..read).unwrap_or_default()).count() as u64)
    };
    let counts: Vec<u64> = (0..last / block)
        .into_par_iter()
        .map_init(Vec::new, |buffer, index| count_in(buffer, index * block, (index + 1) * block))
        .collect::<io::Result<_>>()?;
    let before: Vec<u64> = std::iter::once(0)
        .chain(counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
        .collect();
    let mut buffer = Vec::new();
    offsets
        .iter()
        .map(|&offset| {
            let whole = offset / block;
            let lines = before.get(whole as usize).copied().unwrap_or(0);
            Ok(1 + lines + count_in(&mut buffer, whole * block, offset)?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::hlo::Label;

    /// Labels of a whole text by one expression over all of it, independent of blocks.
    fn naive(text: &str) -> BTreeMap<String, (u64, u64)> {
        let label = regex::Regex::new("ejkernel_ops#[A-Za-z0-9_.@-]+(:[0-9a-f]{16})?").unwrap();
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for found in label.find_iter(text) {
            let entry = all.entry(found.as_str().replace("ejkernel_ops#", "")).or_insert((0, found.start() as u64));
            entry.0 += 1;
        }
        all
    }

    fn counted(tally: &Tally) -> BTreeMap<String, (u64, u64)> {
        tally
            .entries
            .iter()
            .map(|entry| {
                let Label { op_id, call_key } = entry.stamp.label.clone();
                let text = call_key.map_or(op_id.clone(), |key| format!("{op_id}:{key}"));
                (text, (entry.occurrences, entry.first))
            })
            .collect()
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("ejkernel_ops#rms_norm@v1:020151af84a38253".to_owned()),
            Just("ejkernel_ops#flash@v2:39205d2e7dfcef1b".to_owned()),
            Just("ejkernel_ops#rms_norm".to_owned()),
            Just("ejkernel_ops#".to_owned()),
            Just("ejkernel_ops".to_owned()),
            Just("ejkernel_ops#rms_norm@v1:0201".to_owned()),
            Just("\n".to_owned()),
            Just("transpose(".to_owned()),
            "[a-z/(\" ]{0,40}",
        ]
    }

    proptest! {
        #[test]
        fn blocks_of_any_size_find_what_one_pass_finds(
            pieces in proptest::collection::vec(piece(), 0..60),
            block_bytes in 1_usize..300,
        ) {
            // a separator keeps a piece from prolonging the name before it
            let text = pieces.join("/");
            let search = Search { escapes: Escapes::Raw, user: None, block_bytes };
            let tally = search.run(&text.as_bytes()).unwrap();
            prop_assert_eq!(counted(&tally), naive(&text));
            let offsets: Vec<u64> = tally.entries.iter().map(|entry| entry.first).collect();
            let lines = lines_at(&text.as_bytes(), &offsets, block_bytes).unwrap();
            for (offset, line) in offsets.iter().zip(lines) {
                prop_assert_eq!(line, 1 + text[..*offset as usize].matches('\n').count() as u64);
            }
        }

        #[test]
        fn a_users_expression_finds_the_same_in_blocks_of_any_size(
            words in proptest::collection::vec("[a-c]{0,4}(:[a-c]{1,3})?", 0..80),
            block_bytes in 1_usize..200,
        ) {
            let text = words.join("\"");
            let user = UserLabels::new("(?P<op>[a-c]+):(?P<key>[a-c]+)").unwrap();
            let whole = regex::Regex::new("(?P<op>[a-c]+):(?P<key>[a-c]+)").unwrap();
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for found in whole.find_iter(&text) {
                *expected.entry(found.as_str().to_owned()).or_default() += 1;
            }
            let search = Search { escapes: Escapes::C, user: Some(&user), block_bytes };
            let found: BTreeMap<String, u64> =
                counted(&search.run(&text.as_bytes()).unwrap())
                    .into_iter()
                    .map(|(name, (count, _))| (name, count))
                    .collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_stream_finds_what_a_file_finds() {
        // labels of many lengths slide over the edges of the stream's blocks, long json stamps among them
        let mut text = String::new();
        let json = format!(
            "ejkernel_ops:{{\"args\":[\"{}\"],\"cfg\":0,\"kwargs\":{{}},\"op_id\":\"op@v1\"}}",
            "x".repeat(40_000)
        );
        while text.len() < 700_000 {
            let pad = text.len() % 977;
            text.push_str(&"p".repeat(pad));
            text.push_str(if pad.is_multiple_of(13) { &json } else { "/ejkernel_ops#rms_norm@v1:020151af84a38253/\n" });
        }
        let search = Search { escapes: Escapes::Raw, user: None, block_bytes: 70_000 };
        let (tally, lines) = search.run_stream(text.as_bytes()).unwrap();
        let file = search.run(&text.as_bytes()).unwrap();
        assert_eq!(counted(&tally), counted(&file));
        let stamps = text.matches("ejkernel_ops").count() as u64;
        assert_eq!(tally.entries.iter().map(|entry| entry.occurrences).sum::<u64>(), stamps);
        for (entry, line) in tally.entries.iter().zip(lines) {
            assert_eq!(line, 1 + text[..entry.first as usize].matches('\n').count() as u64);
        }
    }

    #[test]
    fn source_paths_are_no_labels() {
        let hlo = b"FileNames\n1 \"/src/ejkernel_ops#a@v1:020151af84a38253.py\"\
                    \n  %x = f32[] add(), metadata={op_name=\"ejkernel_ops#b\" source_file=\"/ejkernel_ops#c\"}\n";
        let mlir = b"#loc1 = loc(\"/ejkernel_ops#a\":12:3)\n#loc2 = loc(\"ejkernel_ops#b\"(#loc1))\n";
        for (text, escapes) in [(&hlo[..], Escapes::C), (mlir, Escapes::Mlir)] {
            let tally = Search { escapes, user: None, block_bytes: 64 }.run(&text).unwrap();
            assert_eq!(counted(&tally).into_keys().collect::<Vec<_>>(), ["b"]);
        }
    }
}
