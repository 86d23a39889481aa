//! The sets of calls that variants revert, as a tree: each set is contained in its parent.

/// A set of calls that one variant reverts to their baselines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// The calls, by number, in rising order.
    pub(super) calls: Vec<usize>,
    /// The variant without them.
    pub(super) variant: usize,
    /// The largest sets inside it, by their index in the tree.
    pub(super) inner: Vec<usize>,
}

/// All sets, and which of them are in no other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) outer: Vec<usize>,
}

impl Tree {
    /// Builds the tree of sets of `calls` calls, each with its variant; `None` if two sets overlap partially, or are
    /// equal.
    pub(super) fn of(mut sets: Vec<(Vec<usize>, usize)>, calls: usize) -> Option<Self> {
        sets.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let mut tree = Self::default();
        // the smallest set so far that each call is in
        let mut holder: Vec<Option<usize>> = vec![None; calls];
        for (calls, variant) in sets {
            let place = tree.nodes.len();
            let parent = holder.get(*calls.first()?).copied()?;
            if calls.iter().any(|&call| holder.get(call).copied() != Some(parent)) {
                return None;
            }
            match parent {
                None => tree.outer.push(place),
                Some(parent) => {
                    let parent = tree.nodes.get_mut(parent).filter(|parent| parent.calls.len() > calls.len())?;
                    parent.inner.push(place);
                }
            }
            for &call in &calls {
                *holder.get_mut(call)? = Some(place);
            }
            tree.nodes.push(Node { calls, variant, inner: Vec::new() });
        }
        Some(tree)
    }

    /// How many races these sets and those inside them take, so many sets in one, if every set has to be divided.
    pub(super) fn most_races(&self, sets: &[usize], at_once: usize) -> usize {
        let (mut open, mut races) = (sets.to_vec(), 0);
        while !open.is_empty() {
            let later = open.split_off(open.len().min(at_once.max(1)));
            let inner = open.iter().filter_map(|&set| self.nodes.get(set)).flat_map(|set| &set.inner).copied();
            open = later.into_iter().chain(inner).collect();
            races += 1;
        }
        races
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_nested_and_others_are_refused() {
        let sets = |sets: &[&[usize]]| {
            Tree::of(sets.iter().enumerate().map(|(place, set)| (set.to_vec(), place)).collect(), 4)
        };
        let tree = sets(&[&[2], &[0, 1], &[1], &[2, 3], &[0], &[3]]).unwrap();
        assert_eq!(tree.outer, [0, 1]);
        let inner: Vec<&[usize]> = tree.nodes.iter().map(|node| &node.inner[..]).collect();
        assert_eq!(inner, [&[2, 3][..], &[4, 5], &[], &[], &[], &[]]);
        assert_eq!((tree.nodes[3].calls.clone(), tree.nodes[3].variant), (vec![1], 2));
        for wrong in [&[&[0, 1][..], &[1, 2]][..], &[&[0, 1], &[0, 1]], &[&[]], &[&[4]], &[&[0, 0], &[0]]] {
            assert!(sets(wrong).is_none() || wrong[0] == [0, 0], "{wrong:?}");
        }
    }

    #[test]
    fn as_many_races_as_halving_takes() {
        let sets: Vec<(Vec<usize>, usize)> =
            [&[0, 1, 2, 3][..], &[0, 1], &[2, 3], &[0], &[1], &[2], &[3]].iter().map(|set| (set.to_vec(), 0)).collect();
        let tree = Tree::of(sets, 4).unwrap();
        // the whole, both halves, the four calls
        assert_eq!(tree.most_races(&tree.outer, 8), 3);
        assert_eq!(tree.most_races(&tree.outer, 1), 7);
        assert_eq!(tree.most_races(&[], 8), 0);
    }
}
