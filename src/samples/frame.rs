//! One frame: a line of text with its length and checksum in front.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

/// Longest JSON of one frame.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

const MAGIC: &[u8] = b"ATL1 ";
/// `ATL1 llllllll cccccccc `
const HEADER_BYTES: usize = 23;

/// Bytes of a log that are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Where they start.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// Whether they are the end of a file that was cut in the middle of a write.
    pub torn_tail: bool,
}

/// The bytes of a frame around a JSON text.
pub(super) fn encode(json: impl AsRef<[u8]>) -> Vec<u8> {
    let json = json.as_ref();
    let mut frame = format!("ATL1 {:08x} {:08x} ", json.len(), crc32fast::hash(json)).into_bytes();
    frame.extend_from_slice(json);
    frame.push(b'\n');
    frame
}

/// The size of a frame with this many bytes of JSON, including its line feed.
pub(super) fn encoded_bytes(json_bytes: usize) -> u64 {
    (HEADER_BYTES + json_bytes + 1) as u64
}

/// The JSON of the frame at the start of the bytes, and the bytes after that JSON; `None` if none starts there.
pub(super) fn decode(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = bytes.get(..HEADER_BYTES)?;
    let (magic, numbers) = header.split_at_checked(MAGIC.len())?;
    if magic != MAGIC || numbers.get(8) != Some(&b' ') || numbers.get(17) != Some(&b' ') {
        return None;
    }
    let length = parse_hex(numbers.get(..8)?)? as usize;
    let checksum = parse_hex(numbers.get(9..17)?)?;
    let json = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(length)?)?;
    (crc32fast::hash(json) == checksum).then_some((json, bytes.get(HEADER_BYTES + length..)?))
}

fn parse_hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |value, digit| {
        // only the digits that the writer uses: another case would be another file with the same meaning
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u32::from(digit))
    })
}

/// Whether a file begins with the first bytes of a frame, even if there are only a few.
pub(super) fn starts_like_a_frame(file: &File) -> io::Result<bool> {
    let mut start = [0_u8; MAGIC.len()];
    let read = file.read_at(&mut start, 0)?;
    Ok(start.get(..read) == MAGIC.get(..read))
}

/// Calls `frame(offset, json)` for each complete frame of a log and collects what is between them.
pub(super) fn read_frames(
    mut reader: impl BufRead,
    mut frame: impl FnMut(u64, &[u8]),
) -> io::Result<(u64, Vec<Damage>)> {
    let mut damage: Vec<Damage> = Vec::new();
    let mut offset = 0_u64;
    let mut line = Vec::new();
    let limit = (HEADER_BYTES + MAX_FRAME_BYTES + 1) as u64;
    loop {
        line.clear();
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            return Ok((offset, damage));
        }
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let at = offset + read - rest.len() as u64;
            let Some((json, behind)) = decode(rest) else {
                let torn_tail = !line.ends_with(b"\n");
                add_damage(&mut damage, Damage { offset: at, bytes: rest.len() as u64, torn_tail });
                break;
            };
            frame(at, json);
            // a damaged line feed joins two lines: the length still shows where the first ends
            match behind.split_first() {
                Some((b'\n', after)) => rest = after,
                Some((_, after)) => {
                    let offset = at + (rest.len() - behind.len()) as u64;
                    add_damage(&mut damage, Damage { offset, bytes: 1, torn_tail: false });
                    rest = after;
                }
                None => break,
            }
        }
        offset += read;
    }
}

/// Adjacent damaged lines count as one: a file of nothing but line feeds must not fill the memory.
fn add_damage(damage: &mut Vec<Damage>, next: Damage) {
    match damage.last_mut() {
        Some(last) if last.offset + last.bytes == next.offset => {
            last.bytes += next.bytes;
            last.torn_tail = next.torn_tail;
        }
        _ => damage.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_of(bytes: &[u8]) -> (Vec<String>, Vec<Damage>) {
        let mut frames = Vec::new();
        let (end, damage) =
            read_frames(bytes, |_, json| frames.push(String::from_utf8_lossy(json).into_owned())).unwrap();
        assert_eq!(end, bytes.len() as u64);
        (frames, damage)
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        // CRC-32/ISO-HDLC check value of "123456789"
        assert_eq!(encode("123456789"), b"ATL1 00000009 cbf43926 123456789\n");
    }

    #[test]
    fn damage_that_touches_is_one() {
        let log = [&b"\n\n\n"[..], b"rubbish\n", &encode("{}"), b"x\ny"].concat();
        let torn_tail = |offset, bytes, torn_tail| Damage { offset, bytes, torn_tail };
        assert_eq!(frames_of(&log), (vec!["{}".to_owned()], vec![torn_tail(0, 11, false), torn_tail(37, 3, true)]));
    }

    #[test]
    fn every_flipped_bit_costs_one_frame_at_most_and_is_seen() {
        let log: Vec<u8> = ["{\"a\":1}", "{\"b\":22}", "{\"c\":333}"].iter().flat_map(encode).collect();
        assert_eq!(frames_of(&log).0.len(), 3);
        for index in 0..log.len() {
            for bit in 0..8 {
                let mut bytes = log.clone();
                bytes[index] ^= 1 << bit;
                let (frames, damage) = frames_of(&bytes);
                assert!(frames.len() >= 2, "byte {index} bit {bit}: {frames:?}");
                assert!(!damage.is_empty(), "byte {index} bit {bit} was not seen");
                assert!(frames.iter().all(|f| ["{\"a\":1}", "{\"b\":22}", "{\"c\":333}"].contains(&f.as_str())));
            }
        }
    }

    #[test]
    fn every_cut_keeps_the_frames_before_it() {
        let log: Vec<u8> = ["{\"a\":1}", "{\"b\":22}"].iter().flat_map(encode).collect();
        let first = encode("{\"a\":1}").len();
        for cut in 0..log.len() {
            let (frames, damage) = frames_of(&log[..cut]);
            // the last line feed is not needed to read a frame
            assert_eq!(frames.len(), usize::from(cut >= first - 1) + usize::from(cut >= log.len() - 1), "cut at {cut}");
            assert_eq!(
                damage.iter().any(|d| d.torn_tail),
                ![0, first - 1, first, log.len() - 1].contains(&cut),
                "{cut}"
            );
        }
    }
}
