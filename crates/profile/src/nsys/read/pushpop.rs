//! `report_nvtx_pushpop_trace.csv`, which older versions write.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::error::NsysErrorKind;
use super::super::range::NsysRange;

/// Reads the ranges of a table in CSV with a heading.
pub(super) fn host_ranges(text: &[u8]) -> Result<Vec<NsysRange>, NsysErrorKind> {
    let mut records = Records { rest: text, line: 0 };
    let heading = records.next().ok_or(NsysErrorKind::Row { line: 1, what: "there is no heading" })??;
    let place =
        |name: &'static str| heading.iter().position(|column| column == name).ok_or(NsysErrorKind::NoColumn(name));
    let [name, start, end, pid, tid, id, parent] = [
        place("Name")?,
        place("Start (ns)")?,
        place("End (ns)")?,
        place("PID")?,
        place("TID")?,
        place("RangeId")?,
        place("ParentId")?,
    ];
    let mut names: HashMap<String, (Arc<str>, bool)> = HashMap::new();
    let mut ranges = Vec::new();
    while let Some(record) = records.next() {
        let (record, line) = (record?, records.line);
        let text = |column: usize| record.get(column).map_or("", String::as_str);
        let number = |column: usize| {
            text(column)
                .parse::<i64>()
                .map_err(|_| NsysErrorKind::Row { line, what: "a time or an id is not a number" })
        };
        let full = text(name);
        let (name, is_xla) = match names.get(full) {
            Some(known) => known.clone(),
            None => {
                let own = full.strip_prefix("TSL:");
                let made = (Arc::from(own.unwrap_or(full)), own.is_some());
                names.insert(full.to_owned(), made.clone());
                made
            }
        };
        let parent = if text(parent).is_empty() { None } else { Some(number(parent)?) };
        ranges.push(NsysRange {
            id: number(id)?,
            parent,
            name,
            is_xla,
            start_ns: number(start)?,
            end_ns: number(end)?,
            pid: number(pid)?,
            tid: number(tid)?,
        });
    }
    Ok(ranges)
}

/// The records of a CSV text (RFC 4180): a field in quotes may hold commas, line feeds and doubled quotes.
struct Records<'t> {
    rest: &'t [u8],
    /// Of the last record's end.
    line: u64,
}

impl Iterator for Records<'_> {
    type Item = Result<Vec<String>, NsysErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (mut fields, mut field, mut in_quotes) = (Vec::new(), Vec::new(), false);
        self.line += 1;
        let mut at = 0;
        loop {
            let byte = self.rest.get(at).copied();
            at += 1;
            match byte {
                None if in_quotes => {
                    self.rest = &[];
                    return Some(Err(NsysErrorKind::Row { line: self.line, what: "a quoted field does not end" }));
                }
                Some(b'"') if in_quotes && self.rest.get(at) == Some(&b'"') => {
                    field.push(b'"');
                    at += 1;
                }
                Some(b'"') => in_quotes = !in_quotes,
                Some(b',') if !in_quotes => fields.push(std::mem::take(&mut field)),
                None | Some(b'\n') if !in_quotes => {
                    if field.last() == Some(&b'\r') {
                        field.pop();
                    }
                    fields.push(field);
                    self.rest = self.rest.get(at..).unwrap_or_default();
                    let text = |field: Vec<u8>| String::from_utf8_lossy(&field).into_owned();
                    return Some(Ok(fields.into_iter().map(text).collect()));
                }
                Some(byte) => {
                    self.line += u64::from(byte == b'\n');
                    field.push(byte);
                }
                None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_quotes_and_line_feeds() {
        let text = b"a,\"b,c\"\r\n\"d \"\"e\"\"\nf\",,g\n";
        let records: Vec<Vec<String>> = Records { rest: text, line: 0 }.map(Result::unwrap).collect();
        assert_eq!(records, [vec!["a", "b,c"], vec!["d \"e\"\nf", "", "g"]]);
        let cut = Records { rest: b"a\n\"b", line: 0 }.last().unwrap();
        assert!(matches!(cut, Err(NsysErrorKind::Row { line: 2, .. })));
    }

    #[test]
    fn what_is_no_number_is_said_with_its_line() {
        let heading = "Start (ns),End (ns),Name,PID,TID,RangeId,ParentId\n";
        let ranges =
            host_ranges(format!("{heading}1,5,\"TSL:XlaCompile:#module=f,x=1#\",7,8,9,\n2,3,b,7,8,10,9\n").as_bytes());
        let ranges = ranges.unwrap();
        assert_eq!((&*ranges[0].name, ranges[0].is_xla, ranges[0].parent), ("XlaCompile:#module=f,x=1#", true, None));
        assert_eq!((&*ranges[1].name, ranges[1].is_xla, ranges[1].parent), ("b", false, Some(9)));
        let bad = host_ranges(format!("{heading}1,5,a,7,8,9,\n1,x,a,7,8,9,\n").as_bytes());
        assert!(matches!(bad, Err(NsysErrorKind::Row { line: 3, .. })));
        assert!(matches!(host_ranges(b"Name\n"), Err(NsysErrorKind::NoColumn("Start (ns)"))));
    }
}
