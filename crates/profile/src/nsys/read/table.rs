//! Columns of a Parquet file. Only flat columns of text and numbers are read; lists are left alone.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::super::error::NsysErrorKind;
use super::pages;

/// Maximum number of rows of a table: times, names and ids of this many ranges take some gigabytes.
const MAX_ROWS: i64 = 1 << 26;
/// Maximum number of rows per byte: ids and times differ from row to row, so real tables have many bytes per row, and a
/// few bytes that encode millions of equal values are not a capture.
const MAX_ROWS_OF_A_BYTE: usize = 16;
/// Number of records read at a time.
const BATCH: usize = 1 << 16;

/// A column's values, one per row.
pub(super) enum Column {
    Text(Vec<Option<Arc<str>>>),
    /// Integers; doubles are rounded, since pandas makes doubles of integers with gaps.
    Number(Vec<Option<i64>>),
}

/// A Parquet file in memory.
pub(super) struct Table {
    bytes: Bytes,
    reader: SerializedFileReader<Bytes>,
    columns: HashMap<String, usize>,
    rows: usize,
    texts: HashMap<Arc<str>, ()>,
}

impl Table {
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, NsysErrorKind> {
        let bytes = Bytes::from(bytes);
        let reader = guarded(|| SerializedFileReader::new(bytes.clone()))?;
        let metadata = reader.metadata().file_metadata();
        let rows = metadata.num_rows();
        if !(0..=MAX_ROWS).contains(&rows) {
            return Err(NsysErrorKind::Parquet(format!("{rows} rows are not from 0 to {MAX_ROWS}")));
        }
        let rows = usize::try_from(rows).unwrap_or(0);
        if rows > bytes.len().saturating_mul(MAX_ROWS_OF_A_BYTE) {
            return Err(NsysErrorKind::Parquet(format!("{} bytes do not hold {rows} ranges", bytes.len())));
        }
        let flat = metadata.schema_descr().columns().iter().enumerate();
        let flat = flat.filter(|(_, column)| column.max_rep_level() == 0 && column.path().parts().len() == 1);
        let columns = flat.map(|(number, column)| (column.name().to_owned(), number)).collect();
        Ok(Self { bytes, columns, rows, texts: HashMap::new(), reader })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.columns.contains_key(name)
    }

    /// The first column of these names.
    fn column(&mut self, names: &[&'static str]) -> Result<Column, NsysErrorKind> {
        let number = names.iter().find_map(|name| self.columns.get(*name)).copied();
        let number = number.ok_or(NsysErrorKind::NoColumn(names.first().copied().unwrap_or("")))?;
        let (bytes, reader, rows, texts) = (&self.bytes, &self.reader, self.rows, &mut self.texts);
        guarded(|| check(bytes, reader, number))?;
        guarded(|| read(reader, number, rows, texts))
    }

    pub(super) fn texts(&mut self, names: &[&'static str]) -> Result<Vec<Option<Arc<str>>>, NsysErrorKind> {
        match self.column(names)? {
            Column::Text(texts) => Ok(texts),
            Column::Number(_) => Err(NsysErrorKind::NoColumn(names.first().copied().unwrap_or(""))),
        }
    }

    pub(super) fn numbers(&mut self, names: &[&'static str]) -> Result<Vec<Option<i64>>, NsysErrorKind> {
        match self.column(names)? {
            Column::Number(numbers) => Ok(numbers),
            Column::Text(_) => Err(NsysErrorKind::NoColumn(names.first().copied().unwrap_or(""))),
        }
    }
}

/// The crate assumes intact files; its panics on damaged ones end here.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, NsysErrorKind> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| NsysErrorKind::Parquet(error.to_string())),
        Err(_) => Err(NsysErrorKind::Parquet("its content is damaged".to_owned())),
    }
}

/// Checks the sizes of a column's pages before they are allocated.
fn check(bytes: &Bytes, file: &SerializedFileReader<Bytes>, column: usize) -> Result<(), ParquetError> {
    for group in file.metadata().row_groups() {
        let (start, length) = group.column(column).byte_range();
        let end = start.checked_add(length).and_then(|end| usize::try_from(end).ok());
        let chunk = usize::try_from(start).ok().zip(end).and_then(|(start, end)| bytes.get(start..end));
        if chunk.and_then(pages::check).is_none() {
            return Err(ParquetError::General("a page is damaged, or larger than its data can become".to_owned()));
        }
    }
    Ok(())
}

fn read(
    file: &SerializedFileReader<Bytes>,
    column: usize,
    rows: usize,
    texts: &mut HashMap<Arc<str>, ()>,
) -> Result<Column, ParquetError> {
    let (mut numbers, mut words): (Vec<Option<i64>>, Vec<Option<Arc<str>>>) = (Vec::new(), Vec::new());
    let mut is_text = false;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        macro_rules! add {
            ($reader:ident, $list:ident, $value:expr) => {{
                loop {
                    let (mut levels, mut values) = (Vec::new(), Vec::new());
                    let (records, ..) = $reader.read_records(BATCH, Some(&mut levels), None, &mut values)?;
                    if records == 0 {
                        break;
                    }
                    if levels.is_empty() {
                        // a required column has no levels: there is a value in each row
                        levels.resize(records, 1);
                    }
                    let mut values = values.into_iter();
                    $list.extend(levels.iter().map(|level| if *level > 0 { values.next().map($value) } else { None }));
                    if $list.len() > rows {
                        return Err(ParquetError::General("more values than rows".to_owned()));
                    }
                }
            }};
        }
        match group.get_column_reader(column)? {
            ColumnReader::Int32ColumnReader(mut reader) => add!(reader, numbers, i64::from),
            ColumnReader::Int64ColumnReader(mut reader) => add!(reader, numbers, |value| value),
            ColumnReader::FloatColumnReader(mut reader) => add!(reader, numbers, |value| value.round() as i64),
            ColumnReader::DoubleColumnReader(mut reader) => add!(reader, numbers, |value| value.round() as i64),
            ColumnReader::ByteArrayColumnReader(mut reader) => {
                is_text = true;
                let mut intern = |value: parquet::data_type::ByteArray| {
                    let text = String::from_utf8_lossy(value.data());
                    if let Some((known, ())) = texts.get_key_value(&*text) {
                        return known.clone();
                    }
                    let text: Arc<str> = text.into();
                    texts.insert(text.clone(), ());
                    text
                };
                add!(reader, words, &mut intern);
            }
            _ => return Err(ParquetError::NYI("a column of neither text nor numbers".to_owned())),
        }
    }
    // nothing is allocated for rows that only the footer mentions
    if numbers.len().max(words.len()) != rows {
        return Err(ParquetError::General("fewer values than rows".to_owned()));
    }
    Ok(if is_text { Column::Text(words) } else { Column::Number(numbers) })
}
