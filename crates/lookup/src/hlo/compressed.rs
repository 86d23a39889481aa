//! gzip and zstd, decoded as a stream, with a bound on the output.

use std::io::{self, BufRead, BufReader, Read};

use super::error::{ScanError, ScanErrorKind};

/// Maximum decompressed size of a file.
pub(crate) const MAX_EXPANDED_BYTES: u64 = 1 << 36;

/// Counts the output of a decoder and remembers how it failed.
pub(crate) struct Expanded<R> {
    inner: R,
    left: u64,
}

/// The message by which a decompression bomb is recognised after passing through `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("expands to more than {MAX_EXPANDED_BYTES} bytes")]
struct DecompressionBomb;

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(DecompressionBomb))?;
        Ok(read)
    }
}

/// Decodes all members of a gzip file.
pub(crate) fn gzip(reader: impl Read) -> impl Read {
    Expanded { inner: flate2::bufread::MultiGzDecoder::new(BufReader::new(reader)), left: MAX_EXPANDED_BYTES }
}

/// Decodes all frames of a zstd file.
pub(crate) fn zstd(reader: impl Read) -> impl Read {
    Expanded { inner: Frames { state: FramesState::Between(BufReader::new(reader)) }, left: MAX_EXPANDED_BYTES }
}

/// What an error of these readers means.
pub(crate) fn error_kind(codec: &'static str, error: io::Error) -> ScanErrorKind {
    if error.get_ref().is_some_and(|inner| inner.is::<DecompressionBomb>()) {
        return ScanErrorKind::TooLarge {
            what: "the decompressed module".to_owned(),
            limit: MAX_EXPANDED_BYTES,
            advice: "XLA did not write this module; check where the file comes from",
        };
    }
    ScanErrorKind::Compressed { codec, source: error }
}

type Decoder<R> = ruzstd::decoding::StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>;

enum FramesState<R: Read> {
    Between(BufReader<R>),
    Within(Box<Decoder<R>>),
    Done,
}

struct Frames<R: Read> {
    state: FramesState<R>,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, FramesState::Done) {
                FramesState::Done => return Ok(0),
                FramesState::Between(mut reader) => {
                    if reader.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = Decoder::new(reader).map_err(|error| io::Error::other(error.to_string()))?;
                    self.state = FramesState::Within(Box::new(decoder));
                }
                FramesState::Within(mut decoder) => match decoder.read(buffer)? {
                    0 if !buffer.is_empty() => self.state = FramesState::Between(decoder.into_inner()),
                    read => {
                        self.state = FramesState::Within(decoder);
                        return Ok(read);
                    }
                },
            }
        }
    }
}

/// Decompressed bytes of a file that may be compressed with gzip or zstd; at most `most` of them.
///
/// # Errors
///
/// Bytes that are damaged, or more than `most` when plain.
pub fn read_plain(bytes: Vec<u8>, most: u64, place: &str) -> Result<Vec<u8>, ScanError> {
    let mut plain = Vec::new();
    let (codec, read) = match bytes.as_slice() {
        [0x1f, 0x8b, ..] => ("gzip", gzip(bytes.as_slice()).take(most.saturating_add(1)).read_to_end(&mut plain)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            ("zstd", zstd(bytes.as_slice()).take(most.saturating_add(1)).read_to_end(&mut plain))
        }
        _ => {
            plain = bytes;
            ("", Ok(plain.len()))
        }
    };
    read.map_err(|error| error_kind(codec, error).at(place))?;
    if plain.len() as u64 > most {
        let advice = "name the modules that you need one by one";
        return Err(ScanErrorKind::TooLarge { what: "the module".to_owned(), limit: most, advice }.at(place));
    }
    Ok(plain)
}
