//! The devices that take part in a collective together.

use super::module::HloInstruction;
use super::schema::hlo::HloInstructionProto;
use super::schema::xla_data::{AxisRefProto, IotaReplicaGroupListProto, MeshAxesReplicaGroupListProto};

/// Maximum number of devices of a program, a bound for damaged lists.
const MAX_DEVICES: u64 = 1 << 16;

/// The participants of a collective, as the module numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicaGroups {
    /// No group is named: all take part.
    All,
    /// Each group's members.
    Listed(Vec<Vec<u64>>),
    /// In an unknown form, or damaged.
    Unknown,
}

impl HloInstruction {
    /// The participants, whichever way the module writes them: as lists, as a permuted grid or along axes of a mesh.
    pub fn replica_groups(&self) -> ReplicaGroups {
        let message = &self.message;
        let listed = message.collective_device_list.as_deref();
        let lists = message.replica_groups.iter().chain(listed.into_iter().flat_map(|list| &list.replica_groups));
        let lists: Vec<Vec<u64>> = lists.map(|group| group.replica_ids.clone()).collect();
        let grid = listed.and_then(|list| list.iota_replica_group_list.as_ref());
        let grid = grid.or(message.iota_collective_device_list.as_deref());
        let mesh = message.mesh_axes_replica_group_list.as_deref();
        let groups = match (mesh, grid) {
            (Some(mesh), _) => of_mesh(mesh),
            (None, Some(grid)) if lists.is_empty() => of_grid(grid),
            _ if lists.is_empty() && self.has_later_fields => None,
            _ if lists.is_empty() => return ReplicaGroups::All,
            _ => Some(lists),
        };
        groups.map_or(ReplicaGroups::Unknown, ReplicaGroups::Listed)
    }
}

impl HloInstructionProto {
    /// Whether it names groups in a known form.
    pub(super) fn names_groups(&self) -> bool {
        !self.replica_groups.is_empty()
            || self.collective_device_list.is_some()
            || self.iota_collective_device_list.is_some()
            || self.mesh_axes_replica_group_list.is_some()
    }
}

/// `[2,4]<=[4,2]T(1,0)`: consecutive devices of a permuted grid.
fn of_grid(grid: &IotaReplicaGroupListProto) -> Option<Vec<Vec<u64>>> {
    let devices = permuted_grid(&grid.iota_reshape_dims, &grid.iota_transpose_perm)?;
    let size = grid.num_devices_per_group;
    let is_whole = size > 0 && grid.num_replica_groups.checked_mul(size) == Some(devices.len() as u64);
    is_whole.then(|| in_groups(&devices, size))
}

fn in_groups(devices: &[u64], size: u64) -> Vec<Vec<u64>> {
    devices.chunks(usize::try_from(size).unwrap_or(usize::MAX).max(1)).map(<[u64]>::to_vec).collect()
}

/// `mesh['x'=2,'y'=4] {'y':(2)2}`: the devices of a group differ in the named parts of axes. With each axis split into
/// its parts, these are the fastest dimensions of a permuted grid.
fn of_mesh(list: &MeshAxesReplicaGroupListProto) -> Option<Vec<Vec<u64>>> {
    let mesh = list.mesh.as_ref()?;
    let (mut sizes, mut within, mut outside) = (Vec::new(), vec![None; list.axes.len()], Vec::new());
    for (axis, whole) in (0_u64..).zip(&mesh.axes) {
        let mut parts: Vec<(u64, u64, usize)> = Vec::new();
        for (place, named) in list.axes.iter().enumerate().filter(|(_, named)| named.mesh_axis_index == axis) {
            let (start, size) = part(named, whole.size);
            parts.push((start, start.checked_mul(size)?, place));
        }
        parts.sort_unstable();
        // what is before, between and behind the parts is outside
        let mut end = 1;
        for (start, next, place) in parts {
            push(&mut sizes, &mut outside, quotient(start, end)?);
            *within.get_mut(place)? = Some(sizes.len() as u64);
            sizes.push(quotient(next, start)?);
            end = next;
        }
        push(&mut sizes, &mut outside, quotient(whole.size, end)?);
    }
    let within: Vec<u64> = within.into_iter().collect::<Option<_>>()?;
    let size = within.iter().try_fold(1_u64, |all, &at| all.checked_mul(*sizes.get(usize::try_from(at).ok()?)?))?;
    let places = permuted_grid(&sizes, &[outside, within].concat())?;
    let device = |place: &u64| match mesh.device_ids.as_slice() {
        [] => Some(*place),
        ids => ids.get(usize::try_from(*place).ok()?).copied(),
    };
    let devices: Vec<u64> = places.iter().map(device).collect::<Option<_>>()?;
    Some(in_groups(&devices, size))
}

/// Where a part of an axis begins, as the product of what is before it, and its size.
fn part(named: &AxisRefProto, whole: u64) -> (u64, u64) {
    named.sub_axis_info.as_ref().map_or((1, whole), |part| (part.pre_size, part.size))
}

fn push(sizes: &mut Vec<u64>, outside: &mut Vec<u64>, size: u64) {
    if size > 1 {
        outside.push(sizes.len() as u64);
        sizes.push(size);
    }
}

/// The quotient of what divides evenly.
fn quotient(whole: u64, part: u64) -> Option<u64> {
    (whole > 0 && whole.checked_rem(part)? == 0).then_some(whole / part)
}

/// The numbers from zero on as an array of these dimensions, whose dimensions are then put in another order: its
/// elements, row by row. `None` if the order is no permutation, or if there are more than 65,536 numbers.
pub fn permuted_grid(dims: &[u64], order: &[u64]) -> Option<Vec<u64>> {
    let count = dims.iter().try_fold(1_u64, |all, &dim| all.checked_mul(dim).filter(|&all| all <= MAX_DEVICES))?;
    let plain: Vec<u64>;
    let order = if order.is_empty() {
        plain = (0..dims.len() as u64).collect();
        &plain
    } else {
        order
    };
    if count == 0 || order.len() != dims.len() {
        return None;
    }
    let mut strides = vec![0; dims.len()];
    let mut stride = 1;
    for (own, dim) in strides.iter_mut().zip(dims).rev() {
        *own = stride;
        stride *= dim;
    }
    // for each dimension of the result, its size and its stride in the original
    let mut sides = Vec::new();
    for &axis in order {
        let axis = usize::try_from(axis).ok()?;
        sides.push((*dims.get(axis)?, std::mem::replace(strides.get_mut(axis)?, 0)));
    }
    // an axis that occurs twice has no stride the second time
    if sides.iter().any(|&(_, stride)| stride == 0) {
        return None;
    }
    let number = |index: u64| {
        let mut rest = index;
        let mut number = 0;
        for &(size, stride) in sides.iter().rev() {
            number += rest % size * stride;
            rest /= size;
        }
        number
    };
    Some((0..count).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlo::schema::xla_data::MeshProto;
    use crate::hlo::schema::xla_data::axis_ref_proto::SubAxis;
    use crate::hlo::schema::xla_data::mesh_proto::MeshAxis;

    /// Axes by their sizes, devices in another order, and the named parts: the axis, what is before, the size.
    fn along(axes: &[u64], device_ids: &[u64], parts: &[(u64, Option<(u64, u64)>)]) -> Option<Vec<Vec<u64>>> {
        let axis = |&size: &u64| MeshAxis { name: "x".into(), size };
        let mesh = MeshProto { axes: axes.iter().map(axis).collect(), device_ids: device_ids.to_vec() };
        let named = |&(mesh_axis_index, part): &(u64, Option<(u64, u64)>)| AxisRefProto {
            mesh_axis_index,
            sub_axis_info: part.map(|(pre_size, size)| SubAxis { pre_size, size }),
        };
        of_mesh(&MeshAxesReplicaGroupListProto { mesh: Some(mesh), axes: parts.iter().map(named).collect() })
    }

    fn grid(groups: u64, size: u64, dims: &[u64], order: &[u64]) -> Option<Vec<Vec<u64>>> {
        of_grid(&IotaReplicaGroupListProto {
            num_replica_groups: groups,
            num_devices_per_group: size,
            iota_reshape_dims: dims.to_vec(),
            iota_transpose_perm: order.to_vec(),
        })
    }

    /// The groups that XLA's own tests expect (openxla/xla, `xla/hlo/ir/replica_group_test.cc`).
    #[test]
    fn groups_along_axes_are_xlas() {
        assert_eq!(along(&[2, 2], &[], &[(0, None)]).unwrap(), [[0, 2], [1, 3]]);
        assert_eq!(along(&[2, 2], &[], &[(1, None)]).unwrap(), [[0, 1], [2, 3]]);
        assert_eq!(along(&[2, 2], &[], &[(0, None), (1, None)]).unwrap(), [[0, 1, 2, 3]]);
        assert_eq!(along(&[2, 2], &[3, 1, 0, 2], &[(0, None)]).unwrap(), [[3, 0], [1, 2]]);
        let found = along(&[6, 6], &[], &[(0, Some((3, 2)))]).unwrap();
        assert_eq!((found.len(), &found[5..8]), (18, &[vec![5, 11], vec![12, 18], vec![13, 19]][..]));
        let found = along(&[6, 6], &[], &[(0, Some((1, 3))), (1, Some((1, 3)))]).unwrap();
        assert_eq!((found.len(), &found[2][..]), (4, &[6, 8, 10, 18, 20, 22, 30, 32, 34][..]));
        let found = along(&[6, 6], &[], &[(1, Some((1, 3))), (0, Some((1, 3)))]).unwrap();
        assert_eq!(found[1], [1, 13, 25, 3, 15, 27, 5, 17, 29]);
    }

    /// The same groups along parts of an axis and as a grid, from the same tests.
    #[test]
    fn parts_of_an_axis_are_a_grid() {
        for (parts, groups, size, dims, order) in [
            (&[(0, Some((1, 2)))][..], 4, 2, &[2, 4][..], &[1, 0][..]),
            (&[(0, Some((2, 2)))], 4, 2, &[2, 2, 2], &[0, 2, 1]),
            (&[(0, Some((2, 4)))], 2, 4, &[8], &[0]),
            (&[(0, Some((1, 2))), (0, Some((4, 2)))], 2, 4, &[2, 2, 2], &[1, 0, 2]),
            (&[(0, Some((4, 2))), (0, Some((1, 2)))], 2, 4, &[2, 2, 2], &[1, 2, 0]),
            (&[(0, None)], 1, 8, &[8], &[0]),
        ] {
            let found = along(&[8], &[], parts);
            assert!(found.is_some());
            assert_eq!(found, grid(groups, size, dims, order), "{parts:?}");
        }
        assert_eq!(grid(2, 4, &[8], &[]).unwrap()[1], [4, 5, 6, 7]);
    }

    #[test]
    fn what_divides_nothing_is_unknown() {
        for (axes, ids, parts) in [
            (&[8][..], &[][..], &[(0, Some((3, 2)))][..]),
            (&[8], &[], &[(0, Some((2, 8)))]),
            (&[8], &[], &[(0, Some((0, 2)))]),
            (&[8], &[], &[(0, Some((1, 0)))]),
            (&[8], &[], &[(1, None)]),
            (&[8], &[], &[(0, None), (0, None)]),
            (&[8], &[], &[(0, Some((1, 4))), (0, Some((2, 2)))]),
            (&[0], &[], &[(0, None)]),
            (&[2, 2], &[0, 1], &[(0, None)]),
            (&[u64::MAX, u64::MAX], &[], &[(0, None)]),
            (&[u64::MAX], &[], &[(0, Some((u64::MAX, u64::MAX)))]),
        ] {
            assert_eq!(along(axes, ids, parts), None, "{axes:?} {parts:?}");
        }
        for (groups, size, dims, order) in
            [(2, 4, &[4][..], &[0][..]), (2, 0, &[8], &[0]), (1, 4, &[2, 2], &[0, 0]), (1, 4, &[2, 2], &[0, 5])]
        {
            assert_eq!(grid(groups, size, dims, order), None, "{dims:?} {order:?}");
        }
    }
}
