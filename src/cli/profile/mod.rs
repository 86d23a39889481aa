//! `profile`: analyses of a capture.

/// Declares an argument's words for an enum of a library: the same variants, which clap can list.
macro_rules! words_for {
    ($(#[$meta:meta])* $name:ident for $of:ident { $($(#[$variant_meta:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
        pub(in crate::cli) enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl From<$name> for $of {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }
    };
}

mod collectives;
mod compile;
mod diff;
mod flamegraph;
mod input;
mod log_folder;
mod mosaic;
mod run;
mod summary;
mod timings;
pub(super) mod trace;
mod view;

pub(super) use input::read_step;
pub(super) use run::{ProfileCommand, run};
