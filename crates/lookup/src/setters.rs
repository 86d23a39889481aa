//! Setters of options, one per field: each has the field's name and takes the field's type.

/// Declares them: `setters!(Type { field: Of, … })`; those of options inside others: `setters!(Type.inner { field: Of,
/// … })`.
#[macro_export]
macro_rules! setters {
    ($type:ident.$inner:ident { $($field:ident: $of:ty),+ $(,)? }) => {
        impl $type {
            $(
                #[doc = concat!("The same with another `", stringify!($inner), ".", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $of) -> Self {
                    self.$inner.$field = $field;
                    self
                }
            )+
        }
    };
    ($type:ident $(<$life:lifetime>)? { $($field:ident: $of:ty),+ $(,)? }) => {
        impl $(<$life>)? $type $(<$life>)? {
            $(
                #[doc = concat!(
                    "The same with another [`", stringify!($field), "`](Self#structfield.", stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, $field: $of) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
