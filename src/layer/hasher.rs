//! What a content hashes to. Owns the one rule for it: a stretch of zeros has the same hash whether
//! it was written or is a hole, and a hole costs nothing, however long it is.
//!
//! The rule: the content is cut into blocks of [`BLOCK`] bytes; of every block that is not all zeros
//! its index (64 bits, little-endian) and its own hash are hashed; after the last one follows the
//! length of the content. Blocks have hashes of their own because BLAKE3 is two to three times as
//! fast where a piece begins at a multiple of its own size.

use super::Digest;

/// Bytes of one block.
const BLOCK: usize = 64 * 1024;

/// Takes a content from its beginning to its end, in pieces of any size.
pub(crate) struct ContentHasher {
    hash: blake3::Hasher,
    /// Bytes taken so far.
    at: u64,
    /// The bytes of the block that is not complete yet, without the zeros of holes at its end.
    part: Vec<u8>,
}

impl ContentHasher {
    /// Of a content from its first byte on.
    pub fn new() -> Self {
        Self {
            hash: blake3::Hasher::new(),
            at: 0,
            part: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = self.filled();
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - filled));
            if now.len() == BLOCK {
                // The common case: no need to gather it.
                feed(&mut self.hash, self.at, now);
            } else {
                self.part.resize(filled, 0);
                self.part.extend_from_slice(now);
            }
            self.advance(now.len() as u64);
            bytes = rest;
        }
    }

    /// Takes `count` zeros.
    pub fn skip(&mut self, count: u64) {
        let to_end = (BLOCK - self.filled()) as u64;
        self.advance(count.min(to_end));
        // Whole blocks of zeros leave no trace but the length.
        self.at += count.saturating_sub(to_end);
    }

    /// The hash of all that was taken.
    pub fn finish(mut self) -> Digest {
        self.close(self.at - self.filled() as u64, self.filled());
        self.hash.update(&self.at.to_le_bytes());
        Digest(*self.hash.finalize().as_bytes())
    }

    /// Bytes of the current block that were taken.
    fn filled(&self) -> usize {
        (self.at % BLOCK as u64) as usize
    }

    /// Moves on within the current block, and closes it at its end.
    fn advance(&mut self, count: u64) {
        self.at += count;
        if count > 0 && self.filled() == 0 {
            self.close(self.at - BLOCK as u64, BLOCK);
        }
    }

    /// Hashes what was gathered of the block that begins at `start`, `length` bytes long.
    fn close(&mut self, start: u64, length: usize) {
        if !self.part.is_empty() {
            self.part.resize(length, 0);
            feed(&mut self.hash, start, &self.part);
            self.part.clear();
        }
    }
}

/// Hashes one block, unless it holds nothing but zeros.
fn feed(hash: &mut blake3::Hasher, start: u64, block: &[u8]) {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    if block != &ZEROS[..block.len()] {
        hash.update(&(start / BLOCK as u64).to_le_bytes());
        hash.update(blake3::hash(block).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pieces(bytes: &[u8], piece: usize) -> Digest {
        let mut hasher = ContentHasher::new();
        for bytes in bytes.chunks(piece) {
            if bytes.iter().all(|b| *b == 0) {
                hasher.skip(bytes.len() as u64);
            } else {
                hasher.update(bytes);
            }
        }
        hasher.finish()
    }

    #[test]
    fn pieces_and_holes_do_not_matter() {
        let mut bytes = vec![0; 5 * BLOCK + 77];
        for at in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 5 * BLOCK + 76] {
            let before = Digest::of(&bytes);
            bytes[at] = 7;
            let digest = Digest::of(&bytes);
            assert_ne!(digest, before, "a byte at {at}");
            for piece in [
                1,
                7,
                4096,
                BLOCK - 1,
                BLOCK,
                BLOCK + 1,
                3 * BLOCK,
                8 * BLOCK,
            ] {
                assert_eq!(
                    in_pieces(&bytes, piece),
                    digest,
                    "{at} in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn lengths_and_places_matter() {
        let of = |parts: &[(u64, &[u8])]| {
            let mut hasher = ContentHasher::new();
            for (zeros, bytes) in parts {
                hasher.skip(*zeros);
                hasher.update(bytes);
            }
            hasher.finish()
        };
        let contents: [&[(u64, &[u8])]; 9] = [
            &[],
            &[(1, b"")],
            &[(BLOCK as u64, b"")],
            &[(1 << 40, b"")],
            &[((1 << 40) + 1, b"")],
            &[(0, b"a")],
            &[(0, b"a\0")],
            &[(BLOCK as u64, b"a")],
            &[(1, b"a")],
        ];
        let mut seen: Vec<Digest> = contents.iter().map(|c| of(c)).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), contents.len());
        assert_eq!(of(&[]), Digest::of(b""));
    }
}
