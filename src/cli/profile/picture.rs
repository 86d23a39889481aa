//! Pictures to the file that was named.

use std::io::Write;
use std::path::Path;

use crate::cli::fault::Fault;
use crate::remedy::remedy;
use crate::whole_file::write_whole;

/// Writes a picture to the file that was named.
pub(super) fn write_picture(path: &Path, svg: &[u8]) -> Result<(), Fault> {
    write_whole(path, |file| file.write_all(svg))
        .map_err(|error| Fault::input(format!("`{}`: cannot be written: {error}{}", path.display(), remedy(&error))))
}
