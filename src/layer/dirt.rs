//! Which entries of the uppers may have moved since they were last looked at. Owns the bound on
//! that list: beyond it, the whole layer is to be walked.

use std::collections::HashMap;

use crate::RelPath;

/// Paths remembered per layer. Looking at one costs a little more than walking over it, and a list
/// must not grow with whatever an agent makes.
const PATHS_AT_MOST: usize = 32_768;

/// Of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Extent {
    /// The paths, `true` with everything below.
    Paths(HashMap<RelPath, bool>),
    /// Everything.
    Whole,
}

/// See the module. Layers are numbered as the session lists them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dirt {
    layers: Vec<Extent>,
}

impl Dirt {
    /// Everything of this many layers.
    pub fn whole(layers: usize) -> Self {
        Self {
            layers: vec![Extent::Whole; layers],
        }
    }

    fn extent(&mut self, layer: usize) -> &mut Extent {
        if self.layers.len() <= layer {
            self.layers
                .resize_with(layer + 1, || Extent::Paths(HashMap::new()));
        }
        &mut self.layers[layer]
    }

    /// This entry; `deep` with everything below it.
    pub fn add(&mut self, layer: usize, path: RelPath, deep: bool) {
        let extent = self.extent(layer);
        if let Extent::Paths(paths) = extent {
            if paths.len() >= PATHS_AT_MOST && !paths.contains_key(&path) {
                *extent = Extent::Whole;
            } else {
                *paths.entry(path).or_default() |= deep;
            }
        }
    }

    /// Everything of this layer.
    pub fn add_whole(&mut self, layer: usize) {
        *self.extent(layer) = Extent::Whole;
    }

    /// What is here and what is there.
    pub fn merge(&mut self, other: Dirt) {
        if self.layers.is_empty() {
            *self = other;
            return;
        }
        for (layer, extent) in other.layers.into_iter().enumerate() {
            match extent {
                Extent::Whole => self.add_whole(layer),
                Extent::Paths(paths) => {
                    for (path, deep) in paths {
                        self.add(layer, path, deep);
                    }
                }
            }
        }
    }

    /// Whether nothing is to be looked at.
    pub fn is_clean(&self) -> bool {
        self.layers
            .iter()
            .all(|extent| matches!(extent, Extent::Paths(paths) if paths.is_empty()))
    }

    /// The paths of this layer, `None` when all of it is to be walked.
    pub fn paths(&self, layer: usize) -> Option<Vec<(RelPath, bool)>> {
        match self.layers.get(layer) {
            None => Some(Vec::new()),
            Some(Extent::Whole) => None,
            Some(Extent::Paths(paths)) => {
                Some(paths.iter().map(|(p, deep)| (p.clone(), *deep)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> RelPath {
        RelPath::new(format!("f{number}")).expect("a path")
    }

    #[test]
    fn it_is_bounded_and_forgets_nothing() {
        let mut dirt = Dirt::default();
        assert!(dirt.is_clean());
        dirt.add(1, path(0), true);
        dirt.add(1, path(0), false);
        assert_eq!(dirt.paths(0), Some(Vec::new()));
        assert_eq!(dirt.paths(1), Some(vec![(path(0), true)]));
        for number in 0..=PATHS_AT_MOST {
            dirt.add(0, path(number), false);
        }
        assert_eq!(dirt.paths(0), None);
        let mut other = Dirt::default();
        other.add(0, path(1), false);
        other.merge(dirt);
        assert_eq!(other.paths(0), None);
        assert_eq!(other.paths(1), Some(vec![(path(0), true)]));
        assert!(!other.is_clean());
    }
}
