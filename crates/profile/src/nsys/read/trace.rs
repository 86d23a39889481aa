//! The two traces in their several versions, as ranges.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::error::NsysErrorKind;
use super::super::range::NsysRange;
use super::table::Table;

/// XLA's own domain, which names of newer versions do not carry.
const DOMAIN: &str = "TSL:";

/// The range's name without XLA's domain; `None` for a range of another domain.
fn own_name(name: &str) -> Option<&str> {
    name.strip_prefix(DOMAIN)
}

/// `nvtx_gpu_proj_trace/trace.parquet`: times on the GPU.
pub(super) fn device_ranges(bytes: Vec<u8>) -> Result<Vec<NsysRange>, NsysErrorKind> {
    let mut table = Table::new(bytes)?;
    let (names, domains) = if table.has("Name") {
        (table.texts(&["Name"])?, None)
    } else {
        let domains = if table.has("Domain") { Some(table.texts(&["Domain"])?) } else { None };
        (table.texts(&["Text"])?, domains)
    };
    let starts = table.numbers(&["Projected Start", "Start"])?;
    let ends = match table.has("Projected Duration") {
        true => {
            let add = |(start, duration): (&Option<i64>, Option<i64>)| Some((*start)?.saturating_add(duration?));
            starts.iter().zip(table.numbers(&["Projected Duration"])?).map(add).collect()
        }
        false => table.numbers(&["End"])?,
    };
    let (ids, parents) = (table.numbers(&["RangeId", "Range ID"])?, table.numbers(&["ParentId", "Parent ID"])?);
    let (pids, tids) = (table.numbers(&["PID"])?, table.numbers(&["TID"])?);
    let mut ranges = Vec::new();
    for row in 0..ids.len() {
        let number = |list: &[Option<i64>]| list.get(row).copied().flatten();
        let Some(name) = names.get(row).and_then(Option::as_ref) else { continue };
        let (Some(id), Some(start_ns), Some(end_ns)) = (number(&ids), number(&starts), number(&ends)) else { continue };
        let domain = domains.as_ref().and_then(|domains| domains.get(row)?.clone());
        let has_domain = table.has("Name") || domain.is_some();
        let (is_xla, name): (bool, Arc<str>) = match (domain, own_name(name)) {
            (Some(domain), _) => (&*domain == "TSL", name.clone()),
            (None, Some(own)) => (true, own.into()),
            (None, None) => (!has_domain && !name.starts_with("nccl"), name.clone()),
        };
        ranges.push(NsysRange {
            id,
            parent: number(&parents),
            name,
            is_xla,
            start_ns,
            end_ns,
            pid: number(&pids).unwrap_or(0),
            tid: number(&tids).unwrap_or(0),
        });
    }
    Ok(ranges)
}

/// `report_nvtx_pushpop_trace.parquet`: times on the host.
pub(super) fn host_ranges(bytes: Vec<u8>) -> Result<Vec<NsysRange>, NsysErrorKind> {
    let mut table = Table::new(bytes)?;
    let (names, starts) = (table.texts(&["Name"])?, table.numbers(&["Start (ns)", "Start:ts_ns"])?);
    let ends = table.numbers(&["End (ns)", "End:ts_ns"])?;
    let (ids, parents) = (table.numbers(&["RangeId"])?, table.numbers(&["ParentId"])?);
    let (pids, tids) = (if table.has("PID") { table.numbers(&["PID"])? } else { Vec::new() }, table.numbers(&["TID"])?);
    let row = |row: usize| {
        let number = |list: &[Option<i64>]| list.get(row).copied().flatten();
        let name = names.get(row)?.as_ref()?;
        Some(NsysRange {
            id: number(&ids)?,
            parent: number(&parents),
            name: own_name(name).map_or_else(|| name.clone(), Arc::from),
            is_xla: own_name(name).is_some(),
            start_ns: number(&starts)?,
            end_ns: number(&ends)?,
            pid: number(&pids).unwrap_or(0),
            tid: number(&tids).unwrap_or(0),
        })
    };
    Ok((0..ids.len()).filter_map(row).collect())
}

/// `thread-metadata.parquet`: the device that each launcher thread of XLA drives.
pub(super) fn launchers(bytes: Vec<u8>) -> Result<BTreeMap<(i64, i64), i64>, NsysErrorKind> {
    let mut table = Table::new(bytes)?;
    let (names, pids, tids) = (table.texts(&["Name"])?, table.numbers(&["PID"])?, table.numbers(&["TID"])?);
    let launcher = |row: usize| {
        let number = |list: &[Option<i64>]| list.get(row).copied().flatten();
        let rest = names.get(row)?.as_ref()?.strip_prefix("XlaLauncher:#global=")?;
        let device = rest.split([',', '#']).next()?.parse().ok()?;
        Some(((number(&pids)?, number(&tids)?), device))
    };
    Ok((0..names.len()).filter_map(launcher).collect())
}
