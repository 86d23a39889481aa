//! How each attribute and type is encoded: its fields by its code, as data.

/// What a reference in an encoding refers to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Attribute,
    Type,
}

/// How the fields of an encoding follow each other.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Attribute,
    OptionalAttribute,
    /// A flag, and the attribute where it is set.
    FlaggedAttribute,
    Type,
    Attributes,
    AttributePairs,
    Types,
    /// Index of a string.
    Text,
    /// Varints and values without references, to the end of the encoding.
    Plain,
    /// A counted list of varints.
    Varints,
    Varint,
}

/// The fields of a VHLO attribute.
pub(super) fn vhlo_attribute(code: u64) -> Option<&'static [Field]> {
    use Field::{
        Attribute, AttributePairs, Attributes, FlaggedAttribute, OptionalAttribute, Plain, Text, Type, Varint,
    };
    Some(match code {
        1 => &[Attributes],
        6 => &[AttributePairs],
        // float, integer and tensor: a type, then their value
        8 | 9 | 15 => &[Type, Plain],
        14 => &[Text],
        17 => &[Type],
        // two doubles and the ULP tolerance precede the mode
        20 => &[Varint, Varint, Varint, Attribute],
        22 => &[Attribute, FlaggedAttribute],
        23 => &[Attribute, Attribute],
        24 => &[Attribute, Varint],
        25 => &[Attribute, OptionalAttribute],
        // booleans, enumerations and lists of numbers
        2..=5 | 7 | 10..=13 | 16 | 18 | 19 | 21 => &[Plain],
        _ => return None,
    })
}

/// The fields of a VHLO type.
pub(super) fn vhlo_type(code: u64) -> Option<&'static [Field]> {
    use Field::{Attribute, Plain, Type, Types, Varint, Varints};
    Some(match code {
        1 | 25 => &[Type],
        8 => &[Types, Types],
        20 | 41 => &[Varints, Type],
        21 => &[Attribute, Varints, Type],
        23 | 42 => &[Types],
        24 | 30 => &[Varint, Type, Type, Plain],
        0 | 2..=7 | 9..=19 | 22 | 26..=29 | 31..=40 => &[],
        _ => return None,
    })
}

/// The fields of a builtin attribute; the inner `None` is for a location, which counts as nothing.
pub(super) fn builtin_attribute(code: u64) -> Option<Option<&'static [Field]>> {
    use Field::{Attribute, AttributePairs, Attributes, Plain, Text, Type};
    Some(Some(match code {
        0 => &[Attributes],
        1 => &[AttributePairs],
        2 => &[Text],
        3 => &[Text, Type],
        4 => &[Attribute],
        5 => &[Attribute, Attributes],
        6 => &[Type],
        7 => &[],
        8 | 9 | 18 => &[Type, Plain],
        10..=15 | 22 => return Some(None),
        _ => return None,
    }))
}

/// The fields of a builtin type, such as that of `mhlo.num_partitions`.
pub(super) fn builtin_type(code: u64) -> Option<&'static [Field]> {
    use Field::{Attribute, Plain, Type, Types, Varints};
    Some(match code {
        0 => &[Plain],
        2 => &[Types, Types],
        1 | 3..=8 | 12 => &[],
        9 => &[Type],
        13 => &[Varints, Type],
        14 => &[Attribute, Varints, Type],
        15 => &[Types],
        _ => return None,
    })
}
