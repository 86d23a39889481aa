//! The spaces that come with the program, and a folder that overrides them.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::SpaceError;
use super::space::CandidateSpace;

/// Every file of `candidates/`, by its name.
const FILES: &[(&str, &str)] = &[
    ("blocked_matmul.json", include_str!("../../candidates/blocked_matmul.json")),
    ("chunked_cross_entropy.json", include_str!("../../candidates/chunked_cross_entropy.json")),
    ("flash_attention.json", include_str!("../../candidates/flash_attention.json")),
];

/// Search spaces by operation.
#[derive(Debug, Clone, Default)]
pub struct Spaces {
    spaces: BTreeMap<String, CandidateSpace>,
}

impl Spaces {
    /// The spaces that come with the program.
    ///
    /// # Errors
    /// If one of them is invalid, which a test excludes.
    pub fn built_in() -> Result<Self, SpaceError> {
        let mut spaces = Self::default();
        for (name, text) in FILES {
            spaces.insert(CandidateSpace::parse(&format!("candidates/{name}"), text)?);
        }
        Ok(spaces)
    }

    /// Adds a space; one of the same operation is replaced.
    pub fn insert(&mut self, space: CandidateSpace) {
        self.spaces.insert(space.op().to_owned(), space);
    }

    /// Adds every `*.json` of a folder, replacing the spaces of the same operations. An invalid file is skipped and its
    /// error returned; the others are used.
    pub fn override_from(&mut self, folder: &Path) -> Vec<SpaceError> {
        let mut files = match std::fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>(),
            Err(error) => return vec![SpaceError::unreadable(folder.display().to_string(), &error)],
        };
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        let mut errors = Vec::new();
        for file in files {
            match CandidateSpace::open(&file) {
                Ok(space) => self.insert(space),
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// The space of an operation, by its name without version.
    pub fn get(&self, op: &str) -> Option<&CandidateSpace> {
        self.spaces.get(op)
    }

    /// All spaces, by operation.
    pub fn iter(&self) -> impl Iterator<Item = &CandidateSpace> {
        self.spaces.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../candidates");
        let mut there: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        // those have a folder, and a test, of their own
        there.retain(|name| !["targets", "options", "peaks", "kernels"].contains(&name.as_str()));
        there.sort();
        assert_eq!(there, FILES.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
        let spaces = Spaces::built_in().unwrap();
        for (name, _) in FILES {
            assert!(spaces.get(name.trim_end_matches(".json")).is_some(), "a file is named after its operation");
        }
    }
}
