//! How an array is split over the devices of a program, read from XLA's `OpSharding`. Devices are numbered as in the
//! program, from its first one on.

use std::borrow::Cow;
use std::ops::Range;

use crate::array::{ArraySpec, Reference, Tolerance};
use crate::hlo::permuted_grid;
use crate::hlo::schema::xla_data::OpSharding;
use crate::hlo::schema::xla_data::op_sharding::Type;

/// Equal parts of an array, one on each device; several devices may have the same part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sharding {
    /// Number of parts along each dimension; empty if every device has the whole array.
    parts: Vec<u64>,
    /// For each device, the row-major number of its part.
    places: Vec<usize>,
}

impl Sharding {
    /// The whole array on every device.
    pub(crate) fn whole(devices: usize) -> Self {
        Self { parts: Vec::new(), places: vec![0; devices] }
    }

    /// Whether every device has the whole array.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.is_empty()
    }

    /// The shardings of a tuple's arrays, or of a single array.
    pub(crate) fn all_of(proto: &OpSharding, devices: usize) -> Result<Vec<Self>, String> {
        match proto.r#type() {
            Type::Tuple => proto.tuple_shardings.iter().map(|proto| Self::of(proto, devices)).collect(),
            _ => Ok(vec![Self::of(proto, devices)?]),
        }
    }

    /// One array's sharding.
    pub(crate) fn of(proto: &OpSharding, devices: usize) -> Result<Self, String> {
        if proto.named_sharding.is_some() {
            return Err("a sharding by the names of a mesh".to_owned());
        }
        match Type::try_from(proto.r#type) {
            // any device's copy will do: copies are compared when they are assembled
            Ok(Type::Replicated | Type::Maximal | Type::Manual) => Ok(Self::whole(devices)),
            Ok(Type::Other) => {
                Self::tiled(proto, devices).ok_or_else(|| format!("tiles that are not those of {devices} devices"))
            }
            _ => Err(format!("a sharding of type {}", proto.r#type)),
        }
    }

    /// `None` if a tile does not belong to one device, or if devices share a tile for another reason than replication.
    fn tiled(proto: &OpSharding, devices: usize) -> Option<Self> {
        let shared = match proto.last_tile_dims.len() {
            0 => usize::from(proto.replicate_on_last_tile_dim),
            count => count,
        };
        if proto.last_tile_dims().any(|kind| !matches!(kind, Type::Replicated | Type::Manual)) {
            return None;
        }
        let tiles = &proto.tile_assignment_dimensions;
        let (parts, copies) = tiles.split_at_checked(tiles.len().checked_sub(shared)?)?;
        let order = match proto.tile_assignment_devices.as_slice() {
            [] => permuted_grid(&proto.iota_reshape_dims, &proto.iota_transpose_perm)?,
            listed => listed.to_vec(),
        };
        if product(tiles)? != devices || order.len() != devices || devices == 0 {
            return None;
        }
        let copies = product(copies)?;
        let mut places = vec![None; devices];
        for (at, device) in order.into_iter().enumerate() {
            let place = places.get_mut(usize::try_from(device).ok()?)?;
            if place.replace(at / copies).is_some() {
                return None;
            }
        }
        let is_cut = parts.iter().any(|&parts| parts > 1);
        Some(Self {
            parts: if is_cut { parts.to_vec() } else { Vec::new() },
            places: places.into_iter().collect::<Option<_>>()?,
        })
    }

    /// The part of an array that each device has.
    pub(crate) fn part_of(&self, whole: &ArraySpec) -> Result<ArraySpec, String> {
        self.scaled(whole, |dim, parts| (dim % parts == 0).then(|| dim / parts))
    }

    /// The array whose part on each device is `part`.
    pub(crate) fn whole_of(&self, part: &ArraySpec) -> Result<ArraySpec, String> {
        self.scaled(part, u64::checked_mul)
    }

    fn scaled(&self, spec: &ArraySpec, scale: impl Fn(u64, u64) -> Option<u64>) -> Result<ArraySpec, String> {
        if self.is_whole() {
            return Ok(spec.clone());
        }
        let dims =
            spec.dims.iter().zip(&self.parts).map(|(&dim, &parts)| scale(dim, parts)).collect::<Option<Vec<_>>>();
        let dims = dims.filter(|dims| dims.len() == self.parts.len() && dims.len() == spec.dims.len());
        dims.map(|dims| ArraySpec::new(spec.dtype, dims)).ok_or_else(|| {
            let parts: Vec<String> = self.parts.iter().map(u64::to_string).collect();
            format!("{spec} in equal parts, {} of them", parts.join(" × "))
        })
    }

    /// A device's part of an array's bytes.
    pub(crate) fn slice<'a>(&self, whole: &ArraySpec, bytes: &'a [u8], device: usize) -> Result<Cow<'a, [u8]>, String> {
        if self.is_whole() {
            return Ok(Cow::Borrowed(bytes));
        }
        let part = self.part_of(whole)?;
        let mut slice = Vec::new();
        for (of_whole, _) in self.runs(whole, &part, self.place_of(device)?) {
            slice.extend_from_slice(bytes.get(of_whole).ok_or("an array of fewer bytes")?);
        }
        Ok(Cow::Owned(slice))
    }

    /// Assembles the parts of all devices. Copies of the same part must agree within the tolerance of their type.
    pub(crate) fn join(&self, part: &ArraySpec, parts: Vec<Vec<u8>>) -> Result<(ArraySpec, Vec<u8>), String> {
        let whole = self.whole_of(part)?;
        let size = whole.host_bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let size = size.ok_or_else(|| format!("{whole} is larger than any memory"))?;
        // for each place, the device whose part is used, and the part itself to compare further copies with
        let count = self.places.iter().max().map_or(0, |&last| last + 1);
        let mut taken: Vec<Option<(usize, Reference)>> = (0..count).map(|_| None).collect();
        let mut bytes = vec![0; size];
        for (device, of_device) in parts.into_iter().enumerate() {
            let place = self.place_of(device)?;
            let Some(first) = taken.get_mut(place) else { continue };
            if let Some((first, reference)) = first {
                let found = reference.compare(&of_device);
                if !found.matches {
                    return Err(format!(
                        "devices {first} and {device} of the program differ in {} of the elements of which both have \
                         a copy",
                        found.mismatches
                    ));
                }
                continue;
            }
            for (of_whole, of_part) in self.runs(&whole, part, place) {
                let (to, from) = (bytes.get_mut(of_whole), of_device.get(of_part));
                let (Some(to), Some(from)) = (to, from) else { return Err("a part of another size".to_owned()) };
                to.copy_from_slice(from);
            }
            *first = Some((device, Reference::new(part.clone(), of_device, Tolerance::for_dtype(part.dtype))));
        }
        Ok((whole, bytes))
    }

    fn place_of(&self, device: usize) -> Result<usize, String> {
        self.places.get(device).copied().ok_or_else(|| format!("{} devices", self.places.len()))
    }

    /// The contiguous byte ranges of a part: in the whole array, and in the part.
    fn runs(
        &self,
        whole: &ArraySpec,
        part: &ArraySpec,
        place: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let size_of = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let element = whole.dtype.host_bytes();
        // from the innermost dimension on: the part's elements, the stride in the whole array, and where the part
        // begins
        let (mut stride, mut rest) = (1_usize, place);
        let mut start = 0_usize;
        let mut dims = Vec::new();
        for (axis, (&of_part, &of_whole)) in part.dims.iter().zip(&whole.dims).enumerate().rev() {
            let parts = self.parts.get(axis).map_or(1, |&parts| size_of(parts).max(1));
            start = start.saturating_add((rest % parts).saturating_mul(size_of(of_part)).saturating_mul(stride));
            rest /= parts;
            dims.push((size_of(of_part), stride));
            stride = stride.saturating_mul(size_of(of_whole));
        }
        let mut dims = dims.into_iter();
        let (length, _) = dims.next().unwrap_or((1, 1));
        let outer: Vec<(usize, usize)> = dims.collect();
        let count = if length == 0 { 0 } else { outer.iter().fold(1_usize, |all, (dim, _)| all.saturating_mul(*dim)) };
        (0..count).map(move |run| {
            let (mut rest, mut at) = (run, start);
            for &(dim, stride) in &outer {
                at = at.saturating_add((rest % dim).saturating_mul(stride));
                rest /= dim;
            }
            let bytes = |from: usize| {
                let from = from.saturating_mul(element);
                from..from.saturating_add(length.saturating_mul(element))
            };
            (bytes(at), bytes(run.saturating_mul(length)))
        })
    }
}

/// The number of elements; `None` on overflow, or if a dimension is zero.
fn product(dims: &[u64]) -> Option<usize> {
    let product = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))?;
    usize::try_from(product).ok().filter(|&product| product > 0)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::Value;

    use super::*;
    use crate::array::DType;

    fn read(proto: &[u8], devices: usize) -> Result<Sharding, String> {
        Sharding::of(&OpSharding::decode(proto).map_err(|error| error.to_string())?, devices)
    }

    const DEVICES: usize = 8;

    /// An array, its sharding's bytes, and each device's index range in each dimension.
    type Case = (ArraySpec, Vec<u8>, Vec<Vec<(u64, u64)>>);

    /// `make_shardings.py`, JAX 0.10.2, eight devices.
    fn cases() -> Vec<Case> {
        let text = include_str!("../../../../../../tests/data/timer/shardings.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        let case = |case: &Value| {
            let dims: Vec<u64> = case["shape"].as_array().unwrap().iter().map(number).collect();
            let hex = case["proto"].as_str().unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let parts = case["parts"].as_array().unwrap().iter().map(|part| {
                let ranges = part.as_array().unwrap().iter();
                ranges.map(|range| (number(&range[0]), number(&range[1]))).collect()
            });
            (ArraySpec::new(DType::S16, dims), (0..hex.len()).step_by(2).map(byte).collect(), parts.collect())
        };
        cases.iter().map(case).collect()
    }

    /// An array of the numbers from 0 on.
    fn counted(spec: &ArraySpec) -> Vec<u8> {
        (0..spec.elements().unwrap() as u16).flat_map(u16::to_le_bytes).collect()
    }

    /// The elements of a counted array within these index ranges, read one at a time.
    fn between(spec: &ArraySpec, ranges: &[(u64, u64)]) -> Vec<u8> {
        let is_inside = |number: u64| {
            let mut rest = number;
            let inside = spec.dims.iter().zip(ranges).rev().map(|(dim, (from, to))| {
                let index = rest % dim;
                rest /= dim;
                (*from..*to).contains(&index)
            });
            inside.fold(true, |all, one| all & one)
        };
        (0..spec.elements().unwrap())
            .filter(|&number| is_inside(number))
            .flat_map(|at| (at as u16).to_le_bytes())
            .collect()
    }

    #[test]
    fn every_device_has_what_jax_gives_it() {
        let cases = cases();
        assert_eq!(cases.len(), 14);
        for (spec, proto, parts) in cases {
            let sharding = read(&proto, DEVICES).unwrap();
            let whole = counted(&spec);
            let part = sharding.part_of(&spec).unwrap();
            assert_eq!(sharding.whole_of(&part).unwrap(), spec);
            let mut slices = Vec::new();
            for (device, ranges) in parts.iter().enumerate() {
                let dims: Vec<u64> = ranges.iter().map(|(from, to)| to - from).collect();
                assert_eq!(part.dims, dims, "{spec} of {proto:?}");
                let bytes = sharding.slice(&spec, &whole, device).unwrap().into_owned();
                assert_eq!(bytes, between(&spec, ranges), "{spec} of {proto:?} on device {device}");
                slices.push(bytes);
            }
            assert_eq!(sharding.join(&part, slices.clone()).unwrap(), (spec.clone(), whole));
            // a changed number on the last device either ends up in the array, or differs from another device's copy
            slices[DEVICES - 1][0] ^= 1;
            let changed = sharding.join(&part, slices);
            let is_shared = parts[..DEVICES - 1].contains(&parts[DEVICES - 1]);
            match changed {
                Ok((_, bytes)) => assert!(!is_shared && bytes != counted(&spec), "{spec} of {proto:?}"),
                Err(reason) => assert!(is_shared && reason.contains("and 7 of the program differ in 1 of"), "{reason}"),
            }
        }
    }

    #[test]
    fn tiles_may_be_listed_and_shared_for_several_reasons() {
        let iota = read(b"\x08\x03\x1a\x02\x02\x02\x4a\x02\x02\x02\x52\x02\x01\x00", 4).unwrap();
        // {devices=[2,2]<=[2,2]T(1,0)} and {devices=[2,2]0,2,1,3}
        assert_eq!(read(b"\x08\x03\x1a\x02\x02\x02\x22\x04\x00\x02\x01\x03", 4).unwrap(), iota);
        assert_eq!(iota, Sharding { parts: vec![2, 2], places: vec![0, 2, 1, 3] });
        // {devices=[2,1,2]<=[4] last_tile_dims={manual, replicated}}
        let shared = read(b"\x08\x03\x1a\x03\x02\x01\x02\x42\x02\x04\x00\x4a\x01\x04\x52\x01\x00", 4).unwrap();
        assert_eq!(shared, Sharding { parts: vec![2], places: vec![0, 0, 1, 1] });
        // one tile on any device, and a function written for one device
        for whole in [
            &b"\x08\x01\x1a\x01\x01\x22\x01\x02"[..],
            b"\x08\x04",
            b"",
            b"\x08\x03\x1a\x02\x01\x01\x4a\x01\x01\x52\x01\x00",
        ] {
            let devices = if whole.len() > 10 { 1 } else { 4 };
            assert_eq!(read(whole, devices).unwrap(), Sharding::whole(devices));
        }
        // a tuple of two
        let two = Sharding::all_of(&OpSharding::decode(&b"\x08\x02\x2a\x00\x2a\x02\x08\x04"[..]).unwrap(), 4).unwrap();
        assert_eq!(two, vec![Sharding::whole(4); 2]);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let why = |proto: &[u8], devices| read(proto, devices).unwrap_err();
        assert_eq!(why(b"\x08\x06", 2), "a sharding of type 6");
        assert_eq!(why(b"\x08\x02", 2), "a sharding of type 2");
        assert_eq!(why(b"\x08\x03\x72\x00", 2), "a sharding by the names of a mesh");
        assert!(why(b"\x08", 2).contains("failed to decode"));
        for (proto, devices) in [
            // two tiles on three devices, no tile at all, and fewer dimensions than shared ones
            (&b"\x08\x03\x1a\x01\x02\x4a\x01\x02\x52\x01\x00"[..], 3),
            (b"\x08\x03", 2),
            (b"\x08\x03\x30\x01", 1),
            // a repeated device, an absent one, and numbers that are mixed up rather than transposed
            (b"\x08\x03\x1a\x01\x02\x22\x02\x01\x01", 2),
            (b"\x08\x03\x1a\x01\x02\x22\x02\x00\x02", 2),
            (b"\x08\x03\x1a\x01\x04\x4a\x02\x02\x02\x52\x02\x00\x00", 4),
            (b"\x08\x03\x1a\x01\x04\x4a\x02\x02\x02\x52\x01\x00", 4),
            (b"\x08\x03\x1a\x01\x04\x4a\x02\x02\x02\x52\x02\x00\x05", 4),
            // devices that share a tile because each has a term of a sum
            (b"\x08\x03\x1a\x02\x02\x02\x42\x01\x06\x4a\x01\x04\x52\x01\x00", 4),
            // more tiles than can be counted
            (b"\x08\x03\x1a\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\x7f\x22\x02\x00\x01", 2),
        ] {
            assert!(why(proto, devices).contains("tiles that are not those"), "{proto:?}");
        }
        let halves = Sharding { parts: vec![2], places: vec![0, 1] };
        let spec: ArraySpec = "s16[3]".parse().unwrap();
        assert_eq!(halves.part_of(&spec).unwrap_err(), "s16[3] in equal parts, 2 of them");
        assert!(halves.part_of(&"s16[4,4]".parse().unwrap()).is_err());
        let four: ArraySpec = "s16[4]".parse().unwrap();
        assert!(halves.slice(&four, &[0; 8], 2).is_err());
        assert!(halves.slice(&four, &[0; 7], 1).is_err());
        assert!(halves.join(&"s16[2]".parse().unwrap(), vec![vec![0; 4], vec![0; 3]]).is_err());
        assert!(halves.whole_of(&ArraySpec::new(DType::S16, vec![u64::MAX])).is_err());
    }

    #[test]
    fn whatever_bytes_come_are_read_or_refused() {
        for (spec, proto, _) in cases() {
            let whole = counted(&spec);
            for at in 0..proto.len() {
                for value in 0..=255 {
                    let mut bytes = proto.clone();
                    bytes[at] = value;
                    let Ok(sharding) = read(&bytes, DEVICES) else { continue };
                    let Ok(part) = sharding.part_of(&spec) else { continue };
                    let slices = (0..DEVICES).map(|device| sharding.slice(&spec, &whole, device).unwrap().into_owned());
                    assert_eq!(sharding.join(&part, slices.collect()).unwrap().1, whole);
                }
                let _ = OpSharding::decode(&proto[..at]).map(|proto| Sharding::all_of(&proto, DEVICES));
            }
        }
    }
}
