//! What to do about a system error: the end of a message that names the file.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

/// `; ` and what to do next, or empty if the error does not determine it.
pub fn io_hint(error: &Error) -> &'static str {
    match (error.kind(), Errno::from_io_error(error)) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge, _) => {
            "; free space or choose another folder"
        }
        (ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied, _) => "; choose another folder",
        (ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory, _) => "; check the path",
        (ErrorKind::AlreadyExists, _) => "; choose another name, or move that one away",
        (_, Some(Errno::MFILE | Errno::NFILE)) => "; allow more open files (`ulimit -n`)",
        _ => "",
    }
}

/// The same for a run's temporary files.
pub fn scratch_hint(error: &Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => io_hint(error),
        _ => "; free space or set TMPDIR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_follows_from_the_systems_number() {
        let of = |number: Errno| io_hint(&Error::from_raw_os_error(number.raw_os_error()));
        assert!([Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(of).iter().all(|next| next.contains("free space")));
        assert!([Errno::ROFS, Errno::ACCESS].map(of).iter().all(|next| *next == "; choose another folder"));
        assert!(of(Errno::MFILE).contains("ulimit"));
        assert!([Errno::NOENT, Errno::NOTDIR, Errno::ISDIR].map(of).iter().all(|next| *next == "; check the path"));
        assert!(of(Errno::EXIST).contains("another name"));
        assert_eq!(of(Errno::IO), "");
    }
}
