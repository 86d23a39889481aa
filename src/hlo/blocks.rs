//! The search itself: blocks of a file, in parallel, each with enough of its neighbours to read what its edge cuts.
//!
//! A stamp belongs to the block in which it begins, so each is found exactly once whatever the block size. Memory is
//! one block a thread, whatever the file's size or the length of its lines.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memchr::memmem::Finder;
use rayon::prelude::*;

use super::escape::Escapes;
use super::source::Source;
use super::stamp::{self, MAX_STAMP_BYTES};
use super::tally::{Tally, is_under_transpose, name_start};
use super::user_label::UserLabels;

/// Bytes before a stamp in which its name's beginning is looked for.
const LEFT_BYTES: usize = 1 << 12;
/// Bytes after a block that are read along with it; a stamp that is longer still is read on its own.
const RIGHT_BYTES: usize = 1 << 11;

/// How to search.
pub(crate) struct Search<'a> {
    pub(crate) escapes: Escapes,
    pub(crate) user: Option<&'a UserLabels>,
    pub(crate) block_bytes: usize,
}

/// A stretch of a file with the part of it that this search owns.
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
            || is_under_transpose(before, self.escapes),
            || stamp::parse(bytes, self.escapes).and_then(|parsed| parsed.stamp),
        );
        if is_new {
            tally.remember(spelling);
        }
    }

    /// Whether the quoted string around a stamp names a source file, which is no scope.
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

    /// A user's expression is matched within strings: stretches between quotes, line ends and control bytes.
    ///
    /// A stretch belongs to the block in which it begins; one longer than [`MAX_STAMP_BYTES`] is no name.
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

    /// Searches a stream, in order, in constant memory; gives the line of each entry's first occurrence as well.
    pub(crate) fn run_stream(&self, mut reader: impl Read) -> io::Result<(Tally, Vec<u64>, u64)> {
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
                return Ok((tally, lines, base + buffer.len() as u64));
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
